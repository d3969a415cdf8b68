//! GitHub: events of a repository become notifications, and an opened pull request also becomes a reminder.

use std::time::Duration;

use forebay_sdk::{Connector, Event, Failure, Message, Output, Prepared, Reading, config};
use serde::{Deserialize, Serialize};

const DESTINATION: &str = "notifications";
const REMINDER_DELAY_SECONDS: u64 = 86_400;

struct GitHub;

forebay_sdk::export!(GitHub);

impl Connector for GitHub {
    type State = Notification;

    fn prepare(event: &Event) -> Result<Prepared<Notification>, Failure> {
        let kind = event.header("x-github-event").ok_or_else(|| Failure::invalid_input("no x-github-event header"))?;
        Ok(match kind {
            "push" => Prepared::run(event.json::<Push>()?.into()),
            "pull_request" => Prepared::run(event.json::<PullRequestEvent>()?.into()),
            "issues" => Prepared::run(event.json::<IssueEvent>()?.into()),
            "ping" => Prepared::run(event.json::<Ping>()?.into()),
            other => Prepared::ignore(format!("`{other}` is not handled")),
        })
    }

    fn run(event: &Event, notification: Notification, _: &[Reading]) -> Result<Output, Failure> {
        let message = |suffix: &str, body: &Notification| -> Result<Message, Failure> {
            let message = Message::json(DESTINATION, body)?.idempotency_key(format!("{}{suffix}", event.delivery_key));
            Ok(match &event.source_key {
                Some(repository) => message.ordering_key(repository.as_str()),
                None => message,
            })
        };
        if let Notification::Ping { zen } = &notification {
            return Ok(Output::new().note(format!("the webhook works: {zen}")));
        }
        let output = Output::new().note(notification.summary()).message(message("", &notification)?);
        let Some(reminder) = notification.reminder() else { return Ok(output) };
        let delay = config::parse_or("reminder_delay_seconds", REMINDER_DELAY_SECONDS)?;
        // A separate ordering key: other notifications must not wait for the reminder.
        let reminder = message(":reminder", &reminder)?.ordering_key(format!("reminder:{}", event.id));
        Ok(output.message(reminder.after(Duration::from_secs(delay))))
    }
}

/// The body of a message; `prepare` hands it to `run`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Notification {
    Push { repository: String, r#ref: String, head: String, commits: usize, by: String },
    PullRequest { repository: String, action: String, number: u64, title: String, url: String, by: String },
    Issue { repository: String, action: String, number: u64, title: String, url: String, by: String },
    Reminder { repository: String, number: u64, title: String, url: String },
    Ping { zen: String },
}

impl Notification {
    fn summary(&self) -> String {
        match self {
            Self::Push { r#ref, commits, .. } => format!("push of {commits} commits to {}", r#ref),
            Self::PullRequest { action, number, .. } => format!("pull request {number} {action}"),
            Self::Issue { action, number, .. } => format!("issue {number} {action}"),
            Self::Reminder { number, .. } => format!("reminder of pull request {number}"),
            Self::Ping { zen } => zen.clone(),
        }
    }

    /// The reminder of a pull request that is newly open.
    fn reminder(&self) -> Option<Self> {
        match self {
            Self::PullRequest { repository, action, number, title, url, .. }
                if matches!(action.as_str(), "opened" | "reopened") =>
            {
                let (repository, title, url) = (repository.clone(), title.clone(), url.clone());
                Some(Self::Reminder { repository, number: *number, title, url })
            }
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Repository {
    full_name: String,
}

#[derive(Deserialize)]
struct User {
    login: String,
}

#[derive(Deserialize)]
struct Subject {
    number: u64,
    title: String,
    html_url: String,
}

#[derive(Deserialize)]
struct Push {
    r#ref: String,
    after: String,
    commits: Vec<serde::de::IgnoredAny>,
    repository: Repository,
    sender: User,
}

impl From<Push> for Notification {
    fn from(push: Push) -> Self {
        Self::Push {
            repository: push.repository.full_name,
            r#ref: push.r#ref,
            head: push.after,
            commits: push.commits.len(),
            by: push.sender.login,
        }
    }
}

#[derive(Deserialize)]
struct PullRequestEvent {
    action: String,
    pull_request: Subject,
    repository: Repository,
    sender: User,
}

impl From<PullRequestEvent> for Notification {
    fn from(event: PullRequestEvent) -> Self {
        let Subject { number, title, html_url: url } = event.pull_request;
        let (repository, by) = (event.repository.full_name, event.sender.login);
        Self::PullRequest { repository, action: event.action, number, title, url, by }
    }
}

#[derive(Deserialize)]
struct IssueEvent {
    action: String,
    issue: Subject,
    repository: Repository,
    sender: User,
}

impl From<IssueEvent> for Notification {
    fn from(event: IssueEvent) -> Self {
        let Subject { number, title, html_url: url } = event.issue;
        let (repository, by) = (event.repository.full_name, event.sender.login);
        Self::Issue { repository, action: event.action, number, title, url, by }
    }
}

#[derive(Deserialize)]
struct Ping {
    zen: String,
}

impl From<Ping> for Notification {
    fn from(ping: Ping) -> Self {
        Self::Ping { zen: ping.zen }
    }
}

#[cfg(test)]
mod tests;
