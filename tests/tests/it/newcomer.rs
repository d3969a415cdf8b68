//! The way of somebody new, as docs/quick-start.md has it: a pack of one's own, its test, a host, an event.

use std::path::Path;
use std::process::{Command, Output};

use forebay::rig::optional;
use forebay_tests::paths;
use forebay_tests::wait;
use forebay_tests::world::{World, event_ids, signed};
use serde_json::Value;

fn forebay(folder: &Path, arguments: &[&str]) -> Output {
    let guests = paths::binary().ancestors().nth(2).expect("it lies in a target directory").join("guests");
    let mut command = Command::new(paths::binary());
    command.args(arguments).current_dir(folder).env("FOREBAY_GUEST_TARGET_DIR", guests);
    command.output().expect("the binary can be started")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_project_passes_its_test_and_serves_its_first_event() -> anyhow::Result<()> {
    let mut world = World::prepare(&[], "").await?;
    let folder = world.site.path().to_owned();
    let made = forebay(&folder, &["pack", "new", "orders"]);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(forebay(&folder, &["pack", "new", "orders"]).status.code(), Some(4), "it is there already");

    let tested = forebay(&folder, &["pack", "test", "orders", "--json"]);
    assert!(tested.status.success(), "{tested:?}");
    let report: Value = serde_json::from_slice(&tested.stdout)?;
    assert_eq!(report["fixtures"].as_array().map(Vec::len), Some(3), "{report}");

    // Another expectation is a difference that can be read, until it is blessed.
    let expected = folder.join("orders/fixtures/greeting.expected.json");
    let right = std::fs::read_to_string(&expected)?;
    std::fs::write(&expected, right.replace("hello, world", "good bye"))?;
    let differs = forebay(&folder, &["pack", "test", "orders"]);
    let said = String::from_utf8_lossy(&differs.stdout);
    assert_eq!(differs.status.code(), Some(6), "{differs:?}");
    assert!(said.contains("-       \"note\": \"good bye\"\n+       \"note\": \"hello, world\""), "{said}");
    assert!(forebay(&folder, &["pack", "test", "orders", "--bless"]).status.success());
    assert_eq!(std::fs::read_to_string(&expected)?, right);

    world.site.host.packs = vec![folder.join("orders/orders-0.1.0.fpk")];
    world.restart().await?;
    let delivery = signed("one", "greeting", r#"{"kind":"greeting","subject":"world"}"#);
    let answer = world.deliver_to("orders", &delivery).await?;
    let event = event_ids(&answer)?.remove(0);
    let done = |event: &Value| event["work_items"][0]["state"] == "done";
    let shown = wait::until("the event is done", async || world.admin().event(&event).await, done).await?;
    assert_eq!(shown["work_items"][0]["note"], "hello, world", "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_project_in_javascript_passes_its_test() -> anyhow::Result<()> {
    if paths::built_pack("js-hello").is_none() {
        optional::left_out("the example pack in JavaScript is not built (make guests builds it where Node.js is)");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let made = forebay(folder.path(), &["pack", "new", "orders", "--lang", "js"]);
    assert!(made.status.success(), "{made:?}");
    let tested = forebay(folder.path(), &["pack", "test", "orders", "--json"]);
    assert!(tested.status.success(), "{tested:?}");
    // What is no JavaScript is refused with the place where it stops being that.
    std::fs::write(
        folder.path().join("orders/src/pack.js"),
        "export const flow = {\n  prepare(event) { return ; }\n  }}\n",
    )?;
    let refused = forebay(folder.path(), &["pack", "build", "orders"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("pack.js:3"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_packs_do_what_their_fixtures_say() -> anyhow::Result<()> {
    let world = World::prepare(&[], "").await?;
    for example in ["github", "hello", "hubspot", "relay", "shopify", "stripe"] {
        let source = paths::root().join("guest-examples").join(example);
        let source = source.to_str().expect("it is UTF-8");
        let tested = forebay(world.site.path(), &["pack", "test", source, "--output", "tested.fpk"]);
        assert!(tested.status.success(), "{example}: {tested:?}");
    }
    Ok(())
}
