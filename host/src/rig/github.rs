//! Deliveries as GitHub makes them: signed over the raw body, each with an id of its own.

use std::fmt::Write;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::Request;
use http_body_util::Full;
use sha2::Sha256;

/// One delivery, ready to be sent any number of times.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// `X-GitHub-Delivery`.
    pub id: String,
    /// `X-GitHub-Event`.
    pub event: String,
    /// The raw body.
    pub body: Bytes,
    /// `X-Hub-Signature-256`.
    pub signature: String,
}

impl Delivery {
    /// A delivery that is signed with `secret`.
    pub fn signed(secret: &[u8], id: impl Into<String>, event: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self { id: id.into(), event: event.into(), signature: sign(secret, &body), body }
    }

    /// The request that delivers it to `path`.
    pub fn request(&self, host: &str, path: &str) -> anyhow::Result<Request<Full<Bytes>>> {
        let request = Request::post(path)
            .header("host", host)
            .header("content-type", "application/json")
            .header("user-agent", "GitHub-Hookshot/044aadd")
            .header("x-github-delivery", &self.id)
            .header("x-github-event", &self.event)
            .header("x-hub-signature-256", &self.signature)
            .body(Full::new(self.body.clone()))?;
        Ok(request)
    }
}

/// The value of `X-Hub-Signature-256` for a body.
pub fn sign(secret: &[u8], body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(body);
    let mut text = String::from("sha256=");
    for byte in mac.finalize().into_bytes() {
        write!(text, "{byte:02x}").expect("writing to a string succeeds");
    }
    text
}

/// A push to repository `number`, in the shape in which GitHub sends it, with as many commits as fit into `bytes`,
/// which it then weighs (but never less than a push with none).
pub fn push_body(number: usize, bytes: usize) -> Vec<u8> {
    let name = format!("octo-org/repository-{number}");
    let mut push = serde_json::json!({
        "ref": "refs/heads/main",
        "before": "6113728f27ae82c7b1a177c8d03f9e96e0adf246",
        "after": "0d1a26e67d8f5eaf1f6ba5c57fc3c7d91ac0fd1c",
        "created": false, "deleted": false, "forced": false, "base_ref": null,
        "compare": format!("https://github.example/{name}/compare/6113728f27ae...0d1a26e67d8f"),
        "repository": {
            "id": 186_853_000 + number, "name": format!("repository-{number}"), "full_name": name, "private": false,
            "owner": { "login": "octo-org", "id": 21_031_067, "type": "Organization" },
            "html_url": format!("https://github.example/{name}"), "default_branch": "main",
        },
        "pusher": { "name": "octocat", "email": "octocat@github.example" },
        "sender": { "login": "octocat", "id": 583_231, "type": "User" },
        "head_commit": commit(0),
        "commits": [],
    });
    let size = |push: &serde_json::Value| push.to_string().len();
    for number in 1.. {
        let commit = commit(number);
        if size(&push) + size(&commit) + 1 > bytes {
            break;
        }
        push["commits"].as_array_mut().expect("it was made as one").push(commit);
    }
    let missing = bytes.saturating_sub(size(&push));
    push["pusher"]["name"] = format!("octocat{}", "-".repeat(missing)).into();
    push.to_string().into_bytes()
}

fn commit(number: usize) -> serde_json::Value {
    serde_json::json!({
        "id": format!("{number:040x}"), "tree_id": format!("{:040x}", number + 7), "distinct": true,
        "message": format!("Change number {number}, with a line that says what it is good for"),
        "timestamp": "2026-05-15T15:20:41Z",
        "author": { "name": "Octo Cat", "email": "octocat@github.example", "username": "octocat" },
        "committer": { "name": "Octo Cat", "email": "octocat@github.example", "username": "octocat" },
        "added": [format!("source/module_{number}.rs")], "removed": [], "modified": ["README.md"],
    })
}
