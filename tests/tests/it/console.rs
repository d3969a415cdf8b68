//! The console in a real browser, over a real host: what an operator does with it, and what nobody can do to it.

use std::collections::BTreeSet;

use forebay::rig::github::push_body;
use forebay::rig::receiver::Reply;
use forebay_tests::browser::{Browser, key};
use forebay_tests::wait;
use forebay_tests::world::{World, event_ids, signed};
use http::StatusCode;
use serde_json::{Value, json};

/// What a page must never take for anything but text.
const HOSTILE: &str = r#"<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'"></td>{{7*7}}"#;
const TOKEN: &str = "a-token-of-20-letters";
/// Every view that needs no id.
const VIEWS: [&str; 7] = ["#/", "#/events", "#/queue", "#/messages", "#/lanes", "#/shards", "#/packs"];

/// Texts whose contrast with what is behind them is less than WCAG's level AA asks for.
const FAINT: &str = r#"
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const channels = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => [r, g, b].map((value) => value / 255)
        .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = channels(getComputedStyle(at).backgroundColor);
            if (colour[3] === 255) return colour;
        }
        return [255, 255, 255, 255];
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const faint = [];
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest("noscript")) continue;
        const [one, other] = [channels(getComputedStyle(element).color), behind(element)].map(light);
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (contrast < 4.5) faint.push(`${texts.currentNode.data.trim()}: ${contrast.toFixed(2)}`);
    }
    return faint;
"#;

fn console(world: &World) -> String {
    format!("http://{}/console/", world.site.host.admin)
}

/// Everything that was asked for was asked of the console's own host, and nothing went wrong meanwhile.
async fn assert_well(browser: &Browser, world: &World) -> anyhow::Result<()> {
    let own = format!("http://{}/", world.site.host.admin);
    let foreign: Vec<String> = browser.requests().await?.into_iter().filter(|url| !url.starts_with(&own)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    let complaints = browser.complaints().await?;
    assert!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

async fn message_in(world: &World, state: &str) -> anyhow::Result<Value> {
    let path = format!("/api/v1/messages?state={state}");
    let found = async || Ok(world.admin().get(&path).await?["items"][0].clone());
    wait::until(state, found, |message| message["id"].is_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_follows_a_delivery_pauses_a_lane_and_sends_a_dead_message_again() -> anyhow::Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let mut world = World::start(&["github"]).await?;
    browser.open(&console(&world)).await?;
    browser.until_text("Nothing needs attention").await?;
    browser.until_text("No event was delivered yet").await?;

    // A delivery appears by itself, with what became of it.
    let push = push_body(1, 2_000);
    let source = "octo-org/repository-1";
    world.sink.reply(Reply::Status(StatusCode::BAD_REQUEST));
    let event = event_ids(&world.deliver(&signed("delivery-1", "push", push)).await?)?.remove(0);
    browser.until_text(source).await?;
    browser.picture("overview").await?;
    browser.click(&format!("//a[@title='{event}']")).await?;
    browser.until_text(&event).await?;
    browser.until_text(&format!("\"full_name\": \"{source}\"")).await?;
    let dead = message_in(&world, "dead").await?["id"].as_str().unwrap_or_default().to_owned();
    browser.click(&format!("//a[@title='{dead}']")).await?;
    browser.until_text("It was given up: it answered 400").await?;

    // It is named before anything is done, and can be left.
    browser.press("Redrive…").await?;
    browser.until_text(&format!("Send message {dead} again")).await?;
    browser.until_text(&format!("forebay message redrive {dead}")).await?;
    browser.answer("Cancel").await?;
    assert_eq!(world.admin().get(&format!("/api/v1/messages/{dead}")).await?["state"], "dead");
    world.sink.reply(Reply::OK);
    browser.press("Redrive…").await?;
    browser.answer("Send it again").await?;
    browser.until_text("The message is scheduled").await?;
    browser.answer("Close").await?;
    browser.until("it arrived", "return document.querySelector('h1').innerText.includes('published')").await?;
    // What is too late is said in the host's words.
    let late = world.admin().post(&format!("/api/v1/messages/{dead}/cancel"), json!({})).await?;
    assert_eq!(late.status, StatusCode::CONFLICT);

    browser.open(&format!("{}#/lanes", console(&world))).await?;
    browser.press("Pause…").await?;
    browser.write("reason", "maintenance").await?;
    browser.until_text("forebay lane pause demo/notifications --reason 'maintenance'").await?;
    browser.answer("Pause").await?;
    browser.until_text("The gate of demo/notifications is paused").await?;
    browser.answer("Close").await?;
    browser.until_text("Gates that are not open").await?;
    let lanes = world.admin().get("/api/v1/lanes?troubled=true").await?;
    assert_eq!(lanes["gates"][0]["reason"], "maintenance");
    assert_eq!((&lanes["items"][0]["gate"], &lanes["items"][1]), (&json!("paused"), &Value::Null), "{lanes}");
    browser.open(&format!("{}#/", console(&world))).await?;
    browser.until_text("demo/notifications, since").await?;
    browser.click("//a[contains(., 'demo/notifications, since')]").await?;
    browser.click("//section[contains(., 'Gates')]//button[normalize-space()='Resume…']").await?;
    browser.answer("Resume").await?;
    browser.until_text("The gate of demo/notifications is open").await?;
    browser.answer("Close").await?;
    browser.until("the gate is gone", "return !document.body.innerText.includes('Gates that are not open')").await?;

    assert_eq!(world.admin().get("/api/v1/lanes?troubled=true").await?["items"], json!([]), "it is well again");

    // A bookmark leads back to the same.
    browser.open(&format!("{}#/events?namespace=demo&state=done", console(&world))).await?;
    browser.until_text(source).await?;
    browser.reload().await?;
    browser.until_text(source).await?;
    assert_eq!(browser.run("return document.querySelector('[name=state]').value").await?, "done");
    assert_well(&browser, &world).await?;
    world.kill().await?;
    browser.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_sent_is_text_in_every_view() -> anyhow::Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let mut world = World::start(&["hostile"]).await?;
    let deeds = [
        ("noted", json!({"do": "note", "text": HOSTILE})),
        ("rejected", json!({"do": "reject", "reason": HOSTILE})),
        ("sent", json!({"do": "emit_fields", "content_type": "text/html", "header": "x-hostile", "value": HOSTILE})),
    ];
    let mut events = Vec::new();
    for (name, mut deed) in deeds {
        deed["source"] = format!("{name} {HOSTILE}").into();
        let answer =
            world.deliver_to("in-order", &signed(format!("{name} {HOSTILE}"), HOSTILE, deed.to_string())).await?;
        events.push(event_ids(&answer)?.remove(0));
    }
    world.settle().await?;
    let pause = json!({"destination": "sink", "gate": "paused", "reason": HOSTILE});
    assert_eq!(world.admin().post("/api/v1/lanes/gate", pause).await?.status, StatusCode::OK);
    let mut places: Vec<String> = ["#/", "#/events", "#/lanes"].map(str::to_owned).to_vec();
    for event in &events {
        let shown = world.admin().event(event).await?;
        places.push(format!("#/events/{event}"));
        places.extend(
            shown["work_items"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|item| format!("#/work-items/{}", item["id"].as_str().unwrap_or_default())),
        );
        places.extend(
            shown["messages"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|item| format!("#/messages/{}", item["id"].as_str().unwrap_or_default())),
        );
    }
    assert!(places.len() > 3 + 2 * events.len(), "{places:?}");
    let mut seen = 0;
    for place in &places {
        browser.open(&format!("{}{place}", console(&world))).await?;
        browser.until("it is shown", "return document.querySelector('main:not([aria-busy]) h1') !== null").await?;
        let made = "return document.querySelectorAll('main img, main script, main iframe, main style').length";
        assert_eq!(browser.run(made).await?, 0, "{place}");
        assert_eq!(browser.run("return window.pwned ?? null").await?, Value::Null, "{place}");
        seen += usize::from(browser.text().await?.contains(HOSTILE));
    }
    assert!(seen >= places.len() - 2, "it is shown as it was sent: in {seen} of {places:?}");
    // An address is no HTML either, and neither is what is written into a field.
    let address = format!(
        "{}#/messages/{}?state={}",
        console(&world),
        "%3Cimg%20src%3Dx%20onerror%3Dpwned%3D1%3E",
        "%3Cscript%3E"
    );
    browser.open(&address).await?;
    browser.until_text("is not a message id").await?;
    browser.open(&format!("{}#/nowhere/at/all", console(&world))).await?;
    browser.until_text("No such view").await?;
    assert_eq!(browser.run("return window.pwned ?? null").await?, Value::Null);
    // The browser itself forbids what the page's rules forbid.
    let inline = "const script = document.createElement('script'); try { script.text = 'window.pwned = 1'; \
                  document.body.append(script); } catch {} return window.pwned ?? null";
    assert_eq!(browser.run(inline).await?, Value::Null);
    let own = format!("http://{}/", world.site.host.admin);
    assert!(browser.requests().await?.iter().all(|url| url.starts_with(&own)));
    world.kill().await?;
    browser.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_opens_it_the_keyboard_leads_through_it_and_it_fits_a_phone() -> anyhow::Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let mut world = World::start_with(&["github"], &format!("[admin]\ntoken = \"{TOKEN}\"\n")).await?;
    let opened = json!({
        "action": "opened", "repository": {"full_name": "octo/api"}, "sender": {"login": "octocat"},
        "pull_request": {"number": 7, "title": "Faster", "html_url": "https://github.example/octo/api/pull/7", "draft": false, "user": {"login": "octocat"}},
    });
    let event = event_ids(&world.deliver(&signed("delivery-1", "pull_request", opened.to_string())).await?)?.remove(0);

    browser.open(&console(&world)).await?;
    browser.until_text("Admin token").await?;
    browser.picture("sign-in").await?;
    browser.keys(&format!("wrong{}", key::ENTER)).await?;
    browser.until_text("send the admin token").await?;
    // A browser tells of every 401, and of nothing else here.
    assert!(browser.complaints().await?.iter().all(|complaint| complaint.contains("401")));
    browser.write("token", TOKEN).await?;
    browser.keys(key::ENTER).await?;
    browser.until_text("octo/api").await?;
    browser.reload().await?;
    browser.until_text("octo/api").await?;
    assert_eq!(browser.run("return Object.keys(localStorage).length").await?, 0, "the token is this tab's alone");

    // The first stop of the keyboard leads past the navigation; `/` to an id; Escape out of a dialog.
    browser.keys(key::TAB).await?;
    assert_eq!(browser.run("return document.activeElement.innerText").await?, "Skip to the content");
    browser.keys(key::ENTER).await?;
    assert_eq!(browser.run("return document.activeElement.id").await?, "main");
    browser.keys("/").await?;
    browser.keys(&format!("{event}{}", key::ENTER)).await?;
    browser.until("the event is shown", &format!("return location.hash === '#/events/{event}' && document.querySelector('h1').innerText.startsWith('Event ')")).await?;
    browser.until("the focus is on it", "return document.activeElement.tagName === 'H1'").await?;
    browser.until("it is done", "return document.querySelector('h1').innerText.includes('done')").await?;
    browser.run("[...document.querySelectorAll('button')].find((one) => one.innerText === 'Verify…').focus()").await?;
    browser.keys(key::ENTER).await?;
    browser.until_text("Verify event").await?;
    browser.keys(key::ESCAPE).await?;
    browser.until("the dialog is gone", "return document.querySelector('dialog') === null").await?;
    browser.keys(&format!("{}{}", key::ENTER, key::TAB)).await?;
    browser.keys(key::ENTER).await?;
    browser.until_text("1 the same").await?;
    browser.keys(key::ESCAPE).await?;

    let mut places: BTreeSet<String> = VIEWS.map(str::to_owned).into();
    places.insert(format!("#/events/{event}"));
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await?;
        for place in &places {
            show(&browser, &world, place).await?;
            let faint = browser.run(FAINT).await?;
            assert_eq!(faint, json!([]), "{place} in {scheme}");
            browser.picture(&format!("{scheme}-{}", place.replace(['#', '/'], "-"))).await?;
        }
    }
    browser.be_a_phone().await?;
    for place in &places {
        show(&browser, &world, place).await?;
        let widths = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]").await?;
        assert!(widths[0].as_u64() <= widths[1].as_u64() && widths[1] == 390, "{place}: {widths}");
        browser.picture(&format!("phone-{}", place.replace(['#', '/'], "-"))).await?;
    }
    assert_well(&browser, &world).await?;
    world.kill().await?;
    browser.close().await
}

async fn show(browser: &Browser, world: &World, place: &str) -> anyhow::Result<()> {
    browser.open("about:blank").await?;
    browser.open(&format!("{}{place}", console(world))).await?;
    browser.until("it is shown", "return document.querySelector('main:not([aria-busy]) h1') !== null").await
}
