//! Hostile guests written by hand, which no compiler would make: each does one thing wrong in its own place, fails
//! alone under its own class, and leaves the next call nothing.

use expect_test::{Expect, expect};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::*;
use crate::model::pack::ImportName;

/// A connector, part by part in WebAssembly's text form. Left as it is, it does nothing, and does it right.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    /// What it imports beside nothing.
    imports: &'static str,
    /// Its memory.
    memory: &'static str,
    /// Functions and globals of its own; a `(start ..)`.
    own: &'static str,
    /// The body of `cabi_realloc`, which the host calls to place what it passes.
    realloc: &'static str,
    /// The body of `prepare`: the address of the result.
    prepare: &'static str,
    /// The body of `run`: the address of the result.
    run: &'static str,
    /// The body of what is called once the host has taken the result of `run`.
    after_run: &'static str,
}

/// Gives away its memory from 64 KiB on.
const BUMP: &str = "(local $at i32)
    global.get $free
    local.set $at
    global.get $free
    local.get 3
    i32.add
    i32.const 7
    i32.add
    i32.const -8
    i32.and
    global.set $free
    local.get $at";

/// A result at 1,024 that is right: `prepare` says `run`, with no state and no reads; `run` says nothing at all.
const PREPARED: &str = "(i32.store8 offset=8 (i32.const 1024) (i32.const 1)) (i32.const 1024)";
const NOTHING: &str = "(i32.const 2048)";

pub(super) const HARMLESS: Parts = Parts {
    imports: "",
    memory: "(memory (export \"memory\") 2)",
    own: "",
    realloc: BUMP,
    prepare: PREPARED,
    run: NOTHING,
    after_run: "",
};

impl Parts {
    pub(super) fn component(&self) -> Bytes {
        let Parts { imports, memory, own, realloc, prepare, run, after_run } = self;
        let flow = "forebay:connector/flow@0.1.0";
        let text = format!(
            r#"(module
                {imports}
                {memory}
                (global $free (mut i32) (i32.const 65536))
                {own}
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {realloc})
                (func (export "{flow}#prepare") (param i32) (result i32) {prepare})
                (func (export "{flow}#encode-read") (param i32 i32 i32 i32) (result i32) unreachable)
                (func (export "{flow}#decode-read") (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)
                (func (export "{flow}#run") (param i32) (result i32) {run})
                (func (export "cabi_post_{flow}#run") (param i32) {after_run})
                (func (export "{flow}#apply")
                    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32) (result i32) unreachable))"#
        );
        let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut resolve = Resolve::default();
        let package = resolve.push_source("forebay-connector.wit", ContractVersion::BUILT.text()).unwrap();
        let world = resolve.select_world(&[package], Some(ContractVersion::WORLD)).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).unwrap();
        ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap().into()
    }

    async fn load(&self, engine: &Engine) -> Result<Arc<LoadedGeneration>, LoadError> {
        let mut manifest = example("hostile").manifest;
        manifest.imports = ImportName::ALL.to_vec();
        // Enough for a few milliseconds.
        manifest.limits.fuel = 10_000_000;
        engine.host.load(GenerationNumber(1), Arc::new(manifest), self.component()).await
    }

    /// Runs an event through it, and then one through a healthy neighbour in the same single place of the pool.
    async fn outcome(&self) -> Result<Option<FlowOutput>, Failure> {
        let engine = Engine::with_instances(1);
        let generation = self.load(&engine).await.unwrap();
        let outcome = flow(&generation, &event("hostile", &[("x", "y")], "{}")).await;
        let neighbour = engine.load("hostile", |_| ()).await;
        let note = event("hostile", &[], r#"{"do":"note","text":"fine"}"#);
        assert_eq!(flow(&neighbour, &note).await.unwrap().unwrap().note.as_deref(), Some("fine"));
        outcome
    }

    async fn fails(&self, class: FailureClass, expected: Expect) {
        let failure = self.outcome().await.unwrap_err();
        assert_eq!(failure.class, class, "{failure}");
        expected.assert_eq(&failure.message);
    }

    async fn is_refused(&self, expected: Expect) {
        let engine = Engine::with_instances(1);
        expected.assert_eq(&self.load(&engine).await.unwrap_err().to_string());
    }
}

#[tokio::test]
async fn the_parts_by_themselves_are_a_connector_that_does_nothing() {
    let output = HARMLESS.outcome().await.unwrap().unwrap();
    assert_eq!(output, FlowOutput { note: None, messages: Vec::new(), actions: Vec::new() });
}

// GST-2, GST-6
#[tokio::test]
async fn a_start_that_does_not_end_is_refused_before_it_serves() {
    let own = "(func $spin (loop $again (br $again))) (start $spin)";
    Parts { own, ..HARMLESS }.is_refused(expect!["the component cannot be instantiated: its initialization takes more fuel than a call has. Do less in it, or raise `limits.fuel`"]).await;
    let own = "(func $die unreachable) (start $die)";
    Parts { own, ..HARMLESS }.is_refused(expect!["the component cannot be instantiated: it ends at its start: wasm trap: wasm `unreachable` instruction executed"]).await;
}

// GST-2
#[tokio::test]
async fn a_start_that_knows_that_it_is_only_tried_fails_the_event_and_nobody_else() {
    // When it is tried, the clock stands at 0.
    let imports = r#"(import "forebay:connector/clock@0.1.0" "now" (func $now (result i64)))"#;
    let own = "(func $wait (loop $again (br_if $again (i64.ne (call $now) (i64.const 0))))) (start $wait)";
    Parts { imports, own, ..HARMLESS }
        .fails(
            FailureClass::OutOfFuel,
            expect!["used up its 10000000 units of fuel in wait: do less, or raise `limits.fuel`"],
        )
        .await;
}

// GST-2
#[tokio::test]
async fn a_loop_where_the_host_calls_back_runs_out_of_fuel() {
    let realloc = "(loop $again (br $again)) unreachable";
    Parts { realloc, ..HARMLESS }
        .fails(FailureClass::OutOfFuel, expect!["used up its 10000000 units of fuel: do less, or raise `limits.fuel`"])
        .await;
    let after_run = "(loop $again (br $again))";
    Parts { after_run, ..HARMLESS }
        .fails(FailureClass::OutOfFuel, expect!["used up its 10000000 units of fuel: do less, or raise `limits.fuel`"])
        .await;
}

// GST-3
#[tokio::test]
async fn a_trap_once_the_result_was_taken_fails_the_call() {
    Parts { after_run: "unreachable", ..HARMLESS }
        .fails(
            FailureClass::Trap,
            expect!["aborted without a message (a panic that the SDK does not report, or an abort)"],
        )
        .await;
}

// GST-2
#[tokio::test]
async fn a_storm_of_host_calls_runs_out_of_fuel() {
    let imports = r#"(import "forebay:connector/random@0.1.0" "next" (func $next (result i64)))
        (import "forebay:connector/log@0.1.0" "write" (func $write (param i32 i32 i32)))"#;
    let run = "(loop $again (drop (call $next)) (call $write (i32.const 2) (i32.const 0) (i32.const 64)) (br $again)) unreachable";
    Parts { imports, run, ..HARMLESS }
        .fails(FailureClass::OutOfFuel, expect!["used up its 10000000 units of fuel: do less, or raise `limits.fuel`"])
        .await;
}

// GST-3
#[tokio::test]
async fn a_recursion_without_end_meets_the_end_of_the_stack() {
    let own = "(func $deeper (param i32) (result i32) (i32.add (call $deeper (local.get 0)) (i32.const 1)))";
    Parts { own, run: "(call $deeper (i32.const 0))", ..HARMLESS }.fails(FailureClass::Trap, expect!["used up its stack (a recursion without end?) in deeper, called from deeper, called from deeper, called from deeper, called from deeper, called from deeper, .."]).await;
}

// GST-3
#[tokio::test]
async fn a_storm_of_growing_memory_is_refused_again_and_again() {
    let storm = "(loop $again (drop (memory.grow (i32.const 1))) (br $again)) unreachable";
    Parts { run: storm, ..HARMLESS }
        .fails(FailureClass::OutOfFuel, expect!["used up its 10000000 units of fuel: do less, or raise `limits.fuel`"])
        .await;
    // It takes all that it can get, and trusts that it was given more.
    let greedy = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    Parts { run: greedy, ..HARMLESS }
        .fails(
            FailureClass::Memory,
            expect!["asked for 16908288 bytes of memory in all; `limits.memory_mib` allows 16777216"],
        )
        .await;
}

// GST-3
#[tokio::test]
async fn a_table_grows_to_its_bound() {
    let own = "(table $t 1 funcref)";
    let run = "(loop $again (br_if $again (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)))) unreachable";
    Parts { own, run, ..HARMLESS }
        .fails(FailureClass::Memory, expect!["asked for a table of 20001 entries, which is more than the host allows"])
        .await;
}

// GST-3, GST-6
#[tokio::test]
async fn what_is_too_large_from_the_start_is_refused_before_it_serves() {
    let memory = "(memory (export \"memory\") 4096)";
    Parts { memory, ..HARMLESS }.is_refused(expect!["the component cannot be instantiated: asked for 268435456 bytes of memory in all; `limits.memory_mib` allows 16777216"]).await;
    Parts { own: "(table 1000000 funcref)", ..HARMLESS }.is_refused(expect!["the component cannot be compiled: module table does not fit in pooling allocator requirements: table index 0 has a minimum element size of 1000000 which exceeds the limit of 20000"]).await;
    let own = "(table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref)";
    Parts { own, ..HARMLESS }.is_refused(expect!["the component cannot be compiled: module table does not fit in pooling allocator requirements: defined tables count of 5 exceeds the per-instance limit of 1"]).await;
    Parts { own: "(memory $second 1)", ..HARMLESS }
        .is_refused(expect![
            "the component cannot be compiled: failed to parse WebAssembly module: multiple memories (at offset 0x3ba)"
        ])
        .await;
}

// GST-3
#[tokio::test]
async fn what_is_returned_out_of_bounds_or_of_the_wrong_shape_is_bad_output() {
    let bad = |run: &'static str, expected: Expect| async move {
        Parts { run, ..HARMLESS }.fails(FailureClass::BadOutput, expected).await;
    };
    // A result beyond the memory's end.
    bad(
        "(i32.const -8)",
        expect!["the host cannot read what it passed: pointer out of bounds of memory; `limits.output_kib` is 256"],
    )
    .await;
    // Neither a success nor a failure.
    bad(
        "(i32.store8 (i32.const 2048) (i32.const 7)) (i32.const 2048)",
        expect!["the host cannot read what it passed: invalid expected discriminant; `limits.output_kib` is 256"],
    )
    .await;
    // A note that is said to have four gigabytes.
    bad(
        "(i32.store8 offset=8 (i32.const 2048) (i32.const 1)) (i32.store offset=16 (i32.const 2048) (i32.const -1)) (i32.const 2048)",
        expect!["the host cannot read what it passed: string pointer/length out of bounds of memory; `limits.output_kib` is 256"],
    )
    .await;
    // A note that is not UTF-8.
    bad(
        "(i32.store8 offset=8 (i32.const 2048) (i32.const 1)) (i32.store offset=12 (i32.const 2048) (i32.const 4096))
         (i32.store offset=16 (i32.const 2048) (i32.const 1)) (i32.store8 (i32.const 4096) (i32.const 255)) (i32.const 2048)",
        expect!["the host cannot read what it passed: invalid utf-8 sequence of 1 bytes from index 0; `limits.output_kib` is 256"],
    )
    .await;
    // A quarter of a thousand million messages.
    bad("(i32.store offset=24 (i32.const 2048) (i32.const 0x10000000)) (i32.const 2048)", expect!["the host cannot read what it passed: list pointer/length out of bounds of memory; `limits.output_kib` is 256"]).await;
    // A list whose elements do not lie where such elements lie.
    bad(
        "(i32.store offset=20 (i32.const 2048) (i32.const 3)) (i32.store offset=24 (i32.const 2048) (i32.const 1)) (i32.const 2048)",
        expect!["the host cannot read what it passed: list pointer is not aligned; `limits.output_kib` is 256"],
    )
    .await;
}

// GST-3
#[tokio::test]
async fn a_place_for_what_the_host_passes_that_is_none_fails_the_call() {
    let failure = Parts { realloc: "(i32.const -16)", ..HARMLESS }.outcome().await.unwrap_err();
    assert_eq!(failure.class, FailureClass::BadOutput);
    expect!["the host cannot read what it passed: realloc return: beyond end of memory; `limits.output_kib` is 256"]
        .assert_eq(&failure.message);
}

// GST-3
#[tokio::test]
async fn many_small_things_are_bounded_before_the_host_copies_them() {
    // As many empty messages as the memory holds at once: each costs the host more than the guest.
    let engine = Engine::with_instances(1);
    let run = "(drop (memory.grow (i32.const 1000)))
        (i32.store offset=20 (i32.const 2048) (i32.const 65536))
        (i32.store offset=24 (i32.const 2048) (i32.const 500000)) (i32.const 2048)";
    let mut manifest = example("hostile").manifest;
    manifest.limits.memory_bytes = 256 * 1024 * 1024;
    let component = Parts { run, ..HARMLESS }.component();
    let generation = engine.host.load(GenerationNumber(1), Arc::new(manifest), component).await.unwrap();
    let failure = flow(&generation, &event("hostile", &[], "{}")).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::BadOutput);
    expect!["the host cannot read what it passed: too much data is being copied between the host and the guest: fuel allocated for hostcalls has been exhausted; `limits.output_kib` is 256"].assert_eq(&failure.message);
}

/// The contract's types do not contain themselves: what a guest returns is nested no deeper than they are.
// GST-3
#[test]
fn what_a_guest_returns_is_nested_no_deeper_than_the_contract() {
    use wit_parser::{Type, TypeDefKind};
    fn depth(resolve: &Resolve, found: &Type) -> usize {
        let Type::Id(id) = found else { return 1 };
        let deepest = |types: Vec<Type>| types.iter().map(|inner| depth(resolve, inner)).max().unwrap_or(0);
        1 + match &resolve.types[*id].kind {
            TypeDefKind::Record(record) => deepest(record.fields.iter().map(|field| field.ty).collect()),
            TypeDefKind::Variant(variant) => deepest(variant.cases.iter().filter_map(|case| case.ty).collect()),
            TypeDefKind::Tuple(tuple) => deepest(tuple.types.clone()),
            TypeDefKind::Result(result) => deepest([result.ok, result.err].into_iter().flatten().collect()),
            TypeDefKind::Option(inner) | TypeDefKind::List(inner) | TypeDefKind::Type(inner) => deepest(vec![*inner]),
            TypeDefKind::Enum(_) => 0,
            other => panic!("a type of another kind: {other:?}"),
        }
    }
    let mut resolve = Resolve::default();
    let package = resolve.push_source("forebay-connector.wit", ContractVersion::BUILT.text()).unwrap();
    let world = resolve.select_world(&[package], Some(ContractVersion::WORLD)).unwrap();
    let exported = resolve.worlds[world].exports.values().filter_map(|item| match item {
        wit_parser::WorldItem::Interface { id, .. } => Some(&resolve.interfaces[*id]),
        _ => None,
    });
    let results = exported.flat_map(|interface| interface.functions.values()).filter_map(|function| function.result);
    assert_eq!(results.map(|result| depth(&resolve, &result)).max(), Some(9));
}
