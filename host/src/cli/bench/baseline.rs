//! The bare loop as a baseline for intake: axum, an HMAC over the body, and a group-committed insert into SQLite with
//! the store's durability. The ratio shows the cost of everything else: budgets, routes, keys, Events, lanes,
//! WorkItems.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::env;

/// Rows of one commit.
const COMMIT_ROWS_MAX: usize = 1_024;
/// Rows of one statement; the fixed sizes keep prepared statements few.
const STATEMENT_ROWS: [usize; 4] = [128, 32, 8, 1];
/// Requests that may wait for the writer.
const QUEUE_MAX: usize = 4_096;
/// Time that the writer waits for a lock, which no other process should hold.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

struct Row {
    delivery: String,
    body: Bytes,
    done: oneshot::Sender<()>,
}

#[derive(Clone)]
struct Intake {
    secret: Arc<[u8]>,
    rows: mpsc::Sender<Row>,
}

/// Prints its address on standard output, and serves until it is killed.
pub(super) async fn serve(data: &Path, secret: &[u8]) -> anyhow::Result<()> {
    let connection = open(&data.join("baseline.sqlite")).await?;
    let (rows, queue) = mpsc::channel(QUEUE_MAX);
    let writer = env::spawn("baseline writer", write(connection, queue));
    let app =
        Router::new().route("/in/{namespace}/{route}", post(admit)).with_state(Intake { secret: secret.into(), rows });
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", listener.local_addr()?)?;
    stdout.flush()?;
    tokio::select! {
        served = axum::serve(listener, app).into_future() => served.context("serving the baseline"),
        written = writer => written.context("the baseline's writer")?,
    }
}

async fn open(file: &Path) -> anyhow::Result<SqliteConnection> {
    let mut connection = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .connect()
        .await?;
    sqlx::query("create table delivery (id integer primary key, delivery text not null unique, body blob not null)")
        .execute(&mut connection)
        .await?;
    Ok(connection)
}

async fn admit(State(intake): State<Intake>, headers: HeaderMap, body: Bytes) -> (StatusCode, &'static str) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !is_signed(&intake.secret, &body, text("x-hub-signature-256")) {
        return (StatusCode::UNAUTHORIZED, "");
    }
    let (done, committed) = oneshot::channel();
    let row = Row { delivery: text("x-github-delivery").to_owned(), body, done };
    if intake.rows.send(row).await.is_err() || committed.await.is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "");
    }
    (StatusCode::ACCEPTED, "{\"duplicate\":false}")
}

fn is_signed(secret: &[u8], body: &[u8], signature: &str) -> bool {
    let Some(Ok(signature)) =
        signature.strip_prefix("sha256=").map(|digits| data_encoding::HEXLOWER.decode(digits.as_bytes()))
    else {
        return false;
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(body);
    mac.verify_slice(&signature).is_ok()
}

async fn write(mut connection: SqliteConnection, mut queue: mpsc::Receiver<Row>) -> anyhow::Result<()> {
    let statements = STATEMENT_ROWS.map(|rows| {
        let values = vec!["(?, ?)"; rows].join(", ");
        (rows, format!("insert into delivery (delivery, body) values {values} on conflict do nothing"))
    });
    let mut batch = Vec::with_capacity(COMMIT_ROWS_MAX);
    while queue.recv_many(&mut batch, COMMIT_ROWS_MAX).await > 0 {
        let mut transaction = connection.begin_with("begin immediate").await?;
        let mut rest = &batch[..];
        for (rows, statement) in &statements {
            while rest.len() >= *rows {
                let (now, later) = rest.split_at(*rows);
                let mut query = sqlx::query(AssertSqlSafe(statement.as_str()));
                for row in now {
                    query = query.bind(&row.delivery).bind(&row.body[..]);
                }
                query.execute(&mut *transaction).await?;
                rest = later;
            }
        }
        transaction.commit().await?;
        for row in batch.drain(..) {
            // A client that went away does not need its answer.
            let _ = row.done.send(());
        }
    }
    Ok(())
}
