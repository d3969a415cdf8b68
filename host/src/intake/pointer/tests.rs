use proptest::prelude::*;

use super::*;

fn at(document: &str, pointer: &str) -> Option<String> {
    let [found] = find(document.as_bytes(), [Some(pointer)]).unwrap();
    found
}

#[test]
fn strings_and_numbers_are_found_where_the_pointer_leads() {
    let document = r#"{"a": {"b": ["x", {"c": "deep"}], "": "empty name", "a/b": 1, "m~n": 2, "é": "e"}, "z": null}"#;
    for (pointer, expected) in [
        ("/a/b/0", Some("x")),
        ("/a/b/1/c", Some("deep")),
        ("/a/", Some("empty name")),
        ("/a/a~1b", Some("1")),
        ("/a/m~0n", Some("2")),
        ("/a/é", Some("e")),
        ("/a/b", None),
        ("/a/b/2", None),
        ("/a/b/00", None),
        ("/a/b/+1", None),
        ("/a/b/-", None),
        ("/a/b/c", None),
        ("/a/b/0/0", None),
        ("/z", None),
        ("/z/z", None),
        ("/absent", None),
        ("", None),
        ("a", None),
    ] {
        assert_eq!(at(document, pointer).as_deref(), expected, "{pointer:?}");
    }
}

#[test]
fn numbers_keep_their_exact_text() {
    for number in ["1.5", "1e21", "9007199254740993", "-0", "0.10", "123456789012345678901234567890", "1E+400"] {
        assert_eq!(at(&format!(r#"{{"id": {number} }}"#), "/id").as_deref(), Some(number));
        assert_eq!(at(&format!(" {number} "), "").as_deref(), Some(number));
    }
}

#[test]
fn text_is_unescaped_whatever_it_holds() {
    assert_eq!(at(r#"{"id": "\u00e9\n\u2028\ud83d\ude00\u0000/"}"#, "/id").as_deref(), Some("é\n\u{2028}😀\0/"));
    assert_eq!(at("{\"id\": \"\u{2028}😀\"}", "/id").as_deref(), Some("\u{2028}😀"));
    assert_eq!(at(r#"{"\u0069d": "escaped name"}"#, "/id").as_deref(), Some("escaped name"));
}

#[test]
fn of_two_members_of_one_name_the_last_counts() {
    assert_eq!(at(r#"{"id": 1, "id": 2}"#, "/id").as_deref(), Some("2"));
    assert_eq!(at(r#"{"id": 1, "id": null}"#, "/id"), None);
    assert_eq!(at(r#"{"a": {"b": 1}, "a": {}}"#, "/a/b"), None);
    assert_eq!(at(r#"{"a": {"b": 1}, "a": 5}"#, "/a/b"), None);
}

#[test]
fn several_pointers_are_followed_in_one_pass_even_into_each_other() {
    let document = br#"{"a": {"b": "one"}, "c": [3]}"#;
    let found = find(document, [Some("/a/b"), Some("/c/0"), None, Some("/a/b"), Some("/a")]).unwrap();
    let expected = [Some("one"), Some("3"), None, Some("one"), None].map(|text| text.map(str::to_owned));
    assert_eq!(found, expected);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_document() {
    assert_eq!(at("\u{feff}{\"id\": 7}", "/id").as_deref(), Some("7"));
}

#[test]
fn what_is_not_one_json_document_is_refused_wherever_the_fault_is() {
    let deep = "[".repeat(200_000);
    for document in [
        b"".as_slice(),
        b"payload=%7B%7D",
        b"{\"id\": 1} x",
        b"{\"id\": 1, \"rest\": [}",
        b"{\"id\": 01}",
        b"{\"id\": \"\xff\"}",
        b"{\"id\": \"\\ud800\"}",
        b"{'id': 1}",
        b"{\"id\": NaN}",
        deep.as_bytes(),
    ] {
        assert_eq!(find(document, [Some("/id")]), Err(NotJson), "{}", String::from_utf8_lossy(document));
    }
}

#[test]
fn without_a_pointer_the_document_is_not_looked_at() {
    assert_eq!(find(b"\xff not json", [None, None]), Ok([None, None]));
}

proptest! {
    #[test]
    fn agrees_with_a_parser_that_builds_the_document(value in any_json(), pointer in "(/(a|b|~0|~1|[0-9])){0,4}") {
        let text = value.to_string();
        let expected = match value.pointer(&pointer) {
            Some(serde_json::Value::String(string)) => Some(string.clone()),
            Some(serde_json::Value::Number(number)) => Some(number.to_string()),
            Some(_) | None => None,
        };
        prop_assert_eq!(find(text.as_bytes(), [Some(pointer.as_str())]), Ok([expected]));
    }

    #[test]
    fn no_bytes_make_it_panic(document in proptest::collection::vec(any::<u8>(), 0..64), pointer in "[/a0~]{0,8}") {
        let _ = find(&document, [Some(pointer.as_str())]);
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("a|b|~|/|[0-9]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}
