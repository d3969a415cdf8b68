//! `forebay serve`: runs a host until a signal stops it.

use std::path::PathBuf;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Failure;
use crate::app::{self, App, Config, FlagSetting, Launch, Sources};
use crate::telemetry;

/// The default data directory.
pub(super) const DATA_DEFAULT: &str = "forebay-data";

const EXAMPLES: &str = "\
Examples:
  forebay serve --pack github.fpk
  forebay serve --config /etc/forebay.toml --data /var/lib/forebay --secrets /etc/forebay/secrets

SIGTERM and SIGINT stop the host: it takes no new work, finishes running work, and exits 0 within \
`shutdown.timeout_seconds`. A second signal exits at once; unfinished work continues after the next start.";

/// `forebay serve`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The configuration; without it, the defaults and the environment
    #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG")]
    config: Option<PathBuf>,
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
    /// The listener for deliveries; overrides `intake.listen`
    #[arg(long, value_name = "ADDRESS")]
    intake: Option<String>,
    /// The listener for operators; overrides `admin.listen`
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// A pack to serve; may be given several times
    #[arg(long = "pack", value_name = "FILE")]
    packs: Vec<PathBuf>,
    /// The directory of secrets, one file each; by default `secrets` in the data directory
    #[arg(long, value_name = "DIR")]
    secrets: Option<PathBuf>,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let config = load(&arguments)?;
    telemetry::start_logging(&config.log).map_err(|error| Failure::Usage(error.to_string()))?;
    app::check(&config).map_err(|error| Failure::Usage(error.to_string()))?;
    let timeout = config.shutdown.timeout;
    let mut signals = Signals::listen()?;
    let launch = Launch { data: arguments.data, secrets: arguments.secrets, packs: arguments.packs };
    let running = tokio::select! {
        started = App::start(config, launch) => started.map_err(|error| Failure::Failed(error.to_string()))?,
        // Nothing is admitted yet, and an unfinished start loses nothing: it is like a crash.
        () = signals.next() => return Ok(()),
    };
    signals.next().await;
    tracing::info!("stopping: a second signal exits at once");
    tokio::select! {
        stopped = running.shutdown(timeout) => stopped.map_err(|error| Failure::Failed(error.to_string())),
        () = signals.next() => {
            let text = "stopped at once: unfinished work continues after the next start";
            Err(Failure::Failed(text.to_owned()))
        }
    }
}

fn load(arguments: &Arguments) -> Result<Config, Failure> {
    let flags = [("--intake", "intake.listen", &arguments.intake), ("--admin", "admin.listen", &arguments.admin)];
    let flags =
        flags.into_iter().filter_map(|(flag, key, value)| value.clone().map(|value| FlagSetting { flag, key, value }));
    let sources = Sources {
        file: arguments.config.as_deref(),
        environment: std::env::vars_os().collect(),
        flags: flags.collect(),
    };
    Config::load(&sources).map_err(|error| Failure::Usage(error.to_string()))
}

/// The signals that ask a host to stop.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to listen.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
