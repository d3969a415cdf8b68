//! A host in a process of its own: this very binary, so that it can be killed as hard as a machine fails.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::http;
use crate::env::{self, Env};

/// How long a host may take until it is ready: it may have to compile its packs first.
const START_MAX: Duration = Duration::from_secs(120);
/// Between two looks at whether it is ready.
const LOOK: Duration = Duration::from_millis(20);
/// How much of the log an error shows.
const LOG_LINES_SHOWN: usize = 12;
/// The ports that hosts listen on.
const PORTS: Range<u16> = 10_240..30_720;
/// How far apart two processes begin to look for one.
const PORTS_APART: u32 = 101;

/// What to start, and with what.
#[derive(Debug, Clone)]
pub struct HostCommand {
    /// The `forebay` binary.
    pub binary: PathBuf,
    /// Its configuration file.
    pub config: PathBuf,
    /// Its data directory.
    pub data: PathBuf,
    /// Its secrets directory.
    pub secrets: PathBuf,
    /// The packs to serve.
    pub packs: Vec<PathBuf>,
    /// The file that its log is appended to.
    pub log: PathBuf,
    /// Where it is to listen for deliveries.
    pub intake: SocketAddr,
    /// Where it is to listen for operators.
    pub admin: SocketAddr,
    /// Shell commands that limit its process before it begins: `ulimit -n 300`.
    pub limits: Option<String>,
}

/// A running host. Dropped, it is killed.
pub struct HostProcess {
    child: Child,
}

/// An address on loopback that nobody listens on, and that stays the host's own while it is down.
///
/// It lies below the ports that Linux gives to outgoing connections. Among those, somebody who tries to reach a host
/// that has just been killed can be given the host's own port, and is then connected to himself.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PORTS.len() {
        // Processes that run at once begin at different places.
        let place = std::process::id().wrapping_mul(PORTS_APART).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + u16::try_from(place % u32::from(PORTS.end - PORTS.start))?;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Ok(listener.local_addr()?);
        }
    }
    bail!("no port from {} to {} is free", PORTS.start, PORTS.end)
}

impl HostCommand {
    /// Starts the host, without waiting until it is ready.
    pub fn spawn(&self) -> anyhow::Result<HostProcess> {
        let log = std::fs::File::options().create(true).append(true).open(&self.log)?;
        let mut command = self.program();
        command.arg("serve");
        command.arg("--config").arg(&self.config).arg("--data").arg(&self.data).arg("--secrets").arg(&self.secrets);
        command.arg("--intake").arg(self.intake.to_string()).arg("--admin").arg(self.admin.to_string());
        for pack in &self.packs {
            command.arg("--pack").arg(pack);
        }
        // It takes its settings from its configuration alone, not from whoever runs this.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("FOREBAY_")) {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("starting {}", self.binary.display()))?;
        Ok(HostProcess { child })
    }

    /// The binary, behind a shell that becomes it where there are limits to set.
    fn program(&self) -> Command {
        let Some(limits) = &self.limits else { return Command::new(&self.binary) };
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!("{limits}; exec \"$0\" \"$@\"")).arg(&self.binary);
        shell
    }

    /// Starts the host, and returns once it says that it is ready.
    pub async fn start(&self, env: &Env) -> anyhow::Result<HostProcess> {
        let mut host = self.spawn()?;
        let end = env.clock.monotonic() + START_MAX;
        loop {
            if let Some(status) = host.child.try_wait()? {
                bail!("the host ended at its start ({status}):\n{}", self.log_tail());
            }
            if let Ok(answer) = http::get(self.admin, "/readyz").await
                && answer.status.is_success()
            {
                return Ok(host);
            }
            if env.clock.monotonic() > end {
                bail!("the host is not ready after {} s:\n{}", START_MAX.as_secs(), self.log_tail());
            }
            env::sleep(LOOK).await;
        }
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl HostProcess {
    /// Its process id.
    pub fn pid(&self) -> anyhow::Result<Pid> {
        let id = self.child.id().context("the host has ended")?;
        Pid::from_raw(id.cast_signed()).context("a process id is not zero")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.pid()?, signal).context("signalling the host")
    }

    /// Kills it as a power cut would: no handler runs, nothing is flushed.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("killing the host")
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait().await
    }

    /// Waits until it ends.
    pub async fn wait(mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }
}
