//! Batch reads, end to end: HubSpot delivers batches of changes and answers batch reads, both on this machine.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context;
use forebay::rig::sink::Sink;
use forebay::rig::site::destination;
use forebay_tests::hubspot::{self, Behaviour, HubSpot, PUBLIC_URL, change};
use forebay_tests::world::{World, event_ids};
use forebay_tests::{paths, wait};
use http::StatusCode;
use serde_json::Value;
use sqlx::Connection;

const NOW: i64 = 1_700_000_000_000;

/// A host that serves the hubspot pack, and the provider that it reads from.
struct Setting {
    world: World,
    provider: HubSpot,
}

impl Setting {
    async fn start() -> anyhow::Result<Self> {
        Self::start_with("failures_max = 3").await
    }

    /// An event is given up after as many failures.
    async fn start_with(failures_max: &str) -> anyhow::Result<Self> {
        let provider = HubSpot::start().await?;
        let sink = Arc::new(Sink::start().await?);
        let crm = destination("crm", sink.address(), "retry_initial_ms = 50");
        let settings = format!("{crm}{}", provider.settings());
        let mut world = World::prepare_over(sink, &["hubspot", "hostile"], &settings)?;
        write_secret(&world.site.host.secrets.join("hubspot"), hubspot::SECRET)?;
        write_secret(&world.site.host.secrets.join("hubspot.pack/token"), hubspot::TOKEN)?;
        let usual = std::fs::read_to_string(&world.site.host.config)?;
        assert!(usual.contains("failures_max = 3"), "{usual}");
        std::fs::write(&world.site.host.config, usual.replace("failures_max = 3", failures_max))?;
        world.restart().await?;
        Ok(Self { world, provider })
    }

    async fn deliver(&self, changes: &[Value]) -> anyhow::Result<Vec<String>> {
        let answer = hubspot::deliver_to(self.world.site.host.intake, PUBLIC_URL, changes).await?;
        anyhow::ensure!(answer.status == StatusCode::ACCEPTED, "{}: {:?}", answer.status, answer.body);
        event_ids(&answer)
    }

    /// The last work item of an event, once it stands in this state.
    async fn until(&self, event: &str, state: &str) -> anyhow::Result<Value> {
        let is = |shown: &Value| shown["work_items"][0]["state"] == state;
        let shown = wait::until(state, async || self.world.admin().event(event).await, is).await?;
        Ok(shown["work_items"][0].clone())
    }

    /// What the CRM was sent, in order of arrival.
    fn sent(&self) -> anyhow::Result<Vec<Value>> {
        let bodies = self.world.sink.received().into_iter().map(|received| received.body);
        Ok(bodies.map(|body| serde_json::from_slice(&body)).collect::<Result<_, _>>()?)
    }

    fn forebay(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(paths::binary());
        command.args(arguments).env("FOREBAY_ADMIN_URL", format!("http://{}", self.world.site.host.admin));
        let output = command.output().expect("the binary can be started");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn metric(&self, outcome: &str) -> anyhow::Result<f64> {
        let name = format!(r#"forebay_read_calls_total{{pack="hubspot",reader="contacts",outcome="{outcome}"}}"#);
        Ok(self.world.admin().metric(&name).await?.unwrap_or(0.0))
    }
}

fn write_secret(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(file.parent().context("a file has a folder")?)?;
    Ok(File::options().write(true).create_new(true).mode(0o600).open(file)?.write_all(text.as_bytes())?)
}

// ADM-4, ADM-5, ADM-6, GST-2
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_changes_is_read_with_few_calls_and_told_with_the_contacts_as_they_are() -> anyhow::Result<()> {
    let mut setting = Setting::start().await?;
    setting.provider.behave(Behaviour { missing: BTreeSet::from([7]), ..Behaviour::default() });
    let changes: Vec<Value> = (1..=50).map(|contact| change(contact, contact, NOW)).collect();
    let events = setting.deliver(&changes).await?;
    assert_eq!(events.len(), 50);
    setting.world.settle().await?;

    let reads = setting.provider.reads();
    assert!(reads.len() <= 5, "{} calls for one request", reads.len());
    let mut asked: Vec<u64> = reads.iter().flat_map(|read| read.contacts.clone()).collect();
    asked.sort_unstable();
    assert_eq!(asked, (1..=50).collect::<Vec<_>>(), "each contact once");
    let sent = setting.sent()?;
    assert_eq!(sent.len(), 50);
    for message in &sent {
        let contact = message["contact"].as_str().expect("it names its contact");
        let state = if contact == "7" { "gone" } else { "present" };
        assert_eq!(message["state"], state, "{message}");
        if state == "present" {
            assert_eq!(message["properties"]["email"], format!("{contact}@example.com"));
        }
    }
    assert!(setting.metric("answered").await? >= 1.0);

    // The same batch again is the same events, and an address that was not signed is nobody's.
    assert_eq!(setting.deliver(&changes).await?, events);
    let intake = setting.world.site.host.intake;
    let elsewhere = hubspot::deliver_to(intake, "https://other.example.com", &changes).await?;
    assert_eq!(elsewhere.status, StatusCode::UNAUTHORIZED);
    assert_eq!(setting.world.admin().events().await?.len(), 50);
    assert!(setting.world.stop().await?.success());
    Ok(())
}

// COA-1
#[tokio::test(flavor = "multi_thread")]
async fn of_many_changes_of_one_contact_the_latest_is_told() -> anyhow::Result<()> {
    let setting = Setting::start().await?;
    let changes: Vec<Value> =
        (1..=40).map(|event| change(event, 501, NOW + i64::try_from(event).unwrap_or(0))).collect();
    let events = setting.deliver(&changes).await?;
    setting.world.settle().await?;
    let sent = setting.sent()?;
    assert!((1..=3).contains(&sent.len()), "{sent:?}");
    assert_eq!(sent.last().map(|message| &message["occurred_at"]), Some(&Value::from(NOW + 40)));
    let superseded = setting.until(&events[20], "done").await?;
    assert!(superseded["note"].as_str().is_some_and(|note| note.contains("superseded")), "{superseded}");
    Ok(())
}

// GST-2: one bad key fails its events only.
#[tokio::test(flavor = "multi_thread")]
async fn a_contact_that_spoils_the_call_fails_its_own_event_only() -> anyhow::Result<()> {
    let setting = Setting::start().await?;
    setting.provider.behave(Behaviour { poisonous: BTreeSet::from([13]), ..Behaviour::default() });
    let changes: Vec<Value> = (1..=30).map(|contact| change(contact, contact, NOW)).collect();
    let events = setting.deliver(&changes).await?;
    for (index, event) in events.iter().enumerate() {
        if index == 12 {
            let item = setting.until(event, "dead").await?;
            assert_eq!(item["failure"]["class"], "read_refused", "{item}");
            assert_eq!(item["failure"]["message"], "reader `contacts`: the provider answered 400");
        } else {
            setting.until(event, "done").await?;
        }
    }
    assert!(setting.provider.reads().len() <= 40, "{}", setting.provider.reads().len());
    Ok(())
}

// GST-2: one bad key fails its events only, where the provider may be down as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_contact_that_the_provider_fails_over_fails_its_own_event_only_and_is_tried_again() -> anyhow::Result<()> {
    // However long the others take, this one is tried until it is mended.
    let setting = Setting::start_with("failures_max = 1_000").await?;
    setting.provider.behave(Behaviour { crashing: BTreeSet::from([13]), ..Behaviour::default() });
    let changes: Vec<Value> = (1..=30).map(|contact| change(contact, contact, NOW)).collect();
    let events = setting.deliver(&changes).await?;
    for (index, event) in events.iter().enumerate() {
        if index == 12 {
            let item = setting.until(event, "delayed").await?;
            assert_eq!(item["failure"]["class"], "read_failed", "{item}");
            assert_eq!(item["failure"]["message"], "reader `contacts`: the provider answered 500");
        } else {
            let item = setting.until(event, "done").await?;
            assert_eq!(item["attempt"], 1, "{item}");
        }
    }
    // It is mended, and nothing else is needed.
    setting.provider.behave(Behaviour::default());
    setting.until(&events[12], "done").await?;
    assert!(setting.metric("unavailable").await? >= 2.0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_busy_is_asked_again_when_it_said_so() -> anyhow::Result<()> {
    let setting = Setting::start().await?;
    setting.provider.behave(Behaviour { refuses: Some(429), ..Behaviour::default() });
    let event = setting.deliver(&[change(1, 501, NOW)]).await?.remove(0);
    let item = setting.until(&event, "delayed").await?;
    assert_eq!(item["failure"]["class"], "read_failed", "{item}");
    setting.provider.behave(Behaviour::default());
    let item = setting.until(&event, "done").await?;
    assert!(item["attempt"].as_u64().is_some_and(|attempt| attempt >= 2), "{item}");
    assert!(setting.metric("throttled").await? >= 1.0);
    Ok(())
}

// GST-2, GST-4
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_redirects_floods_or_is_silent_harms_its_own_events_only() -> anyhow::Result<()> {
    let setting = Setting::start().await?;
    // To this host's own API, which a redirect must not reach.
    let admin = format!("http://{}/api/v1/packs", setting.world.site.host.admin);
    setting.provider.behave(Behaviour { redirects_to: Some(admin), ..Behaviour::default() });
    let redirected = setting.deliver(&[change(1, 1, NOW)]).await?.remove(0);
    let item = setting.until(&redirected, "dead").await?;
    assert_eq!(item["failure"]["message"], "reader `contacts`: the provider answered 302: redirects are not followed");

    setting.provider.behave(Behaviour { floods: true, ..Behaviour::default() });
    let flooded = setting.deliver(&[change(2, 2, NOW)]).await?.remove(0);
    let item = setting.until(&flooded, "dead").await?;
    assert!(
        item["failure"]["message"].as_str().is_some_and(|said| said.contains("longer than 1048576 bytes")),
        "{item}"
    );

    // The flow's deadline is two seconds; meanwhile another pack's event is done.
    setting.provider.behave(Behaviour { silent: true, ..Behaviour::default() });
    let silent = setting.deliver(&[change(3, 3, NOW)]).await?.remove(0);
    let note = forebay_tests::world::signed("note", "note", r#"{"do":"note","text":"meanwhile"}"#);
    let other = event_ids(&setting.world.deliver_to("hostile", &note).await?)?.remove(0);
    let other = setting.until(&other, "done").await?;
    assert_eq!(other["note"], "meanwhile");
    let item = setting.until(&silent, "dead").await?;
    let class = item["failure"]["class"].as_str().unwrap_or_default().to_owned();
    assert!(["deadline", "read_failed"].contains(&class.as_str()), "{item}");
    Ok(())
}

// GST-5
#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_comes_out_the_same_again_also_after_a_restart() -> anyhow::Result<()> {
    let mut setting = Setting::start().await?;
    let events = setting.deliver(&[change(1, 501, NOW), change(2, 502, NOW)]).await?;
    setting.world.settle().await?;
    let asked = setting.provider.reads().len();
    // The contact is another one meanwhile: what counts is what was read.
    setting.provider.behave(Behaviour { missing: BTreeSet::from([501, 502]), ..Behaviour::default() });

    let shown = setting.world.admin().event(&events[0]).await?;
    let item = &shown["work_items"][0];
    assert_eq!(item["reads"]["records"][0]["key"], "501", "{item}");
    assert_eq!(item["output_sha256"].as_str().map(str::len), Some(64));
    let (code, text) = setting.forebay(&["event", "show", &events[0]]);
    assert!(code == Some(0) && text.contains("contacts 501 ("), "{text}");

    for _ in 0..2 {
        let (code, text) = setting.forebay(&["event", "verify", &events[0]]);
        assert!(code == Some(0) && text.contains("1 the same, 0 different"), "{text}");
        let (code, text) = setting.forebay(&["event", "verify", "--last", "100", "--json"]);
        let verification: Value = serde_json::from_str(&text)?;
        assert_eq!((code, &verification["same"], &verification["differing"]), (Some(0), &2.into(), &0.into()));
        setting.world.kill().await?;
        setting.world.restart().await?;
    }
    let pack = paths::pack("hubspot");
    let (code, text) =
        setting.forebay(&["pack", "preview", &pack.display().to_string(), "--last", "10", "--fail-on-change"]);
    assert!(code == Some(0) && text.contains("the results of 0 of 2 events differ"), "{text}");
    assert_eq!(setting.provider.reads().len(), asked, "nobody was asked again");

    // What was recorded is another output's hash, and reads that are no more.
    assert!(setting.world.stop().await?.success());
    let database = format!("sqlite://{}", setting.world.site.host.data.join("forebay.sqlite").display());
    let mut connection = sqlx::SqliteConnection::connect(&database).await?;
    for (change, event) in [("output_digest = zeroblob(32)", &events[0]), ("output_digest = NULL", &events[1])] {
        let id = hex(event);
        let statement = format!("UPDATE work_item SET {change} WHERE event_id = x'{id}'");
        assert_eq!(sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await?.rows_affected(), 1);
    }
    connection.close().await?;
    setting.world.restart().await?;
    let (code, text) = setting.forebay(&["event", "verify", &events[0]]);
    assert!(code == Some(6) && text.contains("differs"), "{text}");
    let (code, text) = setting.forebay(&["event", "verify", &events[1]]);
    assert!(code == Some(4) && text.contains("was not hashed"), "{text}");
    let (code, _) = setting.forebay(&["event", "verify", "--last", "10"]);
    assert_eq!(code, Some(6));
    let nobody = format!("evt_{}", "0".repeat(32));
    assert_eq!(setting.forebay(&["event", "verify", &nobody]).0, Some(3));
    Ok(())
}

/// An id's bytes, as SQLite writes them.
fn hex(id: &str) -> &str {
    id.split_once('_').map_or(id, |(_, hex)| hex)
}
