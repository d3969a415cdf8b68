use super::*;

fn list(pointer: &str, events_max: u32) -> EventList {
    EventList { pointer: pointer.to_owned(), events_max }
}

fn elements(body: &str, pointer: &str) -> Result<Vec<String>, Refusal> {
    let split = split(&Bytes::copy_from_slice(body.as_bytes()), &list(pointer, 3))?;
    Ok(split.iter().map(|element| String::from_utf8(element.to_vec()).unwrap()).collect())
}

fn texts<const N: usize>(elements: [&str; N]) -> Result<Vec<String>, Refusal> {
    Ok(elements.map(str::to_owned).to_vec())
}

// ADM-6
#[test]
fn elements_are_the_bytes_that_came() {
    let odd = "{ \"b\":1e21,\t\"a\" : 9007199254740993, \"\\u2028\":\"é\" }";
    assert_eq!(elements(&format!("[ {odd} ,1.50, null]"), ""), texts([odd, "1.50", "null"]));
    assert_eq!(elements(&format!("\u{feff}[{odd}]\r\n"), ""), texts([odd]));
    assert_eq!(elements(&format!(r#"{{"data":{{"events":[{odd}]}}}}"#), "/data/events"), texts([odd]));
    assert_eq!(elements(r#"{"a/b":[[],[1,2]]}"#, "/a~1b/1"), texts(["1", "2"]));
    assert_eq!(elements(r#"{"e":[1],"e":[2]}"#, "/e"), texts(["2"]), "of two members of one name the last counts");
}

// ADM-4, ADM-6
#[test]
fn what_is_no_list_of_events_is_refused() {
    for body in ["{}", "[]", r#"{"events":[]}"#, r#"{"events":{}}"#, r#"{"events":"[1]"}"#, "1", "null"] {
        assert_eq!(elements(body, "/events"), Err(Refusal::EventListMissing), "{body}");
    }
    for body in ["", "[1", "[1] 2", "[1,]", "events=1", "\u{0}"] {
        assert_eq!(elements(body, ""), Err(Refusal::EventsNotJson), "{body:?}");
    }
}

// ADM-4, ADM-6
#[test]
fn there_may_be_so_many_events_and_no_more() {
    assert_eq!(elements("[1,2,3]", ""), texts(["1", "2", "3"]));
    assert_eq!(elements("[1,2,3,4]", ""), Err(Refusal::TooManyEvents));
    let many = format!("[{}1]", "1,".repeat(100_000));
    assert_eq!(elements(&many, ""), Err(Refusal::TooManyEvents));
}
