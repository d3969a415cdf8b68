//! The result of `prepare`, and the batch reads that it may ask for.
//!
//! A reader is declared in `pack.toml`. `prepare` names keys of it. The host merges the keys of many events, lets
//! [`Connector::encode_read`](crate::Connector::encode_read) write one request, sends it, lets
//! [`Connector::decode_read`](crate::Connector::decode_read) parse the answer, and gives each event its own records.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Failure, Header};

/// The result of [`Connector::prepare`](crate::Connector::prepare).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepared<State> {
    /// Ignore the event, which is then done.
    Ignore {
        /// The reason, for operators.
        reason: String,
    },
    /// Run the event.
    Run {
        /// The state for `run`.
        state: State,
        /// The records to read first.
        reads: Vec<Read>,
    },
}

impl<State> Prepared<State> {
    /// Ignores the event for this reason.
    pub fn ignore(reason: impl Into<String>) -> Self {
        Self::Ignore { reason: reason.into() }
    }

    /// Runs the event with this state, without reads.
    pub fn run(state: State) -> Self {
        Self::Run { state, reads: Vec::new() }
    }

    /// Runs the event with this state after these reads.
    pub fn run_with(state: State, reads: Vec<Read>) -> Self {
        Self::Run { state, reads }
    }

    /// Adds a read.
    ///
    /// ```
    /// use forebay_sdk::{Prepared, Read};
    ///
    /// let prepared = Prepared::run("state").reading(Read::one("contacts", 501.to_string()));
    /// assert!(matches!(prepared, Prepared::Run { reads, .. } if reads == [Read::keys("contacts", ["501"])]));
    /// ```
    pub fn reading(mut self, read: Read) -> Self {
        if let Self::Run { reads, .. } = &mut self {
            reads.push(read);
        }
        self
    }
}

/// A read of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Name of the reader, declared in the manifest.
    pub reader: String,
    /// The keys to look up. The host merges the keys of many events and looks up each one once.
    pub keys: Vec<String>,
}

impl Read {
    /// A read of one record.
    pub fn one(reader: impl Into<String>, key: impl Into<String>) -> Self {
        Self { reader: reader.into(), keys: vec![key.into()] }
    }

    /// A read of many records.
    pub fn keys<K: Into<String>>(reader: impl Into<String>, keys: impl IntoIterator<Item = K>) -> Self {
        Self { reader: reader.into(), keys: keys.into_iter().map(K::into).collect() }
    }
}

/// The record of one key of one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The reader.
    pub reader: String,
    /// The key.
    pub key: String,
    /// The record; `None` if the reader has none for this key.
    pub value: Option<Vec<u8>>,
}

impl Reading {
    /// The record of this key as JSON; `None` if there is none.
    ///
    /// ```
    /// use forebay_sdk::Reading;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Contact {
    ///     email: String,
    /// }
    ///
    /// let readings = [Reading { reader: "contacts".into(), key: "501".into(), value: Some(br#"{"email":"a@b.example"}"#.into()) }];
    /// let contact: Option<Contact> = Reading::json(&readings, "contacts", "501").unwrap();
    /// assert_eq!(contact.unwrap().email, "a@b.example");
    /// assert!(Reading::json::<Contact>(&readings, "contacts", "502").unwrap().is_none());
    /// ```
    pub fn json<T: DeserializeOwned>(readings: &[Reading], reader: &str, key: &str) -> Result<Option<T>, Failure> {
        let found = readings.iter().find(|reading| reading.reader == reader && reading.key == key);
        let Some(value) = found.and_then(|reading| reading.value.as_ref()) else { return Ok(None) };
        serde_json::from_slice(value).map(Some).map_err(|error| {
            Failure::Other(format!(
                "a record of reader `{reader}` is not the JSON that was expected: {}",
                crate::event::what(&error)
            ))
        })
    }
}

/// An HTTP request for a reader. The host adds the secrets that the manifest names, and sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// The method, in upper case.
    pub method: String,
    /// Path and query, beginning with `/`. The operator sets origin and credentials.
    pub path: String,
    /// Headers. `host` selects one of the manifest's hosts.
    pub headers: Vec<Header>,
    /// The body, which may be empty.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// A `GET` of this path and query.
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: "GET".to_owned(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// A `POST` of this value as JSON.
    pub fn post_json(path: impl Into<String>, value: &impl Serialize) -> Result<Self, Failure> {
        Ok(Self {
            method: "POST".to_owned(),
            path: path.into(),
            headers: vec![Header::new("content-type", "application/json")],
            body: serde_json::to_vec(value)?,
        })
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push(Header::new(name, value));
        self
    }
}

/// The answer to such a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<Header>,
    /// The body, which may be empty.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// An answer with this value as its JSON body, for tests.
    pub fn json_body(status: u16, value: &impl Serialize) -> Result<Self, Failure> {
        let headers = vec![Header::new("content-type", "application/json")];
        Ok(Self { status, headers, body: serde_json::to_vec(value)? })
    }

    /// The body as JSON. The failure does not quote the body.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Failure::Other(format!("the answer is not the JSON that was expected: {}", crate::event::what(&error)))
        })
    }
}
