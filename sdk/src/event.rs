//! The event.

use serde::de::DeserializeOwned;

use crate::{Failure, Timestamp};

/// An event that a provider delivered. It never changes: a retry sees the same event with another `attempt`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its id.
    pub id: String,
    /// The namespace.
    pub namespace: String,
    /// The route of the delivery.
    pub route: String,
    /// The pack's generation that admitted it.
    pub route_version: u32,
    /// The object that the event is about, if the route orders by source.
    pub source_key: Option<String>,
    /// The key of the delivery: two deliveries with the same key are the same event.
    pub delivery_key: String,
    /// Time of admission.
    pub received_at: Timestamp,
    /// Content type of the request; empty if it had none.
    pub content_type: String,
    /// Request headers that the route keeps, in order of arrival.
    pub headers: Vec<Header>,
    /// The raw body, byte for byte.
    pub body: Vec<u8>,
    /// Number of this attempt: 1 for the first.
    pub attempt: u32,
}

/// An HTTP header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name, in lower case.
    pub name: String,
    /// The value, byte for byte; it may be other than text.
    pub value: Vec<u8>,
}

impl Header {
    /// A header with a text value.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into().into_bytes() }
    }
}

impl Event {
    /// The first kept header of this name (in lower case), if its value is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|header| header.name == name)?;
        std::str::from_utf8(&header.value).ok()
    }

    /// The body as JSON. [`Failure::InvalidInput`] names the place of an error and does not quote the body.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read_json("body", &self.body)
    }
}

/// Parses JSON from outside; `thing` names it in the failure.
pub(crate) fn read_json<T: DeserializeOwned>(thing: &str, bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| {
        Failure::InvalidInput(format!("the {thing} is not the JSON that was expected: {}", what(&error)))
    })
}

/// Describes an error without the values that serde's text would quote from the body.
pub(crate) fn what(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("missing field") {
        return text;
    }
    let kind = match error.classify() {
        serde_json::error::Category::Io => "unreadable",
        serde_json::error::Category::Syntax => "a syntax error",
        serde_json::error::Category::Data => "a value of another type",
        serde_json::error::Category::Eof => "it ends too early",
    };
    format!("{kind} at line {} column {}", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::event;

    #[derive(Debug, serde::Deserialize)]
    struct Body {
        #[serde(rename = "secret")]
        _secret: u32,
    }

    fn refusal(body: &str) -> String {
        match event(&[], body).json::<Body>() {
            Err(Failure::InvalidInput(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    // OBS-3
    #[test]
    fn a_body_that_does_not_fit_is_described_and_not_quoted() {
        assert!(refusal("{}").contains("missing field `secret` at line 1 column 2"));
        let wrong_type = refusal(r#"{"secret":"hunter2"}"#);
        assert!(wrong_type.ends_with("a value of another type at line 1 column 19"), "{wrong_type}");
        assert!(refusal("{").contains("ends too early"));
        assert!(refusal("?").contains("a syntax error"));
    }

    #[test]
    fn a_header_is_found_by_its_name_if_it_is_text() {
        let mut event = event(&[("x-kind", "push")], "");
        event.headers.push(Header { name: "x-raw".to_owned(), value: vec![0xff] });
        assert_eq!(event.header("x-kind"), Some("push"));
        assert_eq!(event.header("x-raw"), None);
        assert_eq!(event.header("x-none"), None);
    }
}
