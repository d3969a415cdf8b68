//! Common parts of the queue's benchmarks: a store in its own folder or on a private server, and rows that are stored
//! as deliveries are. They run in this process, and measure the store, not a host.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use futures_util::future::try_join_all;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::env::Env;
use crate::model::ids::{EventId, LeaseToken, ReceiptId, WorkItemId};
use crate::model::names::{Namespace, PackName, RouteName};
use crate::model::pack::{Coalescing, GenerationNumber, Ordering};
use crate::model::queue::{QueueClass, QueueClasses};
use crate::model::reading::RunRecord;
use crate::model::work_item::{ClaimedWorkItem, WorkType};
use crate::rig::mariadb::MariaDb;
use crate::store::{
    ClaimRequest, Delivery, Disposition, Enqueued, Finish, Finished, Installing, LeaseTime, NewEvent, Patience, Store,
    StoreOptions,
};

/// Events of one delivery.
const DELIVERY_EVENTS: u64 = 1_000;
/// Concurrent deliveries: those of one commit, while the next are prepared.
const DELIVERIES_AT_ONCE: usize = 4;
/// Rows between two progress reports.
const REPORT_ROWS: u64 = 100_000;
/// Lease of rows: longer than any run.
const LEASE: Duration = Duration::from_secs(600);
/// The body of each event.
const BODY: &[u8] = b"{}";

/// The engine that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Database {
    /// The embedded engine, in a temporary folder
    Sqlite,
    /// A private server that is started for the run, with its default durability
    Mariadb,
}

/// Arguments of both benchmarks.
#[derive(Debug, Clone, Args)]
pub(super) struct On {
    /// The database
    #[arg(long, value_enum, default_value = "sqlite")]
    pub(super) database: Database,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// A store with the rows of the benchmark only.
pub(super) struct Queue {
    pub(super) store: Store,
    pub(super) env: Env,
    pub(super) pack: PackName,
    pub(super) generation: GenerationNumber,
    pub(super) route: RouteName,
    namespace: Namespace,
    directory: TempDir,
}

impl Queue {
    /// An empty store; on its own database if there is a server.
    pub(super) async fn open(server: Option<&MariaDb>, env: &Env) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let url = server.map(MariaDb::create_database).transpose()?;
        let database_url = url.map(|url| url.parse()).transpose().map_err(anyhow::Error::msg)?;
        let options = StoreOptions {
            data: directory.path().join("data"),
            lease_time: if database_url.is_some() { LeaseTime::Database } else { LeaseTime::Runtime },
            database_url,
            shards: 2,
            queue_requests_max: 4_096,
            queue_bytes_max: 64 << 20,
            readers: 4,
            read_timeout: Duration::from_secs(10),
            patience: Patience::within(Duration::from_secs(30)),
        };
        let store = Store::open(options, env.clone()).await?;
        let (namespace, pack, route) = ("bench".parse()?, "bench".parse()?, "bench".parse()?);
        store.ensure_namespaces(&[Namespace::clone(&namespace)], env.now()).await?;
        let component = Bytes::from_static(b"\0asm");
        let installed = store
            .install_pack(&pack, [1; 32], String::new(), component, Installing::Active, env.now())
            .await
            .context("installing the pack that rows are stored for")?;
        Ok(Self { store, env: env.clone(), pack, generation: installed.number, route, namespace, directory })
    }

    /// Its folder.
    pub(super) fn folder(&self) -> &Path {
        self.directory.path()
    }

    /// Stores `rows` events of one class, with the source that the caller gives for each number, and with progress on
    /// standard error.
    pub(super) async fn fill(
        &self,
        name: &str,
        rows: u64,
        class: QueueClass,
        source: impl Fn(u64) -> Option<String>,
    ) -> anyhow::Result<()> {
        let firsts: Vec<u64> = (0..rows).step_by(DELIVERY_EVENTS as usize).collect();
        let mut reported = 0;
        for group in firsts.chunks(DELIVERIES_AT_ONCE) {
            let deliveries = group.iter().map(|first| {
                let numbers = *first..rows.min(first + DELIVERY_EVENTS);
                self.delivery(numbers.map(|n| self.event(&format!("{name}-{n}"), class, source(n))).collect())
            });
            for answer in try_join_all(deliveries.map(|delivery| self.store.enqueue(delivery))).await? {
                ensure!(matches!(answer, Enqueued::Stored { .. }), "rows were not stored: {answer:?}");
            }
            let stored = rows.min(group[group.len() - 1] + DELIVERY_EVENTS);
            if stored - reported >= REPORT_ROWS {
                eprintln!("  {name}: {stored} of {rows} rows are stored");
                reported = stored;
            }
        }
        Ok(())
    }

    fn event(&self, key: &str, queue_class: QueueClass, source_key: Option<String>) -> NewEvent {
        let now = self.env.now();
        NewEvent {
            id: EventId::new(now, self.env.id_entropy()),
            work_item_id: WorkItemId::new(now, self.env.id_entropy()),
            delivery_key: key.to_owned(),
            source_key,
            queue_class,
            payload_digest: Sha256::digest(BODY).into(),
            body: Bytes::from_static(BODY),
        }
    }

    fn delivery(&self, events: Vec<NewEvent>) -> Delivery {
        let now = self.env.now();
        Delivery {
            receipt_id: ReceiptId::new(now, self.env.id_entropy()),
            namespace: self.namespace.clone(),
            pack: self.pack.clone(),
            generation: self.generation,
            route: self.route.clone(),
            content_type: "application/json".to_owned(),
            headers: Vec::new(),
            received_at: now,
            ordering: Ordering::Source,
            coalescing: Coalescing::None,
            events,
        }
    }

    /// Claims up to `rows_max` rows of these classes.
    pub(super) async fn claim(&self, rows_max: u32, classes: QueueClasses) -> anyhow::Result<Vec<ClaimedWorkItem>> {
        let now = self.env.now();
        let request = ClaimRequest {
            pack: self.pack.clone(),
            generations: vec![self.generation],
            work_types: vec![WorkType::ConnectorEvent],
            classes,
            preference: QueueClasses::NONE,
            only: None,
            rows_max,
            stale_only: false,
            lease: LeaseToken::new(now, self.env.id_entropy()),
            lease_duration: LEASE,
            now,
        };
        Ok(self.store.claim(request).await?)
    }

    /// Ends rows, all at once.
    pub(super) async fn finish(&self, items: &[ClaimedWorkItem], disposition: &Disposition) -> anyhow::Result<()> {
        let finishes = items.iter().map(|item| {
            self.store.finish(Finish {
                work_item_id: item.id,
                lease: item.lease,
                epoch: item.epoch,
                disposition: disposition.clone(),
                successor: None,
                now: self.env.now(),
            })
        });
        for finished in try_join_all(finishes).await? {
            ensure!(finished == Finished::Applied, "a row was not ended: {finished:?}");
        }
        Ok(())
    }
}

/// A success without a message.
pub(super) fn done() -> Disposition {
    Disposition::Done { note: None, ignored: false, messages: Vec::new(), record: RunRecord::none() }
}

/// Starts a server if the engine needs one.
pub(super) fn server(database: Database) -> anyhow::Result<Option<MariaDb>> {
    match database {
        Database::Sqlite => Ok(None),
        Database::Mariadb => MariaDb::start().map(Some),
    }
}

impl Database {
    /// Durability of a commit.
    pub(super) const fn durability(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite WAL, answered after the fsync",
            Self::Mariadb => "MariaDB, innodb_flush_log_at_trx_commit=1, no binary log, buffer pool of 256 MiB",
        }
    }
}
