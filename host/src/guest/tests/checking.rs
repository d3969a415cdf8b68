//! Components that do not fit, and what their authors are told.

use expect_test::{Expect, expect};

use super::*;
use crate::guest::check::check;
use crate::model::pack::ImportName;

/// What a connector must export, with functions of no parameters.
const HOLLOW_FLOW: &str = r#"
    (core module $code (func (export "f")))
    (core instance $instance (instantiate $code))
    (func $f (canon lift (core func $instance "f")))
    (instance $flow
        (export "prepare" (func $f)) (export "encode-read" (func $f)) (export "decode-read" (func $f))
        (export "run" (func $f)) (export "apply" (func $f)))
    (export "forebay:connector/flow@0.1.0" (instance $flow))
"#;

fn refused(text: &str, expected: Expect) {
    let component = wat::parse_str(text).unwrap();
    expected.assert_eq(&check(&component, &ImportName::ALL).unwrap_err().to_string());
}

fn refused_import(name: &str, function: &str, expected: Expect) {
    refused(
        &format!(r#"(component (import "{name}" (instance (export "{function}" (func)))) {HOLLOW_FLOW})"#),
        expected,
    );
}

// GST-6
#[test]
fn what_is_no_component_is_named() {
    refused(
        "(module)",
        expect![
            "this is a core WebAssembly module, not a component: build it with `forebay pack build`, which makes one of it"
        ],
    );
    let bytes = |bytes: &[u8], expected: Expect| expected.assert_eq(&check(bytes, &[]).unwrap_err().to_string());
    bytes(b"", expect!["this is not WebAssembly: a component begins with the bytes 00 61 73 6d 0d 00 01 00"]);
    bytes(b"#!/bin/sh", expect!["this is not WebAssembly: a component begins with the bytes 00 61 73 6d 0d 00 01 00"]);
    let whole = wat::parse_str(format!("(component {HOLLOW_FLOW})")).unwrap();
    bytes(
        &whole[..whole.len() / 2],
        expect![
            "the component is truncated: it ends at byte 121 in the middle of a section. Copy it again, or build it again"
        ],
    );
    let mut altered = whole;
    altered[20] ^= 0xff;
    assert!(check(&altered, &[]).is_err());
}

// GST-4, GST-6
#[test]
fn an_import_that_is_not_offered_is_named_with_what_is() {
    refused_import(
        "wasi:cli/environment@0.2.3",
        "get-environment",
        expect![
            "imports `wasi:cli/environment@0.2.3`: guests have no WASI (no files, network, environment, clock). Build for wasm32-unknown-unknown, and use what the host offers: `forebay:connector/log@0.1.0`, `forebay:connector/config@0.1.0`, `forebay:connector/clock@0.1.0`, `forebay:connector/random@0.1.0`"
        ],
    );
    refused_import(
        "forebay:connector/secrets@0.1.0",
        "sign",
        expect![
            "imports `forebay:connector/secrets@0.1.0`, which this host does not offer: it offers `forebay:connector/log@0.1.0`, `forebay:connector/config@0.1.0`, `forebay:connector/clock@0.1.0`, `forebay:connector/random@0.1.0`"
        ],
    );
    refused_import(
        "acme:tools/http@1.0.0",
        "fetch",
        expect![
            "imports `acme:tools/http@1.0.0`, which this host does not offer: it offers `forebay:connector/log@0.1.0`, `forebay:connector/config@0.1.0`, `forebay:connector/clock@0.1.0`, `forebay:connector/random@0.1.0`"
        ],
    );
    refused(
        &format!(r#"(component (import "fetch" (func)) {HOLLOW_FLOW})"#),
        expect![
            "imports `fetch`, which is no interface of a package: this host offers `forebay:connector/log@0.1.0`, `forebay:connector/config@0.1.0`, `forebay:connector/clock@0.1.0`, `forebay:connector/random@0.1.0`"
        ],
    );
    refused_import(
        "forebay:connector/clock@0.1.0",
        "sleep",
        expect![
            "imports `sleep` of `forebay:connector/clock@0.1.0`, which has no such function on this host: it has now"
        ],
    );
}

// GST-6
#[test]
fn another_version_is_named_with_those_that_are_offered() {
    refused(
        r#"(component (import "forebay:connector/log@0.3.0" (instance (export "write" (func)))))"#,
        expect![
            "imports `forebay:connector/log@0.3.0`: wanted is version 0.3.0, offered is 0.1.0 or 0.2.0. Build it with an SDK for forebay:connector@0.1.0"
        ],
    );
    refused(
        r#"(component (import "forebay:connector/log@1.0.0" (instance (export "write" (func)))))"#,
        expect![
            "imports `forebay:connector/log@1.0.0`: wanted is version 1.0.0, offered is 0.1.0 or 0.2.0. Build it with an SDK for forebay:connector@0.1.0"
        ],
    );
    refused(
        r#"(component (import "forebay:connector/log" (instance (export "write" (func)))))"#,
        expect![
            "imports `forebay:connector/log`: wanted is version none, offered is 0.1.0 or 0.2.0. Build it with an SDK for forebay:connector@0.1.0"
        ],
    );
    // A version with a tag fits nothing but itself.
    refused(
        &format!("(component {})", HOLLOW_FLOW.replace("flow@0.1.0", "flow@0.1.0-rc.1")),
        expect![
            "exports `forebay:connector/flow@0.1.0-rc.1`: wanted is version 0.1.0-rc.1, offered is 0.1.0 or 0.2.0. Build it with an SDK for forebay:connector@0.1.0"
        ],
    );
    refused(
        &format!("(component {})", HOLLOW_FLOW.replace("flow@0.1.0", "flow@0.3.0")),
        expect![
            "exports `forebay:connector/flow@0.3.0`: wanted is version 0.3.0, offered is 0.1.0 or 0.2.0. Build it with an SDK for forebay:connector@0.1.0"
        ],
    );
}

// GST-6
#[test]
fn a_component_that_mixes_versions_is_refused_with_both_of_its_interfaces() {
    // Both are served, but not in one component.
    refused_import(
        "forebay:connector/log@0.2.0",
        "write",
        expect![
            "is built for two versions of the contract: it exports `forebay:connector/flow@0.1.0` and imports `forebay:connector/log@0.2.0`. Build all of it with one SDK, for forebay:connector@0.1.0"
        ],
    );
    refused_import(
        "forebay:connector/log@0.3.0",
        "write",
        expect![
            "is built for two versions of the contract: it exports `forebay:connector/flow@0.1.0` and imports `forebay:connector/log@0.3.0`. Build all of it with one SDK, for forebay:connector@0.1.0"
        ],
    );
    let second = HOLLOW_FLOW.lines().find(|line| line.contains("(export \"forebay")).unwrap();
    refused(
        &format!("(component {HOLLOW_FLOW} {})", second.replace("0.1.0", "0.2.0")),
        expect![
            "is built for two versions of the contract: it exports `forebay:connector/flow@0.1.0` and exports `forebay:connector/flow@0.2.0`. Build all of it with one SDK, for forebay:connector@0.1.0"
        ],
    );
}

// GST-4, GST-6
#[test]
fn what_one_version_offers_is_not_offered_to_components_of_another() {
    let of_the_next = HOLLOW_FLOW.replace("flow@0.1.0", "flow@0.2.0");
    let importing = |name: &str, function: &str| {
        format!(r#"(component (import "{name}" (instance (export "{function}" (func)))) {of_the_next})"#)
    };
    refused(
        &importing("forebay:connector/random@0.2.0", "next"),
        expect![
            "imports `forebay:connector/random@0.2.0`, which this host does not offer: it offers `forebay:connector/log@0.2.0`, `forebay:connector/clock@0.2.0`"
        ],
    );
    refused(
        &importing("acme:tools/http@1.0.0", "fetch"),
        expect![
            "imports `acme:tools/http@1.0.0`, which this host does not offer: it offers `forebay:connector/log@0.2.0`, `forebay:connector/clock@0.2.0`"
        ],
    );
    refused(
        &importing("forebay:connector/clock@0.2.0", "sleep"),
        expect![
            "imports `sleep` of `forebay:connector/clock@0.2.0`, which has no such function on this host: it has now"
        ],
    );
    let built_for = |text: String| check(&wat::parse_str(text).unwrap(), &[ImportName::Log]).unwrap().contract;
    assert_eq!(built_for(importing("forebay:connector/log@0.2.5", "write")), ContractVersion::V0_2);
    assert_eq!(built_for(format!("(component {HOLLOW_FLOW})")), ContractVersion::V0_1);
}

#[test]
fn a_later_patch_is_taken() {
    let component = wat::parse_str(format!(
        r#"(component (import "forebay:connector/clock@0.1.7" (instance (export "now" (func (result s64))))) {HOLLOW_FLOW})"#
    ));
    check(&component.unwrap(), &[ImportName::Clock]).unwrap();
}

// GST-4
#[test]
fn an_import_must_be_declared() {
    let component = wat::parse_str(format!(
        r#"(component (import "forebay:connector/clock@0.1.0" (instance (export "now" (func (result s64))))) {HOLLOW_FLOW})"#
    ));
    let error = check(&component.unwrap(), &[ImportName::Log]).unwrap_err();
    expect![[r#"imports `forebay:connector/clock@0.1.0`, which pack.toml does not declare: add "clock" to `imports`"#]]
        .assert_eq(&error.to_string());
}

// GST-6
#[test]
fn an_export_that_is_missing_is_named() {
    refused(
        "(component)",
        expect![
            "does not export `forebay:connector/flow@0.1.0`, which makes a connector; it exports nothing. In Rust: `forebay_sdk::export!(..)`; in JavaScript: `export const flow = connector({ .. })`"
        ],
    );
    refused(
        &format!("(component {})", HOLLOW_FLOW.replace("forebay:connector/flow@", "acme:other/flow@")),
        expect![
            "does not export `forebay:connector/flow@0.1.0`, which makes a connector; it exports `acme:other/flow@0.1.0`. In Rust: `forebay_sdk::export!(..)`; in JavaScript: `export const flow = connector({ .. })`"
        ],
    );
    refused(
        &format!("(component {})", HOLLOW_FLOW.replace(r#"(export "apply" (func $f))"#, "")),
        expect!["exports `forebay:connector/flow@0.1.0` without its function `apply`"],
    );
}

// GST-6
#[tokio::test]
async fn a_function_of_another_type_is_named() {
    let engine = Engine::start();
    let component = Bytes::from(wat::parse_str(format!("(component {HOLLOW_FLOW})")).unwrap());
    let manifest = Arc::new(example("hostile").manifest);
    let error = engine.host.load(GenerationNumber(1), manifest, component).await.unwrap_err();
    expect!["the component does not fit forebay:connector@0.1.0: failed to convert function to given type: type mismatch with parameters: expected 1-tuple, found 0-tuple. Build it against the contract that this host serves"].assert_eq(&error.to_string());
}

// GST-3
#[tokio::test]
async fn a_manifest_that_wants_more_memory_than_the_host_gives_is_refused() {
    let engine = Engine::start();
    let PackFile { mut manifest, component, .. } = example("hostile");
    manifest.limits.memory_bytes = 513 * 1024 * 1024;
    let error = engine.host.load(GenerationNumber(1), Arc::new(manifest), component).await.unwrap_err();
    expect!["pack `hostile` asks for 537919488 bytes of memory, and this host allows 536870912: lower `limits.memory_mib`, or raise the host's `guest.memory_max_mib`"].assert_eq(&error.to_string());
}

// GST-3
#[tokio::test]
async fn a_manifest_that_asks_for_more_than_the_operator_gives_is_refused() {
    let ceilings = Ceilings { fuel: 1_000_000_000, output_bytes: 1024 * 1024, messages: 16, log_bytes: 8 * 1024 };
    let cache = target_directory().join("guest-cache");
    let engine = Engine::with(GuestOptions { ceilings, ..options(cache) });
    type Change = fn(&mut Manifest);
    let greedy: [(&str, Change); 4] = [
        ("`guest.fuel_max_millions`", |manifest| manifest.limits.fuel = 1_000_000_001),
        ("`guest.output_max_kib`", |manifest| manifest.limits.output_bytes = 1024 * 1024 + 1),
        ("`guest.messages_max`", |manifest| manifest.limits.messages = 17),
        ("`guest.log_max_kib`", |manifest| manifest.limits.log_bytes = 8 * 1024 + 1),
    ];
    for (key, change) in greedy {
        let PackFile { mut manifest, component, .. } = example("hostile");
        change(&mut manifest);
        let error = engine.host.load(GenerationNumber(1), Arc::new(manifest), component).await.unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
    engine.load("hostile", |_| ()).await;
}

// GST-4
#[tokio::test]
async fn a_real_pack_that_does_not_declare_its_imports_is_refused() {
    let engine = Engine::start();
    let PackFile { mut manifest, component, .. } = example("github");
    manifest.imports.clear();
    let error = engine.host.load(GenerationNumber(1), Arc::new(manifest), component).await.unwrap_err();
    expect![[
        r#"imports `forebay:connector/config@0.1.0`, which pack.toml does not declare: add "config" to `imports`"#
    ]]
    .assert_eq(&error.to_string());
}
