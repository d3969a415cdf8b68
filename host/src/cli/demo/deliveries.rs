//! The ten deliveries of the demonstration: an ordinary morning of two repositories, with a forged delivery and a
//! duplicate.

use serde_json::{Value, json};

use crate::rig::github::Delivery;
use crate::rig::site::GITHUB_SECRET;

/// A delivery and its expected result.
pub(super) struct Scripted {
    /// A description for people.
    pub(super) about: &'static str,
    /// The delivery.
    pub(super) delivery: Delivery,
    /// Its expected result.
    pub(super) expected: Expected,
}

/// The expected result of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// A new Event.
    Admitted,
    /// The Event of an earlier delivery.
    Duplicate,
    /// A refusal, which stores nothing.
    Forged,
}

/// All ten deliveries in their order.
pub(super) fn ten() -> Vec<Scripted> {
    let api = repository(1, "acme/api");
    let web = repository(2, "acme/web");
    let pull = json!({ "action": "opened", "number": 42, "pull_request": pull_request(42, "Retry with jitter") });
    let other_pull = json!({ "action": "opened", "number": 7, "pull_request": pull_request(7, "Draft: dark mode") });
    let opened = json!({ "action": "opened", "issue": issue(311, "Login loops on Safari", "open") });
    let closed = json!({ "action": "closed", "issue": issue(311, "Login loops on Safari", "closed") });
    let mut scripted = vec![
        admitted("ping", "a webhook was set up", &api, json!({ "zen": "Keep it logically awesome.", "hook_id": 1 })),
        admitted("push", "two commits on main", &api, push("refs/heads/main")),
        admitted("push", "a tag", &api, push("refs/tags/v1.4.0")),
        admitted("pull_request", "#42 opened", &api, pull),
        admitted("issues", "#311 opened", &web, opened),
        admitted("issues", "#311 closed", &web, closed),
        admitted("pull_request", "#7 opened", &web, other_pull),
        admitted(
            "star",
            "somebody likes it",
            &web,
            json!({ "action": "created", "starred_at": "2026-05-15T15:20:41Z" }),
        ),
    ];
    for (at, scripted) in scripted.iter_mut().enumerate() {
        scripted.delivery.id = delivery_id(at);
    }
    let again = Scripted {
        about: "the second delivery, again",
        delivery: scripted[1].delivery.clone(),
        expected: Expected::Duplicate,
    };
    let body = with_context(&api, push("refs/heads/main"));
    let forged = Scripted {
        about: "forged: signed with a guess",
        delivery: Delivery::signed(b"a guess", delivery_id(8), "push", body),
        expected: Expected::Forged,
    };
    scripted.extend([forged, again]);
    scripted
}

fn admitted(event: &'static str, about: &'static str, repository: &Value, payload: Value) -> Scripted {
    let body = with_context(repository, payload);
    let delivery = Delivery::signed(GITHUB_SECRET.as_bytes(), "", event, body);
    Scripted { about, delivery, expected: Expected::Admitted }
}

fn delivery_id(number: usize) -> String {
    format!("72d3162e-cc78-11e3-81ab-4c9367dc09{number:02x}")
}

/// Common fields of the payloads of a repository.
fn with_context(repository: &Value, mut payload: Value) -> Vec<u8> {
    payload["repository"] = repository.clone();
    payload["sender"] = user();
    payload.to_string().into_bytes()
}

fn user() -> Value {
    json!({ "login": "octocat", "id": 583_231, "type": "User", "site_admin": false })
}

fn repository(id: u64, full_name: &str) -> Value {
    json!({
        "id": id, "name": full_name.rsplit('/').next(), "full_name": full_name, "private": true, "fork": false,
        "owner": { "login": "acme", "id": 21_031_067, "type": "Organization" },
        "html_url": format!("https://github.example/{full_name}"), "default_branch": "main",
    })
}

fn push(reference: &str) -> Value {
    let commit = |id: &str, message: &str| {
        json!({
            "id": id, "message": message, "timestamp": "2026-05-15T15:20:41Z", "distinct": true,
            "author": { "name": "Octo Cat", "email": "octocat@github.example", "username": "octocat" },
            "added": [], "removed": [], "modified": ["src/retry.rs"],
        })
    };
    let head = commit("0d1a26e67d8f5eaf1f6ba5c57fc3c7d91ac0fd1c", "Back off with jitter");
    json!({
        "ref": reference,
        "before": "6113728f27ae82c7b1a177c8d03f9e96e0adf246",
        "after": "0d1a26e67d8f5eaf1f6ba5c57fc3c7d91ac0fd1c",
        "created": reference.starts_with("refs/tags/"), "deleted": false, "forced": false,
        "compare": "https://github.example/acme/api/compare/6113728f27ae...0d1a26e67d8f",
        "commits": [commit("9049f1265b7d61be4a8904a9a27120d2064dab3b", "Name the bound"), head.clone()],
        "head_commit": head,
        "pusher": { "name": "octocat", "email": "octocat@github.example" },
    })
}

fn pull_request(number: u64, title: &str) -> Value {
    json!({
        "id": 279_147_437 + number, "number": number, "state": "open", "title": title, "user": user(),
        "html_url": format!("https://github.example/acme/pull/{number}"), "draft": false, "merged": false,
        "created_at": "2026-05-15T15:20:33Z", "updated_at": "2026-05-15T15:20:33Z",
        "head": { "ref": "changes", "sha": "ec26c3e57ca3a959ca5aad62de7213c562f8c821" },
        "base": { "ref": "main", "sha": "f95f852bd8fca8fcc58a9a2d6c842781e32a215e" },
    })
}

fn issue(number: u64, title: &str, state: &str) -> Value {
    json!({
        "id": 444_500_041 + number, "number": number, "title": title, "state": state, "user": user(),
        "html_url": format!("https://github.example/acme/web/issues/{number}"), "labels": [], "comments": 0,
        "created_at": "2026-05-15T15:20:18Z", "updated_at": "2026-05-15T15:20:18Z",
    })
}
