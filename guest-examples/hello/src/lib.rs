//! A small connector: it greets the subject of an event, now or later.

use std::time::Duration;

use forebay_sdk::{Action, Connector, DueAction, Event, Failure, Output, Prepared, Reading};
use serde::{Deserialize, Serialize};

struct Pack;

forebay_sdk::export!(Pack);

/// The body of an event.
#[derive(Serialize, Deserialize)]
struct Greeting {
    kind: String,
    subject: String,
    #[serde(default)]
    after_ms: u64,
}

impl Connector for Pack {
    /// `prepare` hands it to `run`.
    type State = Greeting;

    fn prepare(event: &Event) -> Result<Prepared<Greeting>, Failure> {
        let greeting: Greeting = event.json()?;
        match greeting.kind.as_str() {
            "greeting" | "reminder" => Ok(Prepared::run(greeting)),
            other => Ok(Prepared::ignore(format!("`{other}` is not handled"))),
        }
    }

    fn run(_: &Event, greeting: Greeting, _: &[Reading]) -> Result<Output, Failure> {
        let subject = greeting.subject;
        // To send a message: `.message(Message::json("warehouse", &body)?)`, and `destinations` in pack.toml.
        match greeting.kind.as_str() {
            "reminder" => {
                let later = Action::json("greet", &subject)?.after(Duration::from_millis(greeting.after_ms));
                Ok(Output::new().note(format!("later, {subject}")).action(later))
            }
            _ => Ok(Output::new().note(format!("hello, {subject}"))),
        }
    }

    /// Called when an action is due. Its output may be like that of `run`.
    fn apply(action: &DueAction) -> Result<Output, Failure> {
        match action.name.as_str() {
            "greet" => Ok(Output::new().note(format!("hello again, {}", action.json::<String>()?))),
            other => Err(Failure::reject(format!("there is no action `{other}`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_sdk::testing::{TestHost, due, event};

    use super::*;

    fn output(body: &str) -> Output {
        TestHost::new().flow::<Pack>(&event(&[], body)).unwrap().unwrap()
    }

    #[test]
    fn a_greeting_is_answered() {
        assert_eq!(output(r#"{"kind":"greeting","subject":"world"}"#).note.as_deref(), Some("hello, world"));
    }

    #[test]
    fn a_reminder_greets_later() {
        let later = output(r#"{"kind":"reminder","subject":"world","after_ms":5}"#);
        let greeted = TestHost::new().apply::<Pack>(&due(&later.actions[0])).unwrap();
        assert_eq!(greeted.note.as_deref(), Some("hello again, world"));
    }
}
