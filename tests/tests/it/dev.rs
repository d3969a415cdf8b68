//! `forebay dev`, the real binary: what is saved is served, and what came of it is said.

use std::path::{Path, PathBuf};
use std::process::{Command as StdCommand, Stdio};

use forebay::rig::process::free_address;
use forebay_tests::{paths, wait};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// An author's session, and all that it says.
struct Session {
    child: Child,
    output: PathBuf,
}

impl Session {
    fn begin(folder: &Path, more: &[&str]) -> anyhow::Result<Self> {
        Self::of(Path::new("orders"), folder, more)
    }

    /// One over the pack in another folder.
    fn of(pack: &Path, folder: &Path, more: &[&str]) -> anyhow::Result<Self> {
        let output = folder.join("output");
        let said = std::fs::File::create(&output)?;
        let mut command = Command::new(paths::binary());
        command.arg("dev").arg(pack).args(more).current_dir(folder).env("FOREBAY_GUEST_TARGET_DIR", guests());
        command.arg("--intake").arg(free_address()?.to_string()).arg("--admin").arg(free_address()?.to_string());
        command.stdin(Stdio::piped()).stdout(said.try_clone()?).stderr(said).kill_on_drop(true);
        Ok(Self { child: command.spawn()?, output })
    }

    /// Waits until it has said this, so often.
    async fn says(&self, text: &str, times: usize) -> anyhow::Result<()> {
        let said = async || Ok(std::fs::read_to_string(&self.output)?);
        wait::until(text, said, |said| said.matches(text).count() >= times).await?;
        Ok(())
    }

    async fn types(&mut self, line: &str) -> anyhow::Result<()> {
        use tokio::io::AsyncWriteExt;
        let keyboard = self.child.stdin.as_mut().expect("it has a keyboard");
        Ok(keyboard.write_all(format!("{line}\n").as_bytes()).await?)
    }

    async fn interrupt(mut self) -> anyhow::Result<String> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
        kill_process(pid, Signal::INT)?;
        let status = self.child.wait().await?;
        let said = std::fs::read_to_string(&self.output)?;
        assert!(status.success(), "{status}: {said}");
        Ok(said)
    }
}

/// Where the compiler keeps its work: what `make guests` compiled is not compiled again.
fn guests() -> PathBuf {
    paths::binary().ancestors().nth(2).expect("it lies in a target directory").join("guests")
}

fn new_pack(folder: &Path) {
    let made = StdCommand::new(paths::binary()).args(["pack", "new", "orders"]).current_dir(folder).output();
    let made = made.expect("the binary can be started");
    assert!(made.status.success(), "{made:?}");
}

fn change(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).expect("it is there");
    assert!(text.contains(from), "{}: no `{from}`", file.display());
    std::fs::write(file, text.replace(from, to)).expect("it can be written");
}

// GST-6
#[tokio::test(flavor = "multi_thread")]
async fn what_an_author_saves_is_served_and_what_does_not_build_is_shown() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    new_pack(folder.path());
    let source = folder.path().join("orders/src/lib.rs");
    let mut session = Session::begin(folder.path(), &["--send", "greeting"])?;
    session.says("done: hello, world", 1).await?;

    // Saved source is built and served, and the fixture sent again.
    change(&source, "hello, {subject}", "good evening, {subject}");
    session.says("done: good evening, world", 1).await?;

    // A build error is shown with its place, and the previous version keeps serving.
    change(&source, "greeting.subject", "greeting.object");
    session.says("no field `object`", 1).await?;
    session.says("the previous version keeps serving", 1).await?;
    session.types("").await?;
    session.says("done: good evening, world", 2).await?;

    change(&source, "greeting.object", "greeting.subject");
    session.says("done: good evening, world", 3).await?;

    // A saved fixture is sent as it is now; another is sent by its name.
    change(&folder.path().join("orders/fixtures/greeting.request.json"), "world", "moon");
    session.says("done: good evening, moon", 1).await?;
    session.types("other").await?;
    session.says("ignored: `farewell` is not handled", 1).await?;

    let said = session.interrupt().await?;
    assert!(said.trim_end().ends_with("stopping"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixture_that_is_not_there_is_named_with_those_that_are() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    new_pack(folder.path());
    let mut session = Session::begin(folder.path(), &["--send", "greting"])?;
    assert_eq!(session.child.wait().await?.code(), Some(2));
    let said = std::fs::read_to_string(&session.output)?;
    assert!(said.contains("there is no fixture `greting`: there are greeting, other"), "{said}");
    Ok(())
}

// ADM-4
#[tokio::test(flavor = "multi_thread")]
async fn a_signed_route_gets_a_secret_and_a_signature_and_a_destination_a_receiver() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    new_pack(folder.path());
    let orders = folder.path().join("orders");
    change(&orders.join("pack.toml"), "destinations = []", "destinations = [\"warehouse\"]");
    change(&orders.join("pack.toml"), "verify = \"plain\"", "verify = \"stripe\"\nsecret = \"shop\"");
    change(
        &orders.join("src/lib.rs"),
        "_ => Ok(Output::new().note(",
        "_ => Ok(Output::new().message(forebay_sdk::Message::json(\"warehouse\", &subject)?).note(",
    );
    let fixture = orders.join("fixtures/greeting.request.json");
    change(&fixture, "\"kind\"", "\"id\": \"evt_1\", \"kind\"");
    let session = Session::begin(folder.path(), &[])?;
    session.says("done: hello, world", 1).await?;
    session.says("-> warehouse now: \"world\"", 1).await?;
    session.says("arrived at warehouse: \"world\"", 1).await?;
    session.interrupt().await?;
    Ok(())
}

// GST-4: what readers are given and send is the host's to add; here it is made up, and answered on this machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_pack_that_reads_gets_its_secret_and_the_answers_of_the_fixture() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let hubspot = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-examples/hubspot").canonicalize()?;
    let mut session = Session::of(&hubspot, folder.path(), &["--send", "contacts"])?;
    session.says("arrived at crm: ", 3).await?;
    session.says("ada@example.com", 1).await?;
    session.types("throttled").await?;
    session.says("read_failed: reader `contacts`: the provider answered 429", 1).await?;
    let said = session.interrupt().await?;
    assert!(!said.contains("there is no secret") && !said.contains("the fixture has no answer"), "{said}");
    Ok(())
}
