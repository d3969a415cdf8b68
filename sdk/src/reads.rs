//! What `prepare` decides, and the batch reads that it may ask for.

use crate::Header;

/// What [`Connector::prepare`](crate::Connector::prepare) made of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepared<State> {
    /// It is of no interest. The event is done.
    Ignore {
        /// Why, for people.
        reason: String,
    },
    /// It is to be run.
    Run {
        /// What `run` gets.
        state: State,
        /// What is to be read first.
        reads: Vec<Read>,
    },
}

impl<State> Prepared<State> {
    /// The event is of no interest, for this reason.
    pub fn ignore(reason: impl Into<String>) -> Self {
        Self::Ignore { reason: reason.into() }
    }

    /// The event is to be run with this state, and nothing has to be read.
    pub fn run(state: State) -> Self {
        Self::Run { state, reads: Vec::new() }
    }

    /// The event is to be run with this state once this was read.
    pub fn run_with(state: State, reads: Vec<Read>) -> Self {
        Self::Run { state, reads }
    }
}

/// A wish to read records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The reader, as in the manifest.
    pub reader: String,
    /// The keys to look up. The host merges those of many events and asks for each once.
    pub keys: Vec<String>,
}

/// What was found for one key of one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The reader.
    pub reader: String,
    /// The key.
    pub key: String,
    /// The record, or none if the reader has none of this key.
    pub value: Option<Vec<u8>>,
}

/// An HTTP request that the host makes for a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// The method, in upper case.
    pub method: String,
    /// Path and query, beginning with `/`. The origin and the credentials are the operator's.
    pub path: String,
    /// Headers.
    pub headers: Vec<Header>,
    /// The body, which may be empty.
    pub body: Vec<u8>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<Header>,
    /// The body, which may be empty.
    pub body: Vec<u8>,
}
