//! Native tests of a connector: a plain `#[test]`, an [`event`], and a [`TestHost`] that answers the imports.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::log::Level;
use crate::{
    Action, Connector, Due, DueAction, Event, Failure, Header, HttpRequest, HttpResponse, Output, Prepared, Read,
    Reading, Timestamp,
};

/// An event with these headers and this body, in its first attempt.
pub fn event(headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Event {
    Event {
        id: "evt_0000000000007000800000000000000a".to_owned(),
        namespace: "test".to_owned(),
        route: "test".to_owned(),
        route_version: 1,
        source_key: None,
        delivery_key: "delivery-1".to_owned(),
        received_at: Timestamp::from_millis(1_700_000_000_000),
        content_type: "application/json".to_owned(),
        headers: headers.iter().map(|(name, value)| Header::new(*name, *value)).collect(),
        body: body.into(),
        attempt: 1,
    }
}

/// The due action that `apply` gets for an action of [`event`], in its first attempt.
pub fn due(action: &Action) -> DueAction {
    let stored_at = Timestamp::from_millis(1_700_000_000_000);
    DueAction {
        id: "msg_0000000000007000800000000000000a".to_owned(),
        namespace: "test".to_owned(),
        event_id: "evt_0000000000007000800000000000000a".to_owned(),
        name: action.name.clone(),
        body: action.body.clone(),
        due_at: match action.due {
            Due::Now => stored_at,
            Due::After(delay) => stored_at + delay,
            Due::At(time) => time,
        },
        attempt: 1,
    }
}

/// A host for tests: it answers [`crate::config`], [`crate::clock`], [`crate::random`] and [`crate::log`].
#[derive(Debug, Clone, Default)]
pub struct TestHost {
    settings: HashMap<String, String>,
    now: Option<Timestamp>,
    random: u64,
    logged: Vec<(Level, String)>,
    records: HashMap<(String, String), Vec<u8>>,
    provider: Option<Provider>,
}

/// Answers the requests of readers in a test.
type Provider = fn(&str, &HttpRequest) -> HttpResponse;

thread_local! {
    static HOST: RefCell<TestHost> = RefCell::new(TestHost::new());
}

impl TestHost {
    /// A host without settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a setting.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Adds a record of a reader, without the provider's protocol.
    pub fn record(mut self, reader: impl Into<String>, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.records.insert((reader.into(), key.into()), value.into());
        self
    }

    /// Sets a provider that answers the requests of readers, through the connector's `encode_read` and `decode_read`.
    ///
    /// ```
    /// use forebay_sdk::testing::{TestHost, event};
    /// use forebay_sdk::{Connector, Event, Failure, HttpRequest, HttpResponse, Output, Prepared, Read, Reading};
    ///
    /// struct Names;
    ///
    /// impl Connector for Names {
    ///     type State = String;
    ///
    ///     fn prepare(event: &Event) -> Result<Prepared<String>, Failure> {
    ///         let id: String = event.json()?;
    ///         Ok(Prepared::run(id.clone()).reading(Read::one("names", id)))
    ///     }
    ///
    ///     fn encode_read(_: &str, keys: &[String]) -> Result<HttpRequest, Failure> {
    ///         HttpRequest::post_json("/names", &keys)
    ///     }
    ///
    ///     fn decode_read(_: &str, _: &[String], response: &HttpResponse) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    ///         let names: Vec<(String, String)> = response.json()?;
    ///         Ok(names.into_iter().map(|(id, name)| (id, name.into_bytes())).collect())
    ///     }
    ///
    ///     fn run(_: &Event, id: String, readings: &[Reading]) -> Result<Output, Failure> {
    ///         let name = readings[0].value.as_deref().unwrap_or(b"nobody");
    ///         Ok(Output::new().note(format!("{id} is {}", String::from_utf8_lossy(name))))
    ///     }
    /// }
    ///
    /// let mut host = TestHost::new().provider(|reader, request| {
    ///     assert_eq!((reader, request.body.as_slice()), ("names", &br#"["7"]"#[..]));
    ///     HttpResponse::json_body(200, &[("7", "Ada")]).unwrap()
    /// });
    /// let output = host.flow::<Names>(&event(&[], r#""7""#)).unwrap().unwrap();
    /// assert_eq!(output.note.as_deref(), Some("7 is Ada"));
    /// ```
    pub fn provider(mut self, provider: fn(&str, &HttpRequest) -> HttpResponse) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Runs `body`, and answers its imports.
    pub fn call<R>(&mut self, body: impl FnOnce() -> R) -> R {
        HOST.with(|host| host.replace(self.clone()));
        let result = body();
        *self = HOST.with(|host| host.replace(TestHost::new()));
        result
    }

    /// The lines logged so far.
    pub fn logged(&self) -> &[(Level, String)] {
        &self.logged
    }

    /// Prepares and runs an event as the host does: `State` is written to JSON and read back, and reads are answered by
    /// the provider or the records of this host. `None` if the connector ignores the event.
    pub fn flow<C: Connector>(&mut self, event: &Event) -> Result<Option<Output>, Failure> {
        self.now = Some(event.received_at);
        let (records, provider) = (self.records.clone(), self.provider);
        self.call(|| match C::prepare(event)? {
            Prepared::Ignore { .. } => Ok(None),
            Prepared::Run { state, reads } => {
                let state = serde_json::from_slice(&serde_json::to_vec(&state)?)?;
                let readings = read::<C>(reads, records, provider)?;
                C::run(event, state, &readings).map(Some)
            }
        })
    }

    /// Applies a due action as the host does.
    pub fn apply<C: Connector>(&mut self, action: &DueAction) -> Result<Output, Failure> {
        self.now = Some(action.due_at);
        self.call(|| C::apply(action))
    }
}

/// The readings of a host with these records and this provider.
fn read<C: Connector>(
    reads: Vec<Read>,
    mut records: HashMap<(String, String), Vec<u8>>,
    provider: Option<Provider>,
) -> Result<Vec<Reading>, Failure> {
    let mut readings = Vec::new();
    for Read { reader, keys } in reads {
        if let Some(provider) = provider {
            let response = provider(&reader, &C::encode_read(&reader, &keys)?);
            let found = C::decode_read(&reader, &keys, &response)?;
            records.extend(found.into_iter().map(|(key, value)| ((reader.clone(), key), value)));
        }
        for key in keys {
            let value = records.get(&(reader.clone(), key.clone())).cloned();
            readings.push(Reading { reader: reader.clone(), key, value });
        }
    }
    Ok(readings)
}

pub(crate) fn log(level: Level, message: &str) {
    HOST.with(|host| host.borrow_mut().logged.push((level, message.to_owned())));
}

pub(crate) fn setting(name: &str) -> Option<String> {
    HOST.with(|host| host.borrow().settings.get(name).cloned())
}

pub(crate) fn now() -> Timestamp {
    HOST.with(|host| host.borrow().now).unwrap_or(Timestamp::from_millis(0))
}

/// A fixed sequence (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>), the same in every test.
pub(crate) fn random() -> u64 {
    HOST.with(|host| {
        let mut host = host.borrow_mut();
        host.random = host.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (host.random ^ (host.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}
