//! The smallest connector that does something: it greets the subject of an event, now or later.

use std::time::Duration;

use forebay_sdk::{Action, Connector, DueAction, Event, Failure, Output, Prepared, Reading};
use serde::{Deserialize, Serialize};

struct Pack;

forebay_sdk::export!(Pack);

/// What comes in; `prepare` hands it to `run`.
#[derive(Serialize, Deserialize)]
struct Wish {
    kind: String,
    subject: String,
    #[serde(default)]
    after_ms: u64,
}

impl Connector for Pack {
    /// What `prepare` hands to `run`.
    type State = Wish;

    fn prepare(event: &Event) -> Result<Prepared<Wish>, Failure> {
        let wish: Wish = event.json()?;
        match wish.kind.as_str() {
            "greeting" | "reminder" => Ok(Prepared::run(wish)),
            other => Ok(Prepared::ignore(format!("`{other}` is of no interest"))),
        }
    }

    fn run(_: &Event, wish: Wish, _: &[Reading]) -> Result<Output, Failure> {
        let subject = wish.subject;
        // To send something: `.message(Message::json("warehouse", &body)?)`, and `destinations` in pack.toml.
        match wish.kind.as_str() {
            "reminder" => {
                let later = Action::json("greet", &subject)?.after(Duration::from_millis(wish.after_ms));
                Ok(Output::new().note(format!("later, {subject}")).action(later))
            }
            _ => Ok(Output::new().note(format!("hello, {subject}"))),
        }
    }

    /// Called when an action of `run` is due. It may do all that `run` may.
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
