//! The smallest connector that does something: it greets the subject of an event.

use forebay_sdk::{Connector, Event, Failure, Output, Prepared, Reading};

struct Pack;

forebay_sdk::export!(Pack);

#[derive(serde::Deserialize)]
struct Body {
    kind: String,
    subject: String,
}

impl Connector for Pack {
    /// What `prepare` hands to `run`.
    type State = String;

    fn prepare(event: &Event) -> Result<Prepared<String>, Failure> {
        let body: Body = event.json()?;
        match body.kind.as_str() {
            "greeting" => Ok(Prepared::run(body.subject)),
            other => Ok(Prepared::ignore(format!("`{other}` is of no interest"))),
        }
    }

    fn run(_: &Event, subject: String, _: &[Reading]) -> Result<Output, Failure> {
        // To send something: `.message(Message::json("warehouse", &body)?)`, and `destinations` in pack.toml.
        Ok(Output::new().note(format!("hello, {subject}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_answered() {
        let event = forebay_sdk::testing::event(&[], r#"{"kind":"greeting","subject":"world"}"#);
        let output = forebay_sdk::testing::TestHost::new().flow::<Pack>(&event).unwrap().unwrap();
        assert_eq!(output.note.as_deref(), Some("hello, world"));
    }
}
