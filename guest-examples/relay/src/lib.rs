//! A relay of Standard Webhooks: the same body, byte for byte, received under one secret and sent under another.

use forebay_sdk::{Connector, Event, Failure, Message, Output, Prepared, Reading, config};
use serde_json::Value;

const DESTINATION: &str = "relayed";

struct Relay;

forebay_sdk::export!(Relay);

impl Connector for Relay {
    /// The type of the event, for the note.
    type State = Option<String>;

    fn prepare(event: &Event) -> Result<Prepared<Option<String>>, Failure> {
        let kind = kind(event);
        let wanted = config::get("types").unwrap_or_default();
        if wanted.trim().is_empty() {
            return Ok(Prepared::run(kind));
        }
        match kind {
            Some(kind) if wanted.split_whitespace().any(|pattern| fits(pattern, &kind)) => {
                Ok(Prepared::run(Some(kind)))
            }
            Some(kind) => Ok(Prepared::ignore(format!("`{kind}` is not among the types that are passed on"))),
            None => Ok(Prepared::ignore("the event has no type, and only some types are passed on")),
        }
    }

    fn run(event: &Event, kind: Option<String>, _: &[Reading]) -> Result<Output, Failure> {
        // The id stays the same, so that a receiver recognizes a duplicate from here or from the source.
        let message = Message::new(DESTINATION, event.content_type.as_str(), event.body.as_slice())
            .idempotency_key(event.delivery_key.as_str());
        Ok(Output::new().note(kind.unwrap_or_else(|| "passed on".to_owned())).message(message))
    }
}

/// The `type` that the specification recommends; a payload may lack it, or may not be JSON.
fn kind(event: &Event) -> Option<String> {
    let payload: Value = serde_json::from_slice(&event.body).ok()?;
    payload["type"].as_str().map(str::to_owned)
}

/// Whether a type matches a pattern: equal, or with the same beginning up to `*`.
fn fits(pattern: &str, kind: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => kind.starts_with(beginning),
        None => kind == pattern,
    }
}

#[cfg(test)]
mod tests {
    use forebay_sdk::testing::{TestHost, event};

    use super::*;

    const BODY: &str = "{ \"type\":\"invoice.paid\",\n\t\"data\": {\"id\": 1.0} }";

    #[test]
    fn the_body_goes_out_byte_for_byte_under_the_id_it_came_with() {
        let output = TestHost::new().flow::<Relay>(&event(&[], BODY)).unwrap().unwrap();
        let [message] = &output.messages[..] else { panic!("{output:?}") };
        assert_eq!(message.body, BODY.as_bytes());
        assert_eq!(message.content_type, "application/json");
        assert_eq!(message.idempotency_key.as_deref(), Some("delivery-1"));
    }

    #[test]
    fn only_the_types_that_are_wanted_are_passed_on() {
        let passes = |types: &str| TestHost::new().setting("types", types).flow::<Relay>(&event(&[], BODY)).unwrap();
        for wanted in ["", " ", "invoice.*", "user.created invoice.paid", "*"] {
            assert!(passes(wanted).is_some(), "{wanted:?}");
        }
        for other in ["invoice", "invoice.", "invoice.payed", "user.*"] {
            assert!(passes(other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn what_has_no_type_passes_only_where_everything_does() {
        let opaque = event(&[], vec![0xff, 0x00]);
        let output = TestHost::new().flow::<Relay>(&opaque).unwrap().unwrap();
        assert_eq!(output.messages[0].body, [0xff, 0x00]);
        assert!(TestHost::new().setting("types", "*").flow::<Relay>(&opaque).unwrap().is_none());
    }
}
