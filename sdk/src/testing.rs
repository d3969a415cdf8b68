//! Testing a connector natively: a plain `#[test]`, an event made here, and a [`TestHost`] that answers the imports.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::log::Level;
use crate::{Action, Connector, Due, DueAction, Event, Failure, Header, Output, Prepared, Timestamp};

/// An event with these kept headers and this body, as a first attempt.
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

/// An action as `apply` gets it, had the event of [`event`] brought it about, as a first attempt.
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

/// What answers [`crate::config`], [`crate::clock`], [`crate::random`] and [`crate::log`] in a test.
#[derive(Debug, Clone, Default)]
pub struct TestHost {
    settings: HashMap<String, String>,
    now: Option<Timestamp>,
    random: u64,
    logged: Vec<(Level, String)>,
}

thread_local! {
    static HOST: RefCell<TestHost> = RefCell::new(TestHost::new());
}

impl TestHost {
    /// One without settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this setting.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Runs `body`, whose imports this host answers.
    pub fn call<R>(&mut self, body: impl FnOnce() -> R) -> R {
        HOST.with(|host| host.replace(self.clone()));
        let result = body();
        *self = HOST.with(|host| host.replace(TestHost::new()));
        result
    }

    /// What was logged so far.
    pub fn logged(&self) -> &[(Level, String)] {
        &self.logged
    }

    /// Prepares and runs an event as the host does, `State` written to JSON and read back in between. `None` if the
    /// connector ignores the event.
    pub fn flow<C: Connector>(&mut self, event: &Event) -> Result<Option<Output>, Failure> {
        self.now = Some(event.received_at);
        self.call(|| match C::prepare(event)? {
            Prepared::Ignore { .. } => Ok(None),
            Prepared::Run { state, .. } => {
                let state = serde_json::from_slice(&serde_json::to_vec(&state)?)?;
                C::run(event, state, &[]).map(Some)
            }
        })
    }

    /// Applies an action that came due, as the host does.
    pub fn apply<C: Connector>(&mut self, action: &DueAction) -> Result<Output, Failure> {
        self.now = Some(action.due_at);
        self.call(|| C::apply(action))
    }
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

/// A fixed sequence (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>): a test draws the same every time.
pub(crate) fn random() -> u64 {
    HOST.with(|host| {
        let mut host = host.borrow_mut();
        host.random = host.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (host.random ^ (host.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}
