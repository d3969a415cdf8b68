//! The description of the API agrees with the API.

use std::collections::BTreeSet;

use expect_test::expect_file;
use serde_json::Value;

use super::super::{error_codes, openapi};
use super::{Desk, shown};

/// Compares with `docs/openapi.json`; `UPDATE_EXPECT=1` writes it.
#[test]
fn the_description_is_kept_beside_the_documents() {
    let text = serde_json::to_string_pretty(&openapi()).unwrap();
    expect_file!["../../../../docs/openapi.json"].assert_eq(&format!("{text}\n"));
}

/// Every operation: its method, path and description.
fn described() -> Vec<(String, String, Value)> {
    let document = openapi();
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (method.to_uppercase(), path.clone(), operation.clone()))
    });
    operations.collect()
}

/// A path with a value in place of each brace.
fn with_ids(path: &str) -> String {
    let id = "0".repeat(32);
    let of = |kind: &str| format!("{kind}_{id}");
    let kind = [("events/", "evt"), ("work-items/", "wi"), ("messages/", "msg")];
    let kind = kind.into_iter().find(|(part, _)| path.contains(part)).map_or("", |(_, kind)| kind);
    path.replace("{id}", &of(kind)).replace("{pack}", "nobody").replace("{name}", "nobody").replace("{shard}", "7777")
}

#[tokio::test]
async fn everything_that_is_described_is_routed() {
    let desk = Desk::open(None).await;
    let operations = described();
    assert!(operations.len() > 30, "{}", operations.len());
    for (method, path, _) in operations {
        let answer = desk.ask(&method, &with_ids(&path), &[], "").await;
        let said = shown(&answer);
        assert!(!said.contains("\"there is no such path\"") && answer.status != 405, "{method} {path}: {said}");
    }
}

/// Routes and description are made from one table; only the console is not in it.
#[tokio::test]
async fn everything_that_is_routed_is_described() {
    let desk = Desk::open(None).await;
    let described: BTreeSet<(String, String)> =
        described().into_iter().map(|(method, path, _)| (method, path)).collect();
    for path in described.iter().map(|(_, path)| path).collect::<BTreeSet<_>>() {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let is_described = described.contains(&(method.to_owned(), path.clone()));
            let answer = desk.ask(method, &with_ids(path), &[], "").await;
            assert_eq!(answer.status != 405, is_described, "{method} {path}: {}", shown(&answer));
        }
    }
}

#[tokio::test]
async fn the_parameters_that_are_described_are_known_and_their_bounds_hold() {
    let desk = Desk::open(None).await;
    for (method, path, operation) in described() {
        let body = if matches!(method.as_str(), "PUT" | "PATCH") { "{}" } else { "" };
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            if parameter["in"] == "path" {
                assert!(path.contains(&format!("{{{name}}}")), "{path}: {name}");
                continue;
            }
            let ask =
                async |value: &str| desk.ask(&method, &format!("{}?{name}={value}", with_ids(&path)), &[], body).await;
            let wrong = shown(&ask("!").await);
            assert!(!wrong.contains("unknown parameter"), "{method} {path}?{name}: {wrong}");
            for word in parameter["schema"]["enum"].as_array().into_iter().flatten() {
                let answer = ask(word.as_str().unwrap()).await;
                // Before the host serves, it answers only requests that the store alone can answer.
                let expected = if method == "GET" { 200 } else { 503 };
                assert_eq!(answer.status, expected, "{method} {path}?{name}={word}: {}", shown(&answer));
            }
            for bound in ["minimum", "maximum"] {
                let Some(bound) = parameter["schema"][bound].as_u64().filter(|_| name == "limit") else { continue };
                assert_ne!(ask(&bound.to_string()).await.status, 400, "{path}?{name}={bound}");
                let beyond = if bound == 1 { 0 } else { bound + 1 };
                let answer = ask(&beyond.to_string()).await;
                assert!(matches!(answer.status.as_u16(), 400 | 404), "{path}?{name}={beyond}: {}", shown(&answer));
            }
        }
        let stray = desk.ask(&method, &format!("{}?stray=1", with_ids(&path)), &[], body).await;
        let takes_parameters =
            operation["parameters"].as_array().is_some_and(|all| all.iter().any(|one| one["in"] == "query"));
        if takes_parameters {
            assert!(shown(&stray).contains("unknown parameter `stray`"), "{method} {path}: {}", shown(&stray));
        }
    }
}

#[test]
fn every_operation_has_a_name_of_its_own_its_answers_and_its_errors() {
    let mut names = BTreeSet::new();
    for (method, path, operation) in described() {
        let name = operation["operationId"].as_str().unwrap().to_owned();
        assert!(names.insert(name.clone()), "{name} twice");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{name}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key("200"), "{name}");
        let is_open = operation["security"].as_array().is_some_and(Vec::is_empty);
        assert_eq!(is_open, !responses.contains_key("401"), "{name}: who asks for a token refuses without one");
        assert_eq!(is_open, matches!(path.as_str(), "/healthz" | "/readyz"), "{name}");
        if path.contains('{') {
            assert!(responses.contains_key("404"), "{name}: what is named may not be there");
        }
        let takes_body = matches!(method.as_str(), "POST" | "PUT" | "PATCH");
        assert!(takes_body || operation["requestBody"].is_null(), "{name}");
    }
}

#[test]
fn every_word_for_an_error_is_told_where_it_may_be_answered() {
    let document = openapi();
    let told = document["paths"].to_string();
    let mut words = BTreeSet::new();
    for code in error_codes::ALL {
        assert!(words.insert(code.word), "{} twice", code.word);
        // A described operation has the right method.
        let is_told = told.contains(&format!("- `{}`: ", code.word));
        assert_eq!(is_told, *code != error_codes::METHOD, "{}", code.word);
    }
}

#[test]
fn what_is_referred_to_is_there() {
    let document = openapi();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document.to_string();
    let referred: BTreeSet<&str> =
        text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(referred.len() > 20, "{referred:?}");
    for name in &referred {
        assert!(schemas.contains_key(*name), "{name}");
    }
    for name in schemas.keys() {
        assert!(referred.contains(name.as_str()), "no reference to {name}");
    }
    // Two types of one name would replace each other.
    let fields = |name: &str| schemas[name]["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(fields("Action").contains(&"work_item".to_owned()), "that of a message");
    assert!(fields("EmittedAction").contains(&"idempotency_key".to_owned()), "that of a preview");
}
