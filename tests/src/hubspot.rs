//! HubSpot at both ends: it delivers signed batches of changes, and answers batch reads of contacts.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use forebay::env::{self, Env};
use forebay::rig::http::{Answer, Connection};
use forebay::rig::site::NAMESPACE;
use hmac::{Hmac, KeyInit, Mac};
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the app signs with.
pub const SECRET: &str = "hubspot client secret";
/// What the private app reads with.
pub const TOKEN: &str = "pat-eu1-token";
/// Where the host is reached, as HubSpot knows it.
pub const PUBLIC_URL: &str = "https://hooks.example.com";

/// What the provider does with a batch read.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// Contacts that it does not have.
    pub missing: BTreeSet<u64>,
    /// Contacts that make it refuse the whole request.
    pub poisonous: BTreeSet<u64>,
    /// Contacts over which it comes to grief: `500` for the whole request.
    pub crashing: BTreeSet<u64>,
    /// It answers this status and nothing else, with `retry-after: 1`.
    pub refuses: Option<u16>,
    /// It sends those who ask here.
    pub redirects_to: Option<String>,
    /// It does not answer.
    pub silent: bool,
    /// It answers with a body without end.
    pub floods: bool,
}

/// One batch read that it got.
#[derive(Debug, Clone)]
pub struct BatchRead {
    /// The `authorization` header.
    pub authorization: String,
    /// The contacts that were asked for.
    pub contacts: Vec<u64>,
}

/// The provider's API on a port of its own; it stops when this is dropped.
pub struct HubSpot {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    behaviour: Behaviour,
    reads: Vec<BatchRead>,
}

impl Drop for HubSpot {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl HubSpot {
    /// Starts it.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("binding the provider's API")?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let serving = Arc::clone(&state);
        let accepting = env::spawn("provider API", async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(env::spawn("provider API connection", serve(stream, Arc::clone(&serving))));
            }
        });
        Ok(Self { address, state, accepting })
    }

    /// The configuration that makes the pack read here.
    pub fn settings(&self) -> String {
        format!(
            "[intake]\npublic_url = \"{PUBLIC_URL}\"\n[readers.hubspot]\npack = \"hubspot\"\norigin = \"http://{}/api\"\n",
            self.address
        )
    }

    /// From now on it behaves so.
    pub fn behave(&self, behaviour: Behaviour) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).behaviour = behaviour;
    }

    /// The batch reads that it got, in order.
    pub fn reads(&self) -> Vec<BatchRead> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).reads.clone()
    }
}

/// A change of a contact, as HubSpot writes it.
pub fn change(event: u64, contact: u64, occurred_at: i64) -> Value {
    json!({
        "eventId": event, "subscriptionId": 12, "portalId": 62515, "appId": 54321, "occurredAt": occurred_at,
        "subscriptionType": "contact.propertyChange", "attemptNumber": 0, "objectId": contact,
        "propertyName": "lifecyclestage", "propertyValue": "customer", "changeSource": "CRM_UI",
    })
}

/// Delivers a batch, signed for this address.
pub async fn deliver_to(intake: SocketAddr, public_url: &str, changes: &[Value]) -> anyhow::Result<Answer> {
    let path = format!("/in/{NAMESPACE}/hubspot");
    let (body, time) = (Value::from(changes).to_string(), Env::system().now().as_millis().to_string());
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())?;
    mac.update(format!("POST{public_url}{path}{body}{time}").as_bytes());
    let request = Request::post(&path)
        .header("host", "10.0.0.7:8080")
        .header("content-type", "application/json")
        .header("x-hubspot-request-timestamp", time)
        .header("x-hubspot-signature-v3", STANDARD.encode(mac.finalize().into_bytes()))
        .body(Full::new(Bytes::from(body)))?;
    Connection::open(intake).await?.send(request).await
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut stream = BufReader::new(stream);
    // A host that goes away ends it.
    while let Ok(Some(request)) = read_request(&mut stream).await {
        let behaviour = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.reads.push(request.clone());
            state.behaviour.clone()
        };
        if behaviour.silent {
            let _ = stream.read_u8().await;
            return;
        }
        if behaviour.floods {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n").await;
            while stream.write_all(&[b' '; 65_536]).await.is_ok() {}
            return;
        }
        if stream.write_all(answer(&behaviour, &request).as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(behaviour: &Behaviour, read: &BatchRead) -> String {
    let head = |status: u16, more: &str, body: &str| {
        format!(
            "HTTP/1.1 {status} Said\r\n{more}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    if let Some(status) = behaviour.refuses {
        return head(status, "retry-after: 1\r\n", "{}");
    }
    if let Some(elsewhere) = &behaviour.redirects_to {
        return head(302, &format!("location: {elsewhere}\r\n"), "");
    }
    if read.authorization != format!("Bearer {TOKEN}") {
        return head(401, "", r#"{"category":"INVALID_AUTHENTICATION"}"#);
    }
    if read.contacts.iter().any(|contact| behaviour.poisonous.contains(contact)) {
        return head(400, "", r#"{"category":"VALIDATION_ERROR"}"#);
    }
    if read.contacts.iter().any(|contact| behaviour.crashing.contains(contact)) {
        return head(500, "", "{}");
    }
    let found = read.contacts.iter().filter(|contact| !behaviour.missing.contains(contact));
    let results: Vec<Value> = found
        .map(|contact| {
            json!({ "id": contact.to_string(), "properties": { "email": format!("{contact}@example.com") }, "archived": false })
        })
        .collect();
    let status = if results.len() == read.contacts.len() { 200 } else { 207 };
    head(status, "", &json!({ "status": "COMPLETE", "results": results }).to_string())
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> anyhow::Result<Option<BatchRead>> {
    let mut first = String::new();
    if stream.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    anyhow::ensure!(first.starts_with("POST /api/crm/v3/objects/contacts/batch/read "), "{first}");
    let (mut length, mut authorization) = (0, String::new());
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse()?,
            "authorization" => value.trim().clone_into(&mut authorization),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let body: Value = serde_json::from_slice(&body)?;
    let inputs = body["inputs"].as_array().context("a batch read has inputs")?;
    let contact = |input: &Value| input["id"].as_str().and_then(|id| id.parse().ok()).context("an input has an id");
    Ok(Some(BatchRead { authorization, contacts: inputs.iter().map(contact).collect::<anyhow::Result<_>>()? }))
}
