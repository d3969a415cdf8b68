//! A browser, driven over WebDriver: Chromium without a window, with a profile of its own that is empty.
//!
//! WebDriver is JSON over HTTP, of which the suites need a dozen commands. The crates that speak all of it would have
//! every procedural macro, and with them RocksDB's bindings, compiled with other features.
//!
//! Where there is none, the tests that need one say that they are left out ([`Browser::start`]).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use forebay::rig::http::Connection;
use forebay::rig::optional;
use forebay::rig::process::free_address;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::wait;

/// What drives the browser.
const DRIVER: &str = "chromedriver";
/// Where its package puts it.
const DRIVER_FOLDERS: [&str; 3] = ["/usr/bin", "/usr/lib/chromium", "/usr/local/bin"];
/// How the browser is started: alone, and asking nobody for anything. The pipe has it end with its driver.
const ARGUMENTS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
];
/// The key of an element's reference, by which the protocol tells it from other objects.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// The window.
const WIDTH: u32 = 1_360;
const HEIGHT: u32 = 900;
/// A telephone's.
const PHONE: (u32, u32) = (390, 844);

/// Keys that have no character, as the protocol writes them.
pub mod key {
    /// Enter.
    pub const ENTER: &str = "\u{e007}";
    /// Escape.
    pub const ESCAPE: &str = "\u{e00c}";
    /// Tab.
    pub const TAB: &str = "\u{e004}";
}

/// A running browser with one page. Dropped, it ends with its driver.
pub struct Browser {
    driver: SocketAddr,
    session: String,
    _process: Child,
    _profile: TempDir,
}

impl Browser {
    /// Starts one. `None`, and a loud word about it, where none is installed.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        let Some(program) = installed() else {
            optional::left_out(
                "chromedriver, which drives a browser, is not installed (apt-get install chromium-driver)",
            );
            return Ok(None);
        };
        let driver = free_address()?;
        let profile = tempfile::Builder::new().prefix("forebay-browser-").tempdir()?;
        let mut command = Command::new(program);
        command.arg(format!("--port={}", driver.port())).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().context("starting the browser's driver")?;
        let answers = async || Ok(ask(driver, Method::GET, "/status", None).await?["ready"] == true);
        wait::until("the browser's driver answers", answers, |ready| *ready).await?;
        let started = ask(driver, Method::POST, "/session", Some(capabilities(&profile))).await?;
        let session = started["sessionId"].as_str().context("a session has an id")?.to_owned();
        let browser = Self { driver, session, _process: process, _profile: profile };
        browser.post("window/rect", json!({"width": WIDTH, "height": HEIGHT})).await?;
        // What its first page, which is its own, asked for and complained of is no matter of the console's.
        browser.open("about:blank").await?;
        browser.requests().await?;
        browser.complaints().await?;
        Ok(Some(browser))
    }

    /// Ends it in an orderly way.
    pub async fn close(self) -> anyhow::Result<()> {
        ask(self.driver, Method::DELETE, &format!("/session/{}", self.session), None).await?;
        Ok(())
    }

    /// Opens an address.
    pub async fn open(&self, url: &str) -> anyhow::Result<()> {
        self.post("url", json!({"url": url})).await?;
        Ok(())
    }

    /// Loads the page again.
    pub async fn reload(&self) -> anyhow::Result<()> {
        self.post("refresh", json!({})).await?;
        Ok(())
    }

    /// What a script returns.
    pub async fn run(&self, script: &str) -> anyhow::Result<Value> {
        self.post("execute/sync", json!({"script": script, "args": []})).await
    }

    /// All text that can be seen.
    pub async fn text(&self) -> anyhow::Result<String> {
        let text = self.run("return document.body.innerText").await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until something can be read on the page.
    pub async fn until_text(&self, wanted: &str) -> anyhow::Result<()> {
        wait::until(wanted, async || self.text().await, |text| text.contains(wanted)).await?;
        Ok(())
    }

    /// Waits until a script returns true.
    pub async fn until(&self, what: &str, script: &str) -> anyhow::Result<()> {
        wait::until(what, async || self.run(script).await, |value| *value == true).await?;
        Ok(())
    }

    /// Clicks what this selects, once it is there and can be clicked.
    pub async fn click(&self, xpath: &str) -> anyhow::Result<()> {
        let click = async || {
            let element = self.find("xpath", xpath).await?;
            self.post(&format!("element/{element}/click"), json!({})).await
        };
        wait::until(xpath, click, |_| true).await?;
        Ok(())
    }

    /// Clicks a button, by its words.
    pub async fn press(&self, words: &str) -> anyhow::Result<()> {
        self.click(&format!("//button[normalize-space()='{words}']")).await
    }

    /// Clicks a button of the dialog, by its words.
    pub async fn answer(&self, words: &str) -> anyhow::Result<()> {
        self.click(&format!("//dialog//button[normalize-space()='{words}']")).await
    }

    /// Writes into the field of this name, in place of what is there.
    pub async fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let selector = format!("[name='{name}']");
        let write = async || {
            let element = self.find("css selector", &selector).await?;
            self.post(&format!("element/{element}/clear"), json!({})).await?;
            self.post(&format!("element/{element}/value"), json!({"text": text})).await
        };
        wait::until(name, write, |_| true).await?;
        Ok(())
    }

    /// Presses keys, one after another, where the focus is.
    pub async fn keys(&self, keys: &str) -> anyhow::Result<()> {
        let strokes = keys
            .chars()
            .flat_map(|key| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]);
        let strokes: Vec<Value> = strokes.collect();
        self.post("actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})).await?;
        Ok(())
    }

    async fn find(&self, using: &str, value: &str) -> anyhow::Result<String> {
        let found = self.post("element", json!({"using": using, "value": value})).await?;
        Ok(found[ELEMENT].as_str().context("an element has a reference")?.to_owned())
    }

    /// Has the page look like one on a telephone.
    pub async fn be_a_phone(&self) -> anyhow::Result<()> {
        let (width, height) = PHONE;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": true});
        self.command("Emulation.setDeviceMetricsOverride", metrics).await
    }

    /// Has the system prefer `light` or `dark`.
    pub async fn prefer(&self, scheme: &str) -> anyhow::Result<()> {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", features).await
    }

    async fn command(&self, name: &str, parameters: Value) -> anyhow::Result<()> {
        self.post("goog/cdp/execute", json!({"cmd": name, "params": parameters})).await?;
        Ok(())
    }

    /// What the page complained of since it was last asked: what scripts threw, what could not be had, and what the
    /// policy forbade.
    pub async fn complaints(&self) -> anyhow::Result<Vec<String>> {
        let entries = self.log("browser").await?;
        let severe = entries.into_iter().filter(|entry| entry["level"] == "SEVERE");
        Ok(severe.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Every address that was asked for since the last time.
    pub async fn requests(&self) -> anyhow::Result<Vec<String>> {
        let mut urls = Vec::new();
        for entry in self.log("performance").await? {
            let event: Value = serde_json::from_str(entry["message"].as_str().unwrap_or_default())?;
            if event["message"]["method"] == "Network.requestWillBeSent" {
                let url = event["message"]["params"]["request"]["url"].as_str();
                urls.push(url.context("a request has an address")?.to_owned());
            }
        }
        Ok(urls)
    }

    async fn log(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let entries = self.post("se/log", json!({"type": kind})).await?;
        Ok(entries.as_array().cloned().unwrap_or_default())
    }

    /// Keeps a picture of what is seen, if `BROWSER_PICTURES` names a folder for them.
    pub async fn picture(&self, name: &str) -> anyhow::Result<()> {
        let Some(folder) = std::env::var_os("BROWSER_PICTURES") else { return Ok(()) };
        let path = format!("/session/{}/screenshot", self.session);
        let picture = ask(self.driver, Method::GET, &path, None).await?;
        let picture = BASE64.decode(picture.as_str().unwrap_or_default())?;
        Ok(std::fs::write(PathBuf::from(folder).join(format!("{name}.png")), picture)?)
    }

    async fn post(&self, what: &str, body: Value) -> anyhow::Result<Value> {
        ask(self.driver, Method::POST, &format!("/session/{}/{what}", self.session), Some(body)).await
    }
}

/// Asks the driver, and returns the value that it answers with.
async fn ask(driver: SocketAddr, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
    let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", driver.to_string())
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    let answer = Connection::open(driver).await?.send(request).await?;
    let value = answer.json()?["value"].take();
    if !answer.status.is_success() {
        bail!("{path}: {}: {}", value["error"], value["message"]);
    }
    Ok(value)
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(DRIVER_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(DRIVER)).find(|program| program.is_file())
}

fn capabilities(profile: &TempDir) -> Value {
    let mut arguments: Vec<String> = ARGUMENTS.map(str::to_owned).to_vec();
    arguments.push(format!("--user-data-dir={}", profile.path().display()));
    json!({"capabilities": {"alwaysMatch": {
        "browserName": "chrome",
        "goog:chromeOptions": {"args": arguments},
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    }}})
}
