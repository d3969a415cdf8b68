//! A server that says nothing more.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// A way to the server that may fall silent under a question: then nothing comes through any more on that connection,
/// without a word. Others get through.
struct SilentWay {
    url: String,
    /// Whether the next connection that is asked about bodies falls silent.
    falls_silent: Arc<AtomicBool>,
    _directory: TempDir,
}

impl SilentWay {
    fn to_new_database() -> Self {
        let directory = TempDir::new().unwrap();
        let url = mariadb::create();
        let (database, server) = url.split_once("?socket=").unwrap();
        let (path, server) = (directory.path().join("way.sock"), server.to_owned());
        let falls_silent = Arc::new(AtomicBool::new(false));
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let url = format!("{database}?socket={}", path.display());
        let silent = Arc::clone(&falls_silent);
        crate::env::spawn("test way to a server", async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = tokio::net::UnixStream::connect(&server).await.unwrap();
                crate::env::spawn("test connection to a server", between(client, server, Arc::clone(&silent)));
            }
        });
        Self { url, falls_silent, _directory: directory }
    }
}

/// Passes on what each says, until a question about bodies is to get no answer.
async fn between(client: tokio::net::UnixStream, server: tokio::net::UnixStream, falls_silent: Arc<AtomicBool>) {
    const QUESTION: &[u8] = b"message_payload";
    let (mut client_says, mut to_client) = client.into_split();
    let (mut server_says, mut to_server) = server.into_split();
    let answers = async {
        let _ = tokio::io::copy(&mut server_says, &mut to_client).await;
    };
    let questions = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = client_says.read(&mut bytes).await {
            let is_question = bytes[..length].windows(QUESTION.len()).any(|window| window == QUESTION);
            if is_question && falls_silent.swap(false, Ordering::SeqCst) {
                return std::future::pending().await;
            }
            if to_server.write_all(&bytes[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(answers, questions);
}

// TL-3, TL-7
#[tokio::test]
async fn a_server_that_has_gone_without_a_word_is_waited_for_within_bounds_and_its_connection_is_given_up() {
    const READERS: u32 = 2;
    let way = SilentWay::to_new_database();
    let url: DatabaseUrl = way.url.parse().unwrap();
    let runtime = Fixture::with(|options| {
        options.database_url = Some(url);
        options.lease_time = LeaseTime::Database;
        options.readers = READERS;
        options.read_timeout = Duration::from_secs(1);
    })
    .await;
    let id = runtime.emit(vec![runtime.message("sink", runtime.now())]).await[0];
    // More often than there are connections: none of those that fell silent is kept.
    for _ in 0..2 * READERS {
        way.falls_silent.store(true, Ordering::SeqCst);
        let unanswered = runtime.store.payloads(&[id]).await;
        assert!(matches!(unanswered, Err(StoreError::Unavailable(_))), "{unanswered:?}");
        assert_eq!(runtime.store.message_entries(&[id]).await.unwrap().len(), 1, "others are answered");
    }
    assert_eq!(runtime.store.payloads(&[id]).await.unwrap().len(), 1);
}
