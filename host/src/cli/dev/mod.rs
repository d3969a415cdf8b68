//! `forebay dev`: the loop of an author. A host runs in this process. A saved file is built and served, the last
//! fixture is sent again, and its result is printed.
//!
//! [`author`] decides; this file carries out, and has the only loop. A failed build is printed, and the previous
//! generation keeps serving.

mod author;
mod build;
mod deliver;
mod keypair;
mod provider;
mod sign;
mod site;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::Uri;
use tempfile::TempDir;
use tokio::sync::{Mutex, mpsc};

use self::author::{Action, Author, FixtureName, Happened, PackIndex};
use self::build::{Builder, Serving};
use self::deliver::Deliverer;
use self::provider::Provider;
use self::site::ReaderName;
use self::watch::Watch;
use super::client::Client;
use super::exit::Failure;
use super::fixture;
use super::output::{print, printable_lines};
use super::serve::Signals;
use crate::app::{App, Config, FlagSetting, Launch, Running, Sources};
use crate::env::{self, Env};
use crate::guest::parse_manifest;
use crate::model::pack::Manifest;
use crate::rig::receiver::{Received, Receiver, Reply};
use crate::telemetry;

const HELP: &str = "\
A host runs in this process, with a temporary data directory or with --data. Without --config, it generates secrets, signs \
fixtures with them, gives readers the \"answers\" of the fixture that was sent, and shows what the packs emit in a receiver on \
this machine.

Type, with Enter:
  NAME or number   send that fixture
  (nothing)        send the last one again
  l                list the fixtures
  b                build again
  q                stop, as Ctrl-C does

Examples:
  forebay dev orders
  forebay dev orders billing --send new-order
  forebay dev orders --config forebay.toml --secrets secrets";

/// Between two looks for saved files.
const LOOK: Duration = Duration::from_millis(200);
/// Typed lines that were not read yet.
const LINES_MAX: usize = 16;
/// Folders under watch.
const PACKS_MAX: usize = 16;
/// Time for the host to stop: an author loses nothing if it takes longer.
const STOP_MAX: Duration = Duration::from_secs(10);

/// `forebay dev`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The folders with the packs
    #[arg(value_name = "FOLDER", default_value = ".", num_args = 1..=PACKS_MAX)]
    folders: Vec<PathBuf>,
    /// The fixture to send after each build; by default the first one
    #[arg(long, value_name = "NAME")]
    send: Option<String>,
    /// The host's configuration, with destinations of its own
    #[arg(long, value_name = "FILE", requires = "secrets")]
    config: Option<PathBuf>,
    /// The host's data directory; by default a temporary one
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The directory of secrets, one file each; by default they are generated
    #[arg(long, value_name = "DIR")]
    secrets: Option<PathBuf>,
    /// The listener for deliveries
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    intake: String,
    /// The listener for operators
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    admin: String,
    /// The build folder, which packs can share; by default target-guests in each folder
    #[arg(long, value_name = "DIR", env = "FOREBAY_GUEST_TARGET_DIR")]
    target_directory: Option<PathBuf>,
}

/// A pack under development.
struct Pack {
    folder: PathBuf,
    watch: Watch,
    /// The manifest that serves; before the first build, the one on disk.
    manifest: Option<Arc<Manifest>>,
    serves: bool,
    /// The error of the last look.
    trouble: Option<String>,
}

/// The end of a build.
struct Built {
    pack: PackIndex,
    outcome: Result<Serving, String>,
}

/// A host in this process, with its surroundings.
struct Workshop {
    packs: Vec<Pack>,
    destinations: BTreeSet<String>,
    readers: BTreeSet<ReaderName>,
    deliverer: Deliverer,
    builder: Builder,
    /// One fixture at a time, so that its output stays together.
    sending: Arc<Mutex<()>>,
    built: mpsc::Sender<Built>,
    folder: TempDir,
    makes_secrets: bool,
    _receiver: Option<Receiver>,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    telemetry::start_author_logging().map_err(|error| Failure::Usage(error.to_string()))?;
    let (built, mut builds) = mpsc::channel(PACKS_MAX);
    let (mut workshop, running) = Workshop::open(&arguments, built).await?;
    let first = workshop.first(arguments.send.as_deref());
    let outcome = match first {
        Ok(first) => workshop.work(first, &mut builds, &mut signals).await,
        Err(failure) => Err(failure),
    };
    say("stopping");
    let stopped = running.shutdown(STOP_MAX).await.map_err(|error| Failure::Failed(error.to_string()));
    outcome.and(stopped)
}

impl Workshop {
    async fn open(arguments: &Arguments, built: mpsc::Sender<Built>) -> Result<(Self, Running), Failure> {
        let env = Env::system();
        let packs = arguments.folders.iter().map(|folder| Pack::open(folder)).collect::<Result<Vec<_>, _>>()?;
        let folder = tempfile::Builder::new().prefix("forebay-dev-").tempdir()?;
        let data = arguments.data.clone().unwrap_or_else(|| folder.path().join("data"));
        let secrets = arguments.secrets.clone().unwrap_or_else(|| folder.path().join("secrets"));
        let manifests = || packs.iter().filter_map(|pack| pack.manifest.as_ref());
        let declared = manifests().flat_map(|manifest| &manifest.destinations);
        let destinations: BTreeSet<String> = declared.map(ToString::to_string).collect();
        let readers: BTreeSet<ReaderName> = manifests().flat_map(|manifest| site::readers(manifest)).collect();
        let (file, receiver, provider) = match &arguments.config {
            Some(file) => (file.clone(), None, None),
            None => {
                let (receiver, provider) = (Receiver::start(arrived).await?, Provider::start().await?);
                let file = folder.path().join("forebay.toml");
                let text = site::configuration(&destinations, receiver.address, &readers, provider.address());
                std::fs::write(&file, text)?;
                (file, Some(receiver), Some(Arc::new(provider)))
            }
        };
        if arguments.secrets.is_none() {
            std::fs::create_dir(&secrets)?;
            for manifest in manifests() {
                site::make_secrets(manifest, &secrets, &env)?;
            }
        }
        let config = configuration(arguments, &file)?;
        let namespace = config.namespaces[0].to_string();
        let public_url = config.intake.public_url.clone();
        let launch = Launch { data, secrets: Some(secrets.clone()), packs: Vec::new() };
        let running = App::start(config, launch).await.map_err(|error| Failure::Failed(error.to_string()))?;
        let admin: Uri = format!("http://{}", running.admin_addr()).parse().map_err(anyhow::Error::from)?;
        let client = Arc::new(Client::at(&admin)?);
        let intake = running.intake_addr();
        say(&format!(
            "the host runs: deliveries to http://{intake}/in/{namespace}/ROUTE, admin listener http://{}",
            running.admin_addr()
        ));
        let deliverer =
            Deliverer { intake, client: client.clone(), secrets, public_url, namespace, provider, env: env.clone() };
        let builder = Builder { client, target_directory: arguments.target_directory.clone(), env };
        let makes_secrets = arguments.secrets.is_none();
        let sending = Arc::new(Mutex::new(()));
        let workshop = Self {
            packs,
            destinations,
            readers,
            deliverer,
            builder,
            sending,
            built,
            folder,
            makes_secrets,
            _receiver: receiver,
        };
        Ok((workshop, running))
    }

    /// The fixture that is sent first.
    fn first(&self, wanted: Option<&str>) -> Result<Option<FixtureName>, Failure> {
        let mut fixtures = self.fixtures();
        match wanted {
            None if fixtures.is_empty() => Ok(None),
            None => Ok(Some(fixtures.swap_remove(0))),
            Some(name) => match fixtures.iter().find(|fixture| fixture.name == name) {
                Some(fixture) => Ok(Some(fixture.clone())),
                None => {
                    let names: Vec<&str> = fixtures.iter().map(|fixture| fixture.name.as_str()).collect();
                    Err(Failure::Usage(format!("there is no fixture `{name}`: there are {}", names.join(", "))))
                }
            },
        }
    }

    /// All present fixtures.
    fn fixtures(&self) -> Vec<FixtureName> {
        let of = |(pack, one): (PackIndex, &Pack)| {
            let names = fixture::names(&one.folder.join(fixture::FOLDER)).unwrap_or_default();
            names.into_iter().map(move |name| FixtureName { pack, name })
        };
        self.packs.iter().enumerate().flat_map(of).collect()
    }

    /// Works until the author stops.
    async fn work(
        &mut self,
        first: Option<FixtureName>,
        builds: &mut mpsc::Receiver<Built>,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let mut author = Author::new(self.packs.len(), first);
        let mut keyboard = keyboard()?;
        let mut todo = author.begin();
        loop {
            for action in std::mem::take(&mut todo) {
                if action == Action::Stop {
                    return Ok(());
                }
                self.act(action);
            }
            tokio::select! {
                () = signals.next() => return Ok(()),
                Some(Built { pack, outcome }) = builds.recv() => {
                    let happened = self.take(pack, outcome);
                    todo = author.then(happened);
                }
                Some(line) = keyboard.recv() => todo = author.then(Happened::Typed(&line, &self.fixtures())),
                () = env::sleep(LOOK) => todo = self.look(&mut author),
            }
        }
    }

    fn act(&self, action: Action) {
        match action {
            Action::Build(index) => self.build(index),
            Action::Send(fixture) => self.send(fixture),
            Action::Say(text) => say(&text),
            Action::Help => say(HELP),
            Action::List => {
                for (index, FixtureName { pack, name }) in self.fixtures().iter().enumerate() {
                    say(&format!("{:>3}  {name}  ({})", index + 1, self.packs[*pack].folder.display()));
                }
            }
            Action::Stop => {}
        }
    }

    fn build(&self, index: PackIndex) {
        let folder = self.packs[index].folder.clone();
        say(&format!("building {}", folder.display()));
        let output = self.folder.path().join(format!("{index}.fpk"));
        let (builder, built) = (self.builder.clone(), self.built.clone());
        drop(env::spawn("dev build", async move {
            let outcome = builder.build(folder, output).await;
            // A failed send means that the author has stopped.
            let _ = built.send(Built { pack: index, outcome }).await;
        }));
    }

    fn send(&self, fixture: FixtureName) {
        let pack = &self.packs[fixture.pack];
        let Some(manifest) = pack.manifest.clone() else { return };
        let (deliverer, sending, folder) = (self.deliverer.clone(), self.sending.clone(), pack.folder.clone());
        drop(env::spawn("dev fixture", async move {
            let _one_at_a_time = sending.lock().await;
            match deliverer.send(&folder, &fixture.name, &manifest).await {
                Ok(text) => say(text.trim_end()),
                Err(error) => say(&format!("> {}: {error:#}", fixture.name)),
            }
        }));
    }

    /// Notes the end of a build.
    fn take(&mut self, index: PackIndex, outcome: Result<Serving, String>) -> Happened<'static> {
        let Serving { manifest, text } = match outcome {
            Ok(serving) => serving,
            Err(text) => {
                say(text.trim());
                let serves = if self.packs[index].serves { "; the previous version keeps serving" } else { "" };
                say(&format!("{} was not built{serves}", self.packs[index].folder.display()));
                return Happened::Failed(index);
            }
        };
        say(&text);
        if self.makes_secrets
            && let Err(error) = site::make_secrets(&manifest, &self.deliverer.secrets, &self.deliverer.env)
        {
            say(&format!("the secrets of the pack cannot be created: {error}"));
        }
        for new in manifest.destinations.iter().filter(|name| !self.destinations.contains(name.as_str())) {
            say(&format!("`{new}` is not a destination of this host, and its messages wait: restart forebay dev"));
        }
        let own_provider = self.deliverer.provider.is_some();
        for (_, new) in site::readers(&manifest).filter(|reader| own_provider && !self.readers.contains(reader)) {
            say(&format!("reader `{new}` calls its own host: restart forebay dev, and fixtures answer it"));
        }
        self.packs[index].manifest = Some(manifest);
        self.packs[index].serves = true;
        Happened::Serves(index)
    }

    /// Looks for saved files.
    fn look(&mut self, author: &mut Author) -> Vec<Action> {
        let mut todo = Vec::new();
        for (index, pack) in self.packs.iter_mut().enumerate() {
            let saved = pack.look();
            for name in saved.fixtures {
                todo.extend(author.then(Happened::FixtureSaved(FixtureName { pack: index, name })));
            }
            if saved.source {
                todo.extend(author.then(Happened::SourceSaved(index)));
            }
        }
        todo
    }
}

impl Pack {
    fn open(folder: &Path) -> Result<Self, Failure> {
        let unusable = |error: io::Error| Failure::Failed(format!("{}: {error}", folder.display()));
        let folder = folder.canonicalize().map_err(unusable)?;
        let watch = Watch::begin(&folder).map_err(unusable)?;
        let text = std::fs::read_to_string(folder.join("pack.toml")).map_err(|error| {
            Failure::Failed(format!("{}: {error}: `forebay pack new` makes a pack", folder.join("pack.toml").display()))
        })?;
        // The build reports a wrong manifest.
        let manifest = parse_manifest(&text).ok().map(Arc::new);
        Ok(Self { folder, watch, manifest, serves: false, trouble: None })
    }

    /// The saved files; an error is printed once.
    fn look(&mut self) -> watch::Saved {
        match self.watch.look() {
            Ok(saved) => {
                self.trouble = None;
                saved
            }
            Err(error) => {
                let trouble = format!("{} cannot be watched: {error}", self.folder.display());
                if self.trouble.as_ref() != Some(&trouble) {
                    say(&trouble);
                    self.trouble = Some(trouble);
                }
                watch::Saved::default()
            }
        }
    }
}

fn configuration(arguments: &Arguments, file: &Path) -> Result<Config, Failure> {
    let flag = |flag, key, value: &String| FlagSetting { flag, key, value: value.clone() };
    let sources = Sources {
        file: Some(file),
        environment: std::env::vars_os().collect(),
        flags: vec![
            flag("--intake", "intake.listen", &arguments.intake),
            flag("--admin", "admin.listen", &arguments.admin),
        ],
    };
    Config::load(&sources).map_err(|error| Failure::Usage(error.to_string()))
}

/// Typed lines; the channel ends with the input. The reading thread outlives the command, because nothing wakes it.
fn keyboard() -> io::Result<mpsc::Receiver<String>> {
    let (lines, typed) = mpsc::channel(LINES_MAX);
    let read = move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("keyboard".to_owned()).spawn(read)?;
    Ok(typed)
}

fn arrived(received: Received) -> Reply {
    let body = String::from_utf8_lossy(&received.body);
    say(&format!("  arrived at {}: {}", received.path.trim_start_matches('/'), body.trim_end()));
    Reply::OK
}

/// Prints a text; a closed output is ignored.
fn say(text: &str) {
    let _ = print(&format!("{}\n", printable_lines(text)));
}
