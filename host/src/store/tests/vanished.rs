//! Hosts and servers that say nothing more. Nobody waits for them for long, and whether something was committed is said
//! as it is.

use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::*;
use crate::store::engine::connection::Connection;
use crate::store::engine::server::{Isolation, Server};
use crate::store::engine::values::values;

async fn begin(patience: Patience) -> Fixture {
    Fixture::with(|options| {
        options.database_url = Some(mariadb::create_database());
        options.patience = patience;
    })
    .await
}

// CLM-6, WRK-2: lanes that somebody holds who does not come back.
#[tokio::test]
async fn what_waits_for_a_lane_keeps_no_lease_from_being_renewed() {
    let lock_wait = Duration::from_secs(1);
    let (attempt, attempts) = (Duration::from_secs(60), Duration::from_secs(4));
    let fixture = begin(Patience { lock_wait, attempt, attempts, idle: None }).await;
    for lane in ["a", "b", "c", "other"] {
        fixture.deliver(lane, Some(lane)).await;
    }
    let items = fixture.claim(4).await;
    let (stuck, other) = (&items[..3], &items[3]);
    let mut holder = Tampering::with(&fixture).await;
    holder.connection().begin().await.unwrap();
    holder.count("SELECT count(*) FROM (SELECT id FROM lane WHERE `key` <> 'other' FOR UPDATE) AS held").await;

    let finishes = stuck.iter().map(|item| async {
        loop {
            match fixture.store.finish(fixture.ending(item, done(vec![]))).await {
                Err(StoreError::Unavailable(_)) => {}
                answer => break answer.unwrap(),
            }
        }
    });
    let renewals = async {
        for _ in 0..4 {
            let rows = vec![(other.id, other.lease, other.epoch)];
            let renewal = Renewal { rows, lease_duration: LEASE, now: fixture.now() };
            assert_eq!(fixture.store.renew(renewal).await.unwrap(), [other.id], "while the lanes are held");
        }
        holder.let_go().await;
    };
    let (finished, ()) = tokio::join!(futures_util::future::join_all(finishes), renewals);
    assert_eq!(finished, [Finished::Applied, Finished::Applied, Finished::Applied]);
    fixture.assert_counted().await;
}

// CLM-3: a host that vanished in the middle of a transaction.
#[tokio::test]
async fn the_server_ends_a_transaction_of_which_it_hears_nothing() {
    let second = Duration::from_secs(1);
    let (lock_wait, attempt) = (second * 20, second * 60);
    let fixture = begin(Patience { lock_wait, attempt, attempts: attempt, idle: Some(second) }).await;
    fixture.deliver("d-1", Some("repo")).await;
    let item = fixture.claim(1).await.pop().unwrap();
    let url = fixture.options.database_url.clone().unwrap();
    let server = Server::open(&url, fixture.store.shard_count(), 0, fixture.options.patience).await.unwrap();
    let mut vanished = server.connect(Isolation::ReadCommitted).await.unwrap();
    let mut session = Connection::MySql { connection: &mut vanished, engine: server.engine() };
    session.begin().await.unwrap();
    session.fetch_all("SELECT id FROM lane FOR UPDATE", values![]).await.unwrap();
    assert_eq!(fixture.finish(&item, done(vec![])).await, Finished::Applied);
    assert_eq!(fixture.store.attempts_and_conflicts().1, 0, "it waited for its turn, and had it");
    drop(vanished);
}

/// Stands between a store and its server, and keeps the server's answers to itself if told to.
struct Proxy {
    directory: TempDir,
    silent: watch::Sender<bool>,
    /// Whether it falls silent with the next commit.
    at_commit: watch::Sender<bool>,
}

impl Proxy {
    fn before(server: PathBuf) -> Self {
        let directory = TempDir::new().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let (silent, at_commit) = (watch::Sender::new(false), watch::Sender::new(false));
        let (silence, commit) = (silent.clone(), at_commit.clone());
        drop(crate::env::spawn("proxy", async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, silence, commit) =
                    (UnixStream::connect(&server).await.unwrap(), silence.clone(), commit.clone());
                drop(crate::env::spawn("proxied connection", proxied(client, server, silence, commit)));
            }
        }));
        Self { directory, silent, at_commit }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

/// Until either side hangs up.
async fn proxied(client: UnixStream, server: UnixStream, silent: watch::Sender<bool>, at_commit: watch::Sender<bool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut heard = silent.subscribe();
    let requests = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
            if *at_commit.borrow() && bytes[..count].windows(6).any(|word| word == b"COMMIT") {
                silent.send_replace(true);
            }
            to_server.write_all(&bytes[..count]).await.unwrap();
        }
    };
    let answers = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            heard.wait_for(|silent| !silent).await.unwrap();
            if to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = answers => {}
    }
}

// ADM-3, TL-7: a server that does not answer is not waited for longer than a lease allows, and what became of a commit
// is not guessed.
#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_and_found_again() {
    let url = mariadb::create_database();
    let proxy = Proxy::before(url.socket());
    let second = Duration::from_secs(1);
    let fixture = Fixture::with(|options| {
        options.database_url = Some(url.through(&proxy.socket()));
        options.patience = Patience { lock_wait: second, attempt: second * 3, attempts: second * 4, idle: None };
    })
    .await;
    let store = &fixture.store;
    let delivery = |key: &str| fixture.delivery(vec![fixture.event(key, None, key)]);
    let again = async |key: &str| {
        loop {
            match store.enqueue(delivery(key)).await {
                Err(StoreError::Unavailable(_)) => tokio::task::yield_now().await,
                answer => break answer.unwrap(),
            }
        }
    };
    fixture.deliver("d-1", None).await;

    proxy.silent.send_replace(true);
    let (stored, claimed) = tokio::join!(store.enqueue(delivery("d-2")), store.claim(fixture.request(1)));
    assert!(matches!(&stored, Err(StoreError::Unavailable(_))), "{stored:?}");
    assert!(matches!(&claimed, Err(StoreError::Unavailable(_))), "{claimed:?}");
    // Nor can it be reached anew: that is no full queue.
    let stored = store.enqueue(delivery("d-2")).await;
    assert!(matches!(&stored, Err(StoreError::Unavailable(_))), "{stored:?}");
    proxy.silent.send_replace(false);
    assert!(matches!(again("d-2").await, Enqueued::Stored { .. }), "it had not been committed");

    proxy.at_commit.send_replace(true);
    let stored = store.enqueue(delivery("d-3")).await;
    assert!(matches!(&stored, Err(StoreError::Unknown(_))), "{stored:?}");
    proxy.at_commit.send_replace(false);
    proxy.silent.send_replace(false);
    assert!(matches!(again("d-3").await, Enqueued::Duplicate { .. }), "it had");
    fixture.assert_counted().await;
}

// ADM-4: what goes into no packet is not sent: the server would hang up on everybody.
#[tokio::test]
async fn what_goes_into_no_packet_is_refused_before_it_is_sent() {
    let fixture = Fixture::on_server().await;
    let packet = usize::try_from(fixture.store.packet_bytes().unwrap()).unwrap();
    let margin = usize::try_from(PACKET_MARGIN_BYTES).unwrap();
    let body = |bytes: usize| bytes::Bytes::from(vec![0; bytes]);
    let event = |key: &str, bytes: usize| NewEvent { body: body(bytes), ..fixture.event(key, None, key) };
    let refused = fixture.store.enqueue(fixture.delivery(vec![event("d-1", packet - margin + 1)])).await;
    assert!(matches!(&refused, Err(StoreError::Unstorable(why)) if why.contains("max_allowed_packet")), "{refused:?}");
    let stored = fixture.store.enqueue(fixture.delivery(vec![event("d-1", packet - margin)])).await;
    assert!(matches!(stored, Ok(Enqueued::Stored { .. })), "{stored:?}");
    let item = fixture.claim(1).await.pop().unwrap();
    let message = crate::model::message::NewMessage { body: body(packet), ..fixture.message("sink", START) };
    let refused = fixture.store.finish(fixture.ending(&item, done(vec![message]))).await;
    assert!(matches!(&refused, Err(StoreError::Unstorable(_))), "{refused:?}");
}

// CLM-3: what stays in its lane does not wait for it. Whose line it is, is read and not held.
#[tokio::test]
async fn a_row_is_given_back_while_somebody_has_its_lane() {
    let second = Duration::from_secs(1);
    let fixture = begin(Patience { lock_wait: second, attempt: second * 60, attempts: second * 5, idle: None }).await;
    fixture.deliver("d-1", Some("repo")).await;
    let item = fixture.claim(1).await.pop().unwrap();
    let mut holder = Tampering::with(&fixture).await;
    holder.connection().begin().await.unwrap();
    holder.count("SELECT count(*) FROM (SELECT id FROM lane FOR UPDATE) AS held").await;
    assert_eq!(fixture.finish(&item, Disposition::Release).await, Finished::Applied);
    holder.let_go().await;
    assert_eq!(fixture.claim(1).await.len(), 1);
}
