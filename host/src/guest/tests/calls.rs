//! The hostile guest: each way to misbehave ends as its own class of failure, with a text that helps, and hurts nobody.

use std::io::Write;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::model::ids::MessageId;
use crate::model::message::DueAction;

fn hostile(deed: serde_json::Value) -> Event {
    event("hostile", &[], deed.to_string())
}

async fn failure(generation: &LoadedGeneration, deed: serde_json::Value) -> Failure {
    flow(generation, &hostile(deed)).await.unwrap_err()
}

async fn fails_with(generation: &LoadedGeneration, deed: serde_json::Value, expected: Expect) {
    expected.assert_eq(&failure(generation, deed).await.to_string());
}

// GST-2
#[tokio::test]
async fn a_guest_that_loops_runs_out_of_fuel_and_says_where_it_was() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    for deed in ["loop", "prepare_loop"] {
        let failure = failure(&generation, json!({ "do": deed })).await;
        assert_eq!(failure.class, FailureClass::OutOfFuel);
        assert!(failure.message.contains("200000000 units of fuel in hostile::spin"), "{failure}");
    }
}

// GST-2
#[tokio::test]
async fn a_guest_that_loops_ends_at_the_deadline_while_others_go_on() {
    let engine = Engine::start();
    let endless = engine.load("hostile", |manifest| manifest.limits.fuel = u64::MAX / 2).await;
    let wedged = hostile(json!({ "do": "loop" }));
    let healthy = hostile(json!({ "do": "note", "text": "fine" }));
    // One thread: were the loop not interrupted, nothing else would run before its deadline, nor would that be seen.
    let others = async {
        let mut done = 0;
        for _ in 0..20 {
            flow(&endless, &healthy).await.unwrap();
            done += 1;
        }
        done
    };
    let (wedged, others) = tokio::join!(flow_within(&endless, &wedged, Duration::from_millis(400)), others);
    assert_eq!(others, 20);
    let failure = wedged.unwrap_err();
    assert_eq!(failure.class, FailureClass::Deadline);
    assert!(failure.message.contains("in hostile::spin"), "{failure}");
}

// GST-3
#[tokio::test]
async fn memory_is_bounded_and_a_refusal_is_named() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let failure = failure(&generation, json!({ "do": "allocate" })).await;
    assert_eq!(failure.class, FailureClass::Memory);
    assert!(failure.message.contains("`limits.memory_mib` allows 16777216"), "{failure}");
    let careful = flow(&generation, &hostile(json!({ "do": "allocate_carefully" }))).await.unwrap().unwrap();
    assert_eq!(careful.note.as_deref(), Some("went on without"));
}

#[tokio::test]
async fn a_panic_is_shown_with_its_message_and_place() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    for deed in ["panic", "prepare_panic"] {
        let failure = failure(&generation, json!({ "do": deed, "message": "the moon is full" })).await;
        assert_eq!(failure.class, FailureClass::Panic);
        assert!(failure.message.contains("the moon is full"), "{failure}");
        assert!(failure.message.contains("hostile/src/lib.rs:"), "{failure}");
    }
}

#[tokio::test]
async fn a_guest_that_ends_without_a_word_is_described_by_where_it_was() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let failure = failure(&generation, json!({ "do": "abort" })).await;
    assert_eq!(failure.class, FailureClass::Trap);
    assert!(failure.message.starts_with("aborted without a message"), "{failure}");
    assert!(failure.message.contains("hostile::Deed::perform"), "{failure}");
}

#[tokio::test]
async fn a_recursion_without_end_is_named() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let failure = failure(&generation, json!({ "do": "recurse" })).await;
    // Which stack ends first, the host's bound or the guest's own, is the compiler's business.
    assert!(matches!(failure.class, FailureClass::Trap), "{failure}");
    assert!(!failure.message.contains("unreachable"), "{failure}");
    assert!(failure.message.contains("hostile::recurse"), "{failure}");
}

// GST-3
#[tokio::test]
async fn what_comes_back_is_bounded_before_the_host_copies_it() {
    let engine = Engine::start();
    let hundred_megabytes = json!({ "do": "return", "bytes": 100_000_000 });
    let small = engine.load("hostile", |_| ()).await;
    assert_eq!(failure(&small, hundred_megabytes.clone()).await.class, FailureClass::Memory);
    let large = engine.load("hostile", |manifest| manifest.limits.memory_bytes = 400 * 1024 * 1024).await;
    fails_with(&large, hundred_megabytes, expect!["bad_output: the host cannot read what it passed: too much data is being copied between the host and the guest: fuel allocated for hostcalls has been exhausted; `limits.output_kib` is 256"]).await;
    fails_with(
        &small,
        json!({ "do": "return", "bytes": 300_000 }),
        expect!["bad_output: returned 300014 bytes: `limits.output_kib` allows 262144"],
    )
    .await;
    fails_with(
        &small,
        json!({ "do": "prepare_state", "bytes": 300_000 }),
        expect!["bad_output: returned 300023 bytes: `limits.output_kib` allows 262144"],
    )
    .await;
}

// GST-3
#[tokio::test(flavor = "current_thread")]
async fn a_gigabyte_of_log_is_cut_to_the_bound_and_counted() {
    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);
    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let captured = Captured::default();
    let writer = captured.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let output = flow(&generation, &hostile(json!({ "do": "log", "lines": 1_000, "bytes": 1_000_000 }))).await;
    drop(guard);
    assert_eq!(output.unwrap().unwrap().note.as_deref(), Some("logged"));
    let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
    assert!(text.len() < 8 * 1024, "{} bytes", text.len());
    assert!(text.contains("log lines were cut") && text.contains("lines=1000 bytes=999995904"), "{text}");
}

#[tokio::test]
async fn a_guests_own_failures_keep_their_class_and_reason() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    fails_with(&generation, json!({ "do": "reject", "reason": "not ours" }), expect![["rejected: not ours"]]).await;
    fails_with(&generation, json!({ "do": "invalid", "reason": "no id" }), expect![["invalid_input: no id"]]).await;
    fails_with(&generation, json!({ "do": "other", "reason": "odd" }), expect![["retry: odd"]]).await;
    fails_with(&generation, json!({ "do": "other", "reason": "" }), expect![["retry: the guest gave no reason"]]).await;
    let retry = failure(&generation, json!({ "do": "retry", "delay_ms": 1_500, "reason": "busy" })).await;
    assert_eq!(retry.class, FailureClass::Retry { delay: Some(Duration::from_millis(1_500)) });
    let unreadable = flow(&generation, &event("hostile", &[], "{")).await.unwrap_err();
    assert_eq!(unreadable.class, FailureClass::InvalidInput);
}

// GST-4
#[tokio::test]
async fn a_flow_emits_what_its_manifest_allows_and_nothing_else() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let emit = |count: u32, destination: &str| json!({ "do": "emit", "count": count, "destination": destination });
    let most = flow(&generation, &hostile(emit(8, "sink"))).await.unwrap().unwrap();
    assert_eq!(most.messages.len(), 8);
    fails_with(
        &generation,
        emit(9, "sink"),
        expect![["bad_output: emitted 9 messages and actions: `limits.messages` is 8"]],
    )
    .await;
    fails_with(
        &generation,
        emit(1, "elsewhere"),
        expect!["bad_output: emitted a message to `elsewhere`, which is not in the manifest's `destinations` [sink]"],
    )
    .await;
    let fields = |content_type: &str, header: &str, value: &str| json!({ "do": "emit_fields", "content_type": content_type, "header": header, "value": value });
    assert!(flow(&generation, &hostile(fields("text/plain", "X-Kind", "a"))).await.is_ok());
    let (long, longer) = ("x".repeat(1_025), "x".repeat(8 * 1_024 + 1));
    for (content_type, header, value) in [
        (long.as_str(), "x-kind", "a"),
        ("text/plain", &long[..257], "a"),
        ("text/plain", "x-kind", &longer),
        ("", "x-kind", "a"),
        ("text/plain\r\nx: y", "x-kind", "a"),
        ("text/plain", "x kind", "a"),
        ("text/plain", "x-kind", "a\r\nb: c"),
        ("text/plain", "Host", "internal"),
        ("text/plain", "webhook-signature", "v1,forged"),
    ] {
        let failure = failure(&generation, fields(content_type, header, value)).await;
        assert_eq!(failure.class, FailureClass::BadOutput, "{content_type:?} {header:?} {value:?}");
    }
    fails_with(
        &generation,
        json!({ "do": "act", "key": "not visible" }),
        expect!["bad_output: emitted something whose idempotency key is not of visible ASCII characters"],
    )
    .await;
}

#[tokio::test]
async fn times_of_messages_are_kept_and_bounded() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let later = |after_ms: u64, at_ms: i64, expire_at_ms: i64| json!({ "do": "emit_later", "after_ms": after_ms, "at_ms": at_ms, "expire_at_ms": expire_at_ms });
    let output = flow(&generation, &hostile(later(5, 1_800_000_000_000, 1_900_000_000_000))).await.unwrap().unwrap();
    assert_eq!(output.messages[0].due, Due::After(Duration::from_millis(5)));
    assert_eq!(output.messages[1].due, Due::At(Timestamp::from_millis(1_800_000_000_000)));
    assert_eq!(output.messages[2].expire_at, Some(Timestamp::from_millis(1_900_000_000_000)));
    for deed in [later(u64::MAX, 0, 0), later(0, i64::MAX, 0), later(0, -1, 0), later(0, 0, i64::MIN)] {
        assert_eq!(failure(&generation, deed).await.class, FailureClass::BadOutput);
    }
}

// GST-1, GST-2
#[tokio::test]
async fn an_action_is_emitted_and_applied_under_the_limits_of_every_call() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let act = |deed: Value| hostile(json!({ "do": "act", "after_ms": 7, "key": "k", "deed": deed }));
    let applied = async |deed: Value| {
        let event = act(deed);
        let output = flow(&generation, &event).await.unwrap().unwrap();
        let [EmittedAction { name, body, idempotency_key, due }] = &output.actions[..] else { panic!("one action") };
        assert_eq!((name.as_str(), idempotency_key.as_deref()), ("later", Some("k")));
        assert_eq!(*due, Due::After(Duration::from_millis(7)));
        let action = DueAction {
            id: MessageId::from_bytes([5; 16]),
            name: name.clone(),
            body: body.clone(),
            due_at: Timestamp::from_millis(1_800_000_000_000),
        };
        generation.apply(&event, &action, 3, deadline(AMPLE)).await
    };
    let output = applied(json!({ "do": "until", "attempt": 3 })).await.unwrap();
    assert_eq!(output.note.as_deref(), Some("attempt 3"));
    let drawn = applied(json!({ "do": "draw" })).await.unwrap();
    assert!(drawn.note.as_ref().unwrap().starts_with("1800000000000 "), "its time is when it was due");
    assert_eq!(applied(json!({ "do": "draw" })).await.unwrap(), drawn, "and its chance its own");
    let failure = applied(json!({ "do": "loop" })).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::OutOfFuel);
    let failure = applied(json!({ "do": "emit", "count": 1, "destination": "flow:hostile" })).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::BadOutput, "nobody acts but by an action");
}

// GST-5
#[tokio::test]
async fn the_same_event_draws_the_same_and_another_event_draws_otherwise() {
    let engine = Engine::start();
    let generation = engine.load("hostile", |_| ()).await;
    let mut draw = hostile(json!({ "do": "draw" }));
    let first = flow(&generation, &draw).await.unwrap();
    assert_eq!(flow(&generation, &draw).await.unwrap(), first);
    let deadline = deadline(AMPLE);
    let Prepared::Run { state, .. } = generation.prepare(&draw, 7, deadline).await.unwrap() else { panic!("ignored") };
    assert_eq!(Some(generation.run(&draw, 7, state, &[], deadline).await.unwrap()), first);
    draw.id = EventId::from_bytes([9; 16]);
    let other = flow(&generation, &draw).await.unwrap();
    assert_ne!(other, first);
    assert!(other.unwrap().note.unwrap().starts_with("1700000000000 "));
}

// GST-1
#[tokio::test]
async fn a_full_pool_makes_calls_wait_and_fails_none() {
    let engine = Engine::with_instances(1);
    let generation = engine.load("hostile", |_| ()).await;
    let event = Arc::new(hostile(json!({ "do": "note", "text": "fine" })));
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let (generation, event) = (Arc::clone(&generation), Arc::clone(&event));
            crate::env::spawn("call", async move { flow(&generation, &event).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_pool_that_stays_full_is_the_hosts_failure() {
    let engine = Engine::with_instances(1);
    let generation = engine.load("hostile", |manifest| manifest.limits.fuel = u64::MAX / 2).await;
    let (wedged, note) = (hostile(json!({ "do": "prepare_loop" })), hostile(json!({ "do": "note", "text": "" })));
    let short = Duration::from_millis(200);
    let (wedged, waiting) =
        tokio::join!(flow_within(&generation, &wedged, short * 4), flow_within(&generation, &note, short));
    assert_eq!(wedged.unwrap_err().class, FailureClass::Deadline);
    assert_eq!(waiting.unwrap_err().class, FailureClass::NotRun);
}

// GST-3
#[tokio::test]
async fn a_pack_has_no_more_calls_at_once_than_it_wants_and_its_neighbours_wait_for_none_of_them() {
    let engine = Engine::with_instances(4);
    let narrow = engine
        .load("hostile", |manifest| {
            manifest.limits.fuel = u64::MAX / 2;
            manifest.limits.concurrency = 1;
        })
        .await;
    let neighbour = engine.load("hostile", |_| ()).await;
    let (wedged, note) = (hostile(json!({ "do": "prepare_loop" })), hostile(json!({ "do": "note", "text": "" })));
    let short = Duration::from_millis(200);
    let (wedged, waiting, other) = tokio::join!(
        flow_within(&narrow, &wedged, short * 4),
        flow_within(&narrow, &note, short),
        flow_within(&neighbour, &note, short * 2)
    );
    assert_eq!(wedged.unwrap_err().class, FailureClass::Deadline);
    let waiting = waiting.unwrap_err();
    assert_eq!(waiting.class, FailureClass::NotRun);
    assert!(waiting.message.contains("other calls"), "{waiting}");
    other.unwrap();
}

#[tokio::test]
async fn without_room_for_a_pool_instances_are_allocated_one_by_one() {
    // A pool of this many would take more addresses than there are.
    let engine = Engine::with_instances(1_000_000);
    let generation = engine.load("hostile", |_| ()).await;
    let note = hostile(json!({ "do": "note", "text": "fine" }));
    assert!(flow(&generation, &note).await.is_ok());
    assert_eq!(failure(&generation, json!({ "do": "allocate" })).await.class, FailureClass::Memory);
}

// GST-1
#[tokio::test]
async fn a_call_that_ended_badly_leaves_nothing_to_the_next() {
    let engine = Engine::with_instances(1);
    let generation = engine.load("hostile", |_| ()).await;
    for deed in [json!({ "do": "allocate" }), json!({ "do": "panic", "message": "" }), json!({ "do": "recurse" })] {
        assert!(flow(&generation, &hostile(deed)).await.is_err());
        let next = flow(&generation, &hostile(json!({ "do": "note", "text": "fine" }))).await.unwrap().unwrap();
        assert_eq!(next.note.as_deref(), Some("fine"));
    }
}

// GST-1, GST-5: in memory that its place keeps, and in memory that it gives back.
#[test]
fn an_instance_finds_nothing_of_the_one_that_had_its_place_before() {
    let cache = target_directory().join("guest-cache");
    let engine = engine::start(&GuestOptions { instances_max: 1, ..options(cache) }).unwrap();
    let module = |text: &str| wasmtime::Module::new(&engine, wat::parse_str(text).unwrap()).unwrap();
    const LAST: usize = 1_500_000;
    let with_data = module(&format!(
        r#"(module (memory (export "memory") 32) (data (i32.const 0) "first") (data (i32.const {LAST}) "last"))"#
    ));
    let without = module(r#"(module (memory (export "memory") 40))"#);
    for round in 0..16 {
        let mut store = wasmtime::Store::new(&engine, ());
        store.set_fuel(1_000_000).unwrap();
        store.set_epoch_deadline(1);
        let has_data = round % 3 != 2;
        let instance = wasmtime::Instance::new(&mut store, if has_data { &with_data } else { &without }, &[]).unwrap();
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        let found = memory.data_mut(&mut store);
        if has_data {
            assert_eq!((&found[..5], &found[LAST..LAST + 4]), (&b"first"[..], &b"last"[..]), "round {round}");
            found[..5].fill(0);
            found[LAST..LAST + 4].fill(0);
        }
        assert!(found.iter().all(|byte| *byte == 0), "round {round}");
        found.fill(0xA5);
    }
}
