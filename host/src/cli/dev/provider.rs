//! The provider behind the packs' readers: it gives the answers of the fixture that was sent last.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use http::StatusCode;

use super::say;
use crate::cli::fixture::RecordedAnswer;
use crate::guest::ReadResponse;
use crate::rig::receiver::{Received, Receiver, Reply};

/// Remaining answers by pack and reader.
type Answers = BTreeMap<(String, String), VecDeque<ReadResponse>>;

/// A server with prepared answers; it stops when this is dropped.
pub(super) struct Provider {
    receiver: Receiver,
    answers: Arc<Mutex<Answers>>,
}

impl Provider {
    /// Starts a provider without answers.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let answers = Arc::new(Mutex::new(Answers::new()));
        let given = Arc::clone(&answers);
        let receiver = Receiver::start(move |asked| answer(&given, &asked)).await?;
        Ok(Self { receiver, answers })
    }

    /// Its address. Paths of a reader begin with `/PACK/READER`.
    pub(super) fn address(&self) -> SocketAddr {
        self.receiver.address
    }

    /// Sets the answers for a pack's readers, one per call.
    pub(super) fn expect(&self, pack: &str, answers: BTreeMap<String, Vec<RecordedAnswer>>) -> anyhow::Result<()> {
        let mut told = Answers::new();
        for (reader, answers) in answers {
            let answers = answers.into_iter().map(RecordedAnswer::response).collect::<anyhow::Result<_>>();
            let answers = answers.with_context(|| format!("answers of `{reader}`"))?;
            told.insert((pack.to_owned(), reader), answers);
        }
        let mut known = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _), _| of != pack);
        known.extend(told);
        Ok(())
    }
}

/// The next answer. The last one repeats, because failed reads are retried.
fn answer(answers: &Mutex<Answers>, asked: &Received) -> Reply {
    let mut parts = asked.path.trim_start_matches('/').splitn(3, '/');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let (pack, reader, path) = (part(), part(), part());
    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
    let left = answers.get_mut(&(pack.clone(), reader.clone()));
    let next = left.and_then(|left| if left.len() > 1 { left.pop_front() } else { left.front().cloned() });
    match next {
        Some(ReadResponse { status, headers, body }) => Reply::Answer { status, headers, body },
        None => {
            say(&format!(
                "  reader `{reader}` of {pack} asked for /{path}, and the fixture has no answer: add one to \"answers\""
            ));
            Reply::Status(StatusCode::NOT_IMPLEMENTED)
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;
    use crate::model::time::Timestamp;

    fn asked(answers: &Mutex<Answers>, path: &str) -> (u16, Bytes) {
        let (headers, at) = (HeaderMap::new(), Timestamp::default());
        let received = Received { id: String::new(), path: path.to_owned(), headers, body: Bytes::new(), at };
        match answer(answers, &received) {
            Reply::Answer { status, body, .. } => (status.as_u16(), body),
            Reply::Status(status) => (status.as_u16(), Bytes::new()),
            other @ (Reply::Late(_) | Reply::Hangup) => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn answers_are_given_in_order_and_the_last_one_again_until_another_fixture_has_others() {
        let provider = Provider::start().await.unwrap();
        let expect = |text: &str| provider.expect("hubspot", serde_json::from_str(text).unwrap()).unwrap();
        let next = |path| asked(&provider.answers, path);
        assert_eq!(next("/hubspot/contacts/crm/v3").0, 501);
        expect(r#"{ "contacts": [ { "status": 429 }, { "status": 200, "body": [1] } ] }"#);
        assert_eq!(next("/hubspot/contacts/crm/v3").0, 429);
        for _ in 0..2 {
            assert_eq!(next("/hubspot/contacts/crm/v3"), (200, Bytes::from_static(b"[1]")));
        }
        assert_eq!(next("/hubspot/deals/crm/v3").0, 501);
        expect("{}");
        assert_eq!(next("/hubspot/contacts/crm/v3").0, 501);
    }
}
