//! A private MariaDB server: in a folder of its own, reached by a socket in it, gone with whoever started it.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long the server may take to answer after its start.
const START_MAX: Duration = Duration::from_secs(60);
/// Between two looks at whether it answers.
const LOOK: Duration = Duration::from_millis(20);

/// Starts the server, and ends it when its own standard input ends: when the process that holds the other end stops it,
/// or dies, however hard. Then it clears up too, unless told [`KEEP`].
const GUARD: &str = r#"
    directory=$1; shift
    "$@" & server=$!
    echo "$server"
    word=; read -r word
    kill "$server" 2>/dev/null; wait "$server"
    [ "$word" = keep ] || rm -rf "$directory"
"#;

/// Tells the guard that what the server holds is still needed.
const KEEP: &[u8] = b"keep\n";

/// A running server. Dropped, it is stopped.
pub struct MariaDb {
    directory: PathBuf,
    guard: Child,
    /// Held open: the guard reads from it.
    life: Option<ChildStdin>,
    server: Pid,
    databases: AtomicU32,
}

impl MariaDb {
    /// Whether there is a server to start on this machine.
    pub fn is_installed() -> bool {
        binary("mariadbd").is_some() && binary("mariadb-install-db").is_some()
    }

    /// Starts a server with no databases but its own. Blocks until it answers.
    pub fn start() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("forebay-mariadb-")?;
        install(directory.path())?;
        let (guard, life, server) = spawn(directory.path())?;
        let directory = directory.keep();
        let server = Self { directory, guard, life: Some(life), server, databases: AtomicU32::new(0) };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Creates an empty database. Returns its URL.
    pub fn create_database(&self) -> anyhow::Result<String> {
        let name = format!("forebay_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.execute(&format!("CREATE DATABASE {name}"))?;
        Ok(self.url(&name))
    }

    /// Kills the server as a power cut would, and starts it again over what it left.
    pub fn kill_and_start(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        let (guard, life, server) = spawn(&self.directory)?;
        (self.guard, self.life, self.server) = (guard, Some(life), server);
        self.wait_until_it_answers()
    }

    /// The URL of one of its databases.
    fn url(&self, name: &str) -> String {
        let socket = self.socket();
        format!("mysql://root@localhost/{name}?socket={}", socket.display())
    }

    fn socket(&self) -> PathBuf {
        socket(&self.directory)
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        kill_process(self.server, Signal::KILL).context("killing the server")?;
        if let Some(life) = &mut self.life {
            life.write_all(KEEP).context("telling the guard to keep the data")?;
        }
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<()> {
        drop(self.life.take());
        self.guard.wait().context("waiting for the server's end")?;
        Ok(())
    }

    /// Runs a statement with the server's own client.
    pub fn execute(&self, statement: &str) -> anyhow::Result<()> {
        let client = binary("mariadb").context("the client mariadb is not installed")?;
        let mut command = Command::new(client);
        command
            .arg("--no-defaults")
            .arg("--user=root")
            .arg("--socket")
            .arg(self.socket())
            .arg("--execute")
            .arg(statement);
        let output = command.stdin(Stdio::null()).output().context("running the client mariadb")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn wait_until_it_answers(&self) -> anyhow::Result<()> {
        let looks = START_MAX.as_millis() / LOOK.as_millis();
        for _ in 0..looks {
            if self.socket().exists() && self.execute("SELECT 1").is_ok() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        bail!("the server does not answer after {} s:\n{log}", START_MAX.as_secs())
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        // It is asked to stop; whatever goes wrong, the guard ends with this process.
        let _ = self.end();
    }
}

fn install(directory: &Path) -> anyhow::Result<()> {
    let installer = binary("mariadb-install-db").context("MariaDB is not installed: apt-get install mariadb-server")?;
    let mut command = Command::new(installer);
    command.arg("--no-defaults").arg("--auth-root-authentication-method=normal").arg("--skip-test-db");
    command.arg(option("datadir", directory.join("data"))).arg(option("user", user()));
    // Two that run at once take one another's temporary tables away, where they have one folder for them.
    command.env("TMPDIR", directory);
    let output = command.stdin(Stdio::null()).output().context("running mariadb-install-db")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "mariadb-install-db failed: {text}");
    Ok(())
}

fn spawn(directory: &Path) -> anyhow::Result<(Child, ChildStdin, Pid)> {
    let server = binary("mariadbd").context("MariaDB is not installed: apt-get install mariadb-server")?;
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log"))?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(GUARD).arg("sh").arg(directory).arg(server);
    command.arg("--no-defaults").arg("--skip-networking").arg(option("user", user()));
    command.arg(option("datadir", directory.join("data"))).arg(option("socket", socket(directory)));
    // In its own folder: a server that starts clears the temporary files of all servers from the folder that it is
    // given.
    command.arg(option("pid-file", directory.join("pid"))).arg(option("tmpdir", directory));
    // A large event is one packet, and one record of the log.
    command.arg("--max-allowed-packet=64M").arg("--innodb-log-file-size=512M").arg("--innodb-buffer-pool-size=256M");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    let mut guard = command.spawn().context("starting MariaDB")?;
    let life = guard.stdin.take().context("the guard's input is piped")?;
    let mut line = String::new();
    let output = guard.stdout.take().context("the guard's output is piped")?;
    BufReader::new(output).read_line(&mut line)?;
    let pid = line.trim().parse().ok().and_then(Pid::from_raw).context("the guard names the server's process")?;
    Ok((guard, life, pid))
}

/// An option in the one form that both programs take.
fn option(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut option = OsString::from(format!("--{name}="));
    option.push(value);
    option
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

/// The user who runs this: servers refuse to run as root unless it is said.
fn user() -> String {
    std::env::var("USER").ok().filter(|user| !user.is_empty()).unwrap_or_else(|| "root".to_owned())
}

/// Where a program is: on the path, or where Debian puts servers.
fn binary(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    places.map(|place| place.join(name)).find(|file| file.is_file())
}
