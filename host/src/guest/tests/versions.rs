//! Two versions of the contract in one host, of which neither fits the other: a connector written by hand for the later
//! one, beside and in place of those that are built for the one in `wit/`.

use expect_test::expect;
use serde_json::json;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::hostile::HARMLESS;
use super::*;
use crate::guest::check::check;
use crate::model::ids::MessageId;
use crate::model::message::DueAction;
use crate::model::pack::{ImportName, Reader};
use crate::model::reading::Reading;

/// A connector for `forebay:connector@0.2.0`. Of an event without a body it wants nothing; a body that begins with `!`
/// fails it, one that begins with `?` is a key to be read. Its note is the body, or the record; it sends the body on.
pub(crate) fn of_the_next_version() -> Bytes {
    let mut module = wat::parse_str(include_str!("versions.wat")).unwrap();
    let mut resolve = Resolve::default();
    let package = resolve.push_source("v0_2.wit", ContractVersion::V0_2.text()).unwrap();
    let world = resolve.select_world(&[package], Some(ContractVersion::WORLD)).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap().into()
}

async fn next(engine: &Engine) -> Arc<LoadedGeneration> {
    let manifest = Arc::new(example("hostile").manifest);
    engine.host.load(GenerationNumber(2), manifest, of_the_next_version()).await.unwrap()
}

// GST-1, GST-6
#[tokio::test]
async fn each_call_of_another_version_gets_and_returns_what_the_host_means() {
    let engine = Engine::start();
    let generation = next(&engine).await;
    let before = deadline(AMPLE);
    let output = flow(&generation, &event("hostile", &[], "grüße")).await.unwrap().unwrap();
    assert_eq!(output.note.as_deref(), Some("grüße"));
    let [message] = &output.messages[..] else { panic!("{output:?}") };
    assert_eq!((message.destination.as_str(), &message.body[..]), ("sink", "grüße".as_bytes()));
    assert_eq!(
        (message.content_type.as_str(), message.ordering_key.as_deref()),
        ("application/json", Some("delivery-1"))
    );
    // Its clock shows when the event was received.
    assert_eq!(message.due, Due::After(Duration::from_millis(1_500)));

    let nothing = generation.prepare(&event("hostile", &[], ""), 1, before).await.unwrap();
    assert_eq!(nothing, Prepared::Ignore { reason: "of no interest".to_owned() });
    let failure = flow(&generation, &event("hostile", &[], "!later")).await.unwrap_err();
    assert_eq!(failure, Failure::new(FailureClass::Retry { delay: Some(Duration::from_secs(7)) }, "!later"));

    let asking = event("hostile", &[], "?a");
    let Prepared::Run { state, reads } = generation.prepare(&asking, 1, before).await.unwrap() else { panic!() };
    assert_eq!((reads.len(), reads[0].reader.as_str(), &reads[0].keys[..]), (1, "records", &["a".to_owned()][..]));
    let reader: Reader = generation.manifest().reader("records").unwrap().clone();
    let request = generation.encode_read(&reader, &reads[0].keys, asking.received_at, before).await.unwrap();
    assert_eq!((request.method.as_str(), request.path.as_str(), &request.body[..]), ("POST", "/records", &b"a"[..]));
    let response =
        ReadResponse { status: http::StatusCode::OK, headers: http::HeaderMap::new(), body: Bytes::from("its record") };
    let decoded = generation.decode_read(&reader, &reads[0].keys, response, asking.received_at, before).await.unwrap();
    let value = Some(decoded.records["a"].clone());
    let readings = [Reading { reader: reader.name, key: "a".to_owned(), value }];
    let output = generation.run(&asking, 1, state, &readings, before).await.unwrap();
    assert_eq!(output.note.as_deref(), Some("its record"));

    let action = DueAction {
        id: MessageId::from_bytes([7; 16]),
        name: "remind".to_owned(),
        body: Bytes::new(),
        due_at: asking.received_at,
    };
    let applied = generation.apply(&asking, &action, 1, before).await.unwrap();
    assert_eq!(applied, FlowOutput { note: Some("remind".to_owned()), ..FlowOutput::NOTHING });
}

// GST-6
#[tokio::test]
async fn generations_of_two_versions_are_called_side_by_side() {
    let engine = Engine::start();
    let (first, second) = (engine.load("hostile", |_| ()).await, next(&engine).await);
    for number in 0..8 {
        let text = format!("number {number}");
        let note = event("hostile", &[], json!({ "do": "note", "text": text.as_str() }).to_string());
        let said = event("hostile", &[], text.clone());
        let (of_first, of_second) = tokio::join!(flow(&first, &note), flow(&second, &said));
        assert_eq!(of_first.unwrap().unwrap().note.as_ref(), Some(&text));
        assert_eq!(of_second.unwrap().unwrap().note.as_ref(), Some(&text));
    }
    // Limits and what they are told by are the host's own, and one for both.
    let mut starved = example("hostile").manifest;
    starved.limits.fuel = 100;
    let starved = engine.host.load(GenerationNumber(3), Arc::new(starved), of_the_next_version()).await.unwrap();
    let failure = flow(&starved, &event("hostile", &[], "x")).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::OutOfFuel, "{failure}");
    let mut elsewhere = example("hostile").manifest;
    elsewhere.destinations = vec!["elsewhere".parse().unwrap()];
    let elsewhere = engine.host.load(GenerationNumber(4), Arc::new(elsewhere), of_the_next_version()).await.unwrap();
    let failure = flow(&elsewhere, &event("hostile", &[], "x")).await.unwrap_err();
    expect!["bad_output: emitted a message to `sink`, which is not in the manifest's `destinations` [elsewhere]"]
        .assert_eq(&failure.to_string());
}

// GST-4, GST-6
#[tokio::test]
async fn a_component_is_held_against_the_version_that_it_was_built_for() {
    let surface = check(&of_the_next_version(), &[ImportName::Log, ImportName::Clock]).unwrap();
    assert_eq!(surface.contract, ContractVersion::V0_2);
    assert_eq!(surface.exports, ["forebay:connector/flow@0.2.0"]);
    let undeclared = check(&of_the_next_version(), &[ImportName::Log]).unwrap_err();
    expect![[r#"imports `forebay:connector/clock@0.2.0`, which pack.toml does not declare: add "clock" to `imports`"#]]
        .assert_eq(&undeclared.to_string());
    // By its names it is for the later version, by its types for the first.
    let renamed = replaced(&HARMLESS.component(), b"@0.1.0", b"@0.2.0");
    let manifest = Arc::new(example("hostile").manifest);
    let misfit = Engine::start().host.load(GenerationNumber(1), manifest, renamed.into()).await.unwrap_err();
    expect!["the component does not fit forebay:connector@0.2.0: failed to convert function to given type: type mismatch with parameters: expected 2-tuple, found 1-tuple. Build it against the contract that this host serves"].assert_eq(&misfit.to_string());
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut replaced = bytes.to_vec();
    for at in 0..=bytes.len() - from.len() {
        if bytes[at..].starts_with(from) {
            replaced[at..at + to.len()].copy_from_slice(to);
        }
    }
    replaced
}
