//! `forebay demo`: a host, a provider and a receiver on this machine, in five acts. Every act checks its results, and
//! the command fails if one is wrong.
//!
//! The host is a separate process of the same binary, so that it can be killed as hard as a machine fails.

mod crash;
mod deliveries;
mod later;
mod outcome;
mod say;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use http::StatusCode;

use self::deliveries::{Expected, Scripted};
use crate::admin::wire;
use crate::env::Env;
use crate::rig::github::Delivery;
use crate::rig::http::{self as rig_http, Answer, Connection};
use crate::rig::process::HostProcess;
use crate::rig::sink::Sink;
use crate::rig::site::{LOOPBACK_ALLOWED, NAMESPACE, Site, destination};

/// Settings of the demonstration: leases so short that the work of the killed host is soon taken over, and early
/// retries.
const SETTINGS: &str = "[flow]\ndeadline_ms = 2_000\n[inbound]\nlease_seconds = 7\n[timeline]\nlease_seconds = 2\n";

const HELP: &str = "\
Examples:
  forebay demo --pack github.fpk
  forebay demo --pack github.fpk --stay";

/// `forebay demo`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct DemoArguments {
    /// The github pack (guest-examples/github, built)
    #[arg(long, value_name = "FILE")]
    pack: PathBuf,
    /// Keep serving at the end, until interrupted
    #[arg(long)]
    stay: bool,
}

/// The surroundings that all acts share.
struct Stage {
    site: Site,
    sink: Sink,
    env: Env,
}

/// Plays all five acts.
pub async fn run(arguments: DemoArguments, env: &Env) -> anyhow::Result<()> {
    let pack = std::path::absolute(&arguments.pack)?;
    ensure!(pack.exists(), "{} is not there: build it with `make guests`", pack.display());
    let sink = Sink::start().await?;
    let settings = format!(
        "{SETTINGS}{LOOPBACK_ALLOWED}{}",
        destination("notifications", sink.address(), "retry_initial_ms = 200")
    );
    let site = Site::new(std::env::current_exe()?, vec![pack], &settings)?;
    let stage = Stage { site, sink, env: env.clone() };

    say::act(1, "A host starts");
    let host = stage.start().await?;
    say::line(format_args!("its folder     {}", stage.site.path().display()));
    say::line(format_args!("deliveries to  http://{}/in/{NAMESPACE}/github", stage.site.host.intake));
    say::line(format_args!("messages to    http://{}/notifications", stage.sink.address()));

    say::act(2, "GitHub delivers ten times");
    let admitted = stage.deliver_ten().await?;

    say::act(3, "Each event, stage by stage");
    outcome::show(&stage, &admitted).await?;

    say::act(4, "Later: one reminder fires, one is cancelled");
    later::show(&stage, &admitted).await?;

    say::act(5, "The host is killed in the middle of a crowd");
    let host = crash::show(&stage, host).await?;

    say::blank();
    say::line("Nothing was lost, nothing came early, nothing was forged.");
    stage.end(host, arguments.stay).await
}

/// A scripted delivery that was admitted, with its Event.
struct Admitted {
    scripted: Scripted,
    event: String,
}

impl Stage {
    async fn start(&self) -> anyhow::Result<HostProcess> {
        let begin = self.env.clock.monotonic();
        let host = self.site.host.start(&self.env).await?;
        let took = self.env.clock.monotonic() - begin;
        say::line(format_args!("process {}, ready after {} ms", host.pid()?, took.as_millis()));
        Ok(host)
    }

    async fn deliver_ten(&self) -> anyhow::Result<Vec<Admitted>> {
        let mut admitted = Vec::new();
        for (at, scripted) in deliveries::ten().into_iter().enumerate() {
            let begin = self.env.clock.monotonic();
            let answer = self.deliver(&scripted.delivery).await?;
            let took = self.env.clock.monotonic() - begin;
            let remark = check_answer(&scripted, &answer)?;
            say::line(format_args!(
                "{:>3}  {:<13} {:<29} {}  {:>6.1} ms  {remark}",
                at + 1,
                scripted.delivery.event,
                scripted.about,
                answer.status.as_u16(),
                took.as_secs_f64() * 1_000.0,
            ));
            if scripted.expected == Expected::Admitted {
                admitted.push(Admitted { scripted, event: event_id(&answer)? });
            }
            if at == 0 {
                outcome::settled(self, &admitted[0].event).await?;
                say::line(
                    "     (the pack was still being compiled: the answer did not wait for that, its first event did)",
                );
            }
        }
        Ok(admitted)
    }

    /// Delivers on a new connection.
    async fn deliver(&self, delivery: &Delivery) -> anyhow::Result<Answer> {
        let intake = self.site.host.intake;
        let request = delivery.request(&intake.to_string(), &format!("/in/{NAMESPACE}/github"))?;
        Connection::open(intake).await?.send(request).await
    }

    /// GETs from the admin API.
    async fn ask<T: serde::de::DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let answer = rig_http::get(self.site.host.admin, path).await?;
        ensure!(answer.status.is_success(), "GET {path}: {}", answer.status);
        serde_json::from_slice(&answer.body).with_context(|| format!("GET {path}"))
    }

    async fn event(&self, id: &str) -> anyhow::Result<wire::EventDetail> {
        self.ask(&format!("/api/v1/events/{id}")).await
    }

    async fn message(&self, id: &str) -> anyhow::Result<wire::MessageDetail> {
        self.ask(&format!("/api/v1/messages/{id}")).await
    }

    async fn end(mut self, host: HostProcess, stay: bool) -> anyhow::Result<()> {
        if stay {
            say::where_to_look(&self.site);
            say::line("It keeps serving. Ctrl-C ends it.");
            tokio::signal::ctrl_c().await?;
        }
        // Ctrl-C reaches the whole process group, so the host is stopping already. A second signal would make it exit
        // at once.
        let status = if stay { host.wait().await? } else { host.stop().await? };
        ensure!(status.success(), "the host ended with {status}:\n{}", self.site.host.log_tail());
        say::line("The host drained and ended with status 0.");
        if !stay {
            self.site.keep();
            say::look_at_what_is_left(&self.site);
        }
        Ok(())
    }
}

/// Checks the answer against the script, and describes it.
fn check_answer(scripted: &Scripted, answer: &Answer) -> anyhow::Result<&'static str> {
    let wrong = || format!("{}: {} {:?}", scripted.about, answer.status, answer.body);
    match scripted.expected {
        Expected::Forged => {
            ensure!(answer.status == StatusCode::UNAUTHORIZED, wrong());
            Ok("refused, nothing stored")
        }
        Expected::Admitted => {
            ensure!(answer.status == StatusCode::ACCEPTED && answer.json()?["duplicate"] == false, wrong());
            Ok("durable")
        }
        Expected::Duplicate => {
            ensure!(answer.status == StatusCode::ACCEPTED && answer.json()?["duplicate"] == true, wrong());
            Ok("duplicate: the same Event")
        }
    }
}

/// The Event in a receipt.
fn event_id(answer: &Answer) -> anyhow::Result<String> {
    let receipt = answer.json()?;
    receipt["events"][0].as_str().map(str::to_owned).with_context(|| format!("no event in {receipt}"))
}
