//! The composition root: a configuration in, a running host out.
//!
//! ```text
//!  start   data directory ─> listeners ─> store ─> admin ─> secrets ─> guests ─> destinations ─> publisher ─> timeline ─>
//!          supervisor ─> intake ─> retention
//!  stop    intake ─> retention ─> supervisor ─> timeline ─> publisher ─> admin ─> store
//! ```
//!
//! Intake opens last and closes first: what is admitted has somewhere to go. Admin opens early and closes late: a host
//! that does not come up, or does not go down, can be asked why.
//!
//! Invariants:
//! - A start that fails stops what it has started, in the order of a stop, and says which step failed.
//! - A stop takes no longer than it is given. What is left by then is left to its leases; nothing is lost.
//! - This is the one place that sees every module. Nothing imports it but the command line and the tests.

mod check;
mod descriptors;
mod directories;
mod doctor;
mod needs;
mod options;
mod packs;
mod running;
#[cfg(test)]
mod tests;
mod token;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::admin;
use crate::claim;
use crate::env::Env;
use crate::execute::{self, HttpCaller};
use crate::guest::{GuestHost, LoadError};
use crate::intake::{self, RouteTable};
use crate::model::ids::RuntimeId;
use crate::model::pack::Manifest;
use crate::outbound::{Client, ClientError};
use crate::publish::{self, PublishError};
use crate::secrets::{SecretError, Secrets};
use crate::store::{self, Store, StoreError};
use crate::supervise::{self, DestinationBook, Keeper, SuperviseError};
use crate::telemetry::{self, TelemetryError};
use crate::timeline::{self, TimelineError};

pub use crate::config::{Config, ConfigError, FlagSetting, Sources, reference};
pub use check::{check, check_environment};
pub use doctor::{Finding, Health, diagnose};
pub use running::{Running, ShutdownError};

/// What a host is started with beside its configuration.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The data directory; made if it is not there.
    pub data: PathBuf,
    /// The secrets directory; by default `secrets` in the data directory.
    pub secrets: Option<PathBuf>,
    /// The pack files to serve.
    pub packs: Vec<PathBuf>,
}

/// Why a host does not start. Nothing of it runs any more.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A directory cannot be used.
    #[error("{}: {reason}", path.display())]
    Directory {
        /// Which one.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The connections that intake may have do not fit the process's limit.
    #[error(
        "intake.requests_max = {requests_max} needs {needed} file descriptors, and this process may have {limit}: raise the \
         limit (LimitNOFILE, ulimit -n), or lower intake.requests_max"
    )]
    Descriptors {
        /// What is configured.
        requests_max: usize,
        /// The descriptors that it takes, with the host's own files.
        needed: usize,
        /// The descriptors that there are.
        limit: u64,
    },
    /// A pack file cannot be served.
    #[error("{}: {reason}", path.display())]
    Pack {
        /// Which one.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The admin token cannot be had.
    #[error("the admin token: {0}")]
    Token(String),
    /// An address cannot be listened on.
    #[error("{listener} cannot listen on {address}: {error}")]
    Listen {
        /// Which listener.
        listener: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// The threads for guests cannot be started.
    #[error("threads for guests cannot be started: {0}")]
    Threads(std::io::Error),
    /// The secrets directory cannot be used.
    #[error(transparent)]
    Secrets(#[from] SecretError),
    /// The database's URL cannot be used.
    #[error("`database.url` cannot be used: {0}")]
    Database(String),
    /// The database server takes smaller packets than the configuration needs.
    #[error(
        "`{key}` allows {bytes} bytes, and the database server takes packets of {packet}: set max_allowed_packet on the server to \
         at least {needed}, or lower `{key}`"
    )]
    Packet {
        /// The key.
        key: &'static str,
        /// What it allows.
        bytes: u64,
        /// What the server takes.
        packet: u64,
        /// What it would have to take.
        needed: u64,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The guest engine cannot start.
    #[error("the guest engine cannot start: {0}")]
    Guests(#[from] LoadError),
    /// The publisher cannot start.
    #[error("the publisher cannot start: {0}")]
    Publish(#[from] PublishError),
    /// Readers cannot call.
    #[error("readers cannot call: {0}")]
    Outbound(#[from] ClientError),
    /// The timeline cannot start.
    #[error("the timeline cannot start: {0}")]
    Timeline(#[from] TimelineError),
    /// The packs cannot be served together.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// Logs or metrics cannot be had.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
}

/// The host.
pub struct App;

impl App {
    /// Starts a host on the calling runtime, and a runtime of its own for guests. Returns once it takes deliveries;
    /// packs may still be compiling.
    pub async fn start(config: Config, launch: Launch) -> Result<Running, StartError> {
        let env = Env::system();
        let metrics = telemetry::metrics()?;
        describe_metrics();
        descriptors::provide(&config)?;
        let packs = packs::read(&launch.packs)?;
        let token = token::read(config.admin.token.as_ref()).map_err(StartError::Token)?;
        if options::shared_database(&config)?.is_none() {
            directories::check_store(&launch.data)?;
        }
        let directories = directories::prepare(&launch)?;
        let intake = listen("intake", config.intake.listen).await?;
        let admin = listen("admin", config.admin.listen).await?;
        let store = Store::open(options::store(&config, &directories)?, env.clone()).await?;
        if let Some(packet) = store.packet_bytes() {
            options::check_packet(&config, packet)?;
        }
        let keeper = Keeper::new(options::retention(&config), store.clone(), env.clone());
        let mut running = Running::begin(store, metrics, env, keeper, [intake.addr, admin.addr]);
        running.serve_admin(admin.listener, token);
        match start_work(&mut running, &config, &directories, packs, intake.listener).await {
            Ok(()) => {
                options::announce(&config, &running);
                Ok(running)
            }
            Err(error) => {
                if let Err(stuck) = running.shutdown(config.shutdown.timeout).await {
                    tracing::error!(error = %stuck, "what was started does not stop");
                }
                Err(error)
            }
        }
    }
}

/// Tells the recorder what the metrics of every module mean.
fn describe_metrics() {
    admin::describe();
    claim::describe();
    execute::describe();
    intake::describe();
    publish::describe();
    store::describe();
    supervise::describe();
    timeline::describe();
}

/// Starts everything between the store and the first delivery.
async fn start_work(
    running: &mut Running,
    config: &Config,
    directories: &directories::Directories,
    packs: Vec<crate::guest::PackFile>,
    intake: TcpListener,
) -> Result<(), StartError> {
    let env = running.env().clone();
    let runtime = RuntimeId::new(env.now(), env.id_entropy());
    let secrets = Secrets::open(&directories.secrets, env.clone())?;
    let guests = GuestHost::start(options::guest(config, directories), env.clone())?;
    let book = DestinationBook::open(options::destinations(config, &secrets, running.store())).await?;
    running.start_publisher(options::publish(config, running.addresses()), book, secrets.clone())?;
    running.start_timeline(options::timeline(config, directories), runtime).await?;
    let routes = RouteTable::empty();
    let client = Client::new(&options::outbound(config, running.addresses()))?;
    let manifests: Vec<Manifest> = packs.iter().map(|pack| pack.manifest.clone()).collect();
    let caller = Arc::new(HttpCaller::new(client, secrets.clone(), config.readers.clone()));
    running
        .start_supervisor(options::supervise(config, directories, &guests), packs, guests, caller, routes.clone())
        .await?;
    needs::warn(&needs::look(config, &routes, &manifests, &secrets));
    running.serve_intake(intake, options::intake(config), routes, secrets);
    running.start_keeper();
    Ok(())
}

/// A listener and where it really listens: port 0 asks the system for a free one.
struct Bound {
    listener: TcpListener,
    addr: SocketAddr,
}

async fn listen(name: &'static str, address: SocketAddr) -> Result<Bound, StartError> {
    let failed = |error| StartError::Listen { listener: name, address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    Ok(Bound { listener, addr })
}
