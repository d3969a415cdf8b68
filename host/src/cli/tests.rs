use std::path::Path;
use std::time::Duration;

use clap::{Command, CommandFactory, Parser};
use expect_test::expect;
use http::StatusCode;

use super::client::{Query, refusal};
use super::exit::Failure;
use super::message::parse_delay_ms;
use super::output::{Table, fields, printable_lines};
use super::{Cli, run};
use crate::app::{App, Config, FlagSetting, Launch, Running, Sources};
use crate::rig;

fn parse(line: &str) -> Result<Cli, String> {
    Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

/// Every verb below `verb`, with its name.
fn verbs(name: &str, verb: &Command, all: &mut Vec<(String, Command)>) {
    for own in verb.get_subcommands().filter(|own| own.get_name() != "help" && !own.is_hide_set()) {
        let name = format!("{name} {}", own.get_name());
        verbs(&name, own, all);
        all.push((name, own.clone()));
    }
}

/// The commands of an example, as the shell would split them, with whole ids.
fn commands(line: &str) -> Vec<Vec<String>> {
    let id = "0192f00000007000800000000000000a";
    let line = line.trim().split("   ").next().unwrap().split(" | ").next().unwrap().replace("019a…", id);
    let words = |command: &str| {
        let mut words = vec![String::new()];
        for (index, part) in command.split('\'').enumerate() {
            match index % 2 {
                0 => part.chars().for_each(|c| if c == ' ' { words.push(String::new()) } else { push(&mut words, c) }),
                _ => part.chars().for_each(|c| push(&mut words, c)),
            }
        }
        words.into_iter().skip_while(|word| word.contains('=')).filter(|word| !word.is_empty()).collect()
    };
    line.split(" && ").map(words).collect()
}

fn push(words: &mut [String], character: char) {
    words.last_mut().unwrap().push(character);
}

/// Every verb explains its arguments, and shows examples that can be typed in.
#[test]
fn the_help_of_every_verb_shows_examples_that_are_understood() {
    let mut command = Cli::command();
    command.build();
    let mut all = Vec::new();
    verbs("forebay", &command, &mut all);
    assert!(all.len() > 40, "{}", all.len());
    for (name, verb) in &all {
        let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
        let group = all.iter().find(|(group, _)| name.rsplit_once(' ').is_some_and(|(above, _)| above == group));
        let of_group = group.and_then(|(_, group)| group.get_after_help()).map(ToString::to_string).unwrap_or_default();
        let is_example = |line: &&str| {
            let program = line.trim().split(' ').find(|word| !word.contains('='));
            line.starts_with("  ") && program == Some("forebay")
        };
        let own = help.lines().filter(is_example);
        // The benchmarks have their examples in one place.
        let above = of_group.lines().filter(is_example).filter(|line| line.trim().starts_with(name.as_str()));
        let examples: Vec<&str> = own.chain(above).collect();
        assert!(!examples.is_empty(), "{name} --help shows no example");
        for command in examples.iter().flat_map(|line| commands(line)) {
            let parsed = Cli::try_parse_from(&command);
            assert!(parsed.is_ok(), "{name} --help: {command:?}: {}", parsed.unwrap_err());
        }
        // The terminal's width decides where a paragraph breaks: each is one line, and headings end in a colon.
        let lines: Vec<&str> = help.lines().collect();
        for pair in lines.windows(2) {
            let paragraph = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
            assert!(!(paragraph(pair[0]) && paragraph(pair[1])), "{name} --help breaks a paragraph: {pair:?}");
            assert!(!pair[1].starts_with(' ') || pair[1].chars().count() <= 100, "{}", pair[1]);
        }
        for argument in verb.get_arguments() {
            assert!(argument.get_help().is_some(), "{name}: {} is not explained", argument.get_id());
        }
    }
}

#[test]
fn a_query_has_the_parameters_that_have_a_value() {
    let none: Option<u32> = None;
    assert_eq!(Query::new("/api/v1/lanes").and("limit", none).as_str(), "/api/v1/lanes");
    let query =
        Query::new("/api/v1/lanes").and("limit", none).and("troubled", Some(true)).and("namespace", Some("acme"));
    assert_eq!(query.as_str(), "/api/v1/lanes?troubled=true&namespace=acme");
}

/// The error of a missing argument names the alternatives.
#[test]
fn a_choice_that_was_not_made_names_all_that_can_be_chosen() {
    let missing = parse("forebay event verify").unwrap_err();
    assert!(missing.contains("<ID|--last <N>>"), "{missing}");
    let both = parse("forebay event verify evt_0192f00000007000800000000000000a --last 3").unwrap_err();
    assert!(both.contains("cannot be used with"), "{both}");
    let missing = parse("forebay pack drain orders@2").unwrap_err();
    assert!(missing.contains("<--to <M>|--dead-letter>"), "{missing}");
    assert!(parse("forebay pack drain orders@2 --to 3 --dead-letter").is_err());
    assert!(parse("forebay event verify evt_0192f00000007000800000000000000a --pack orders").is_err());
}

#[test]
fn every_verb_is_understood() {
    let event = "evt_0192f00000007000800000000000000a";
    let work_item = "wi_0192f00000007000800000000000000a";
    let id = "msg_0192f00000007000800000000000000a";
    for line in [
        "forebay serve",
        "forebay serve --config f.toml --data d --intake 127.0.0.1:0 --admin 127.0.0.1:0 --pack a.fpk --pack b.fpk --secrets s",
        "forebay event list --namespace acme --pack github --route github --state dead --limit 5 --json",
        &format!("forebay event show {event} --admin http://127.0.0.1:9"),
        &format!("forebay work-item show {work_item}"),
        &format!("forebay work-item skip {work_item}"),
        &format!("forebay work-item replay {work_item} --json"),
        &format!("forebay event replay {event} --json"),
        &format!("forebay message list --destination crm --state retry_wait --event {event} --after {id}"),
        &format!("forebay message show {id} --json"),
        &format!("forebay message cancel {id}"),
        &format!("forebay message reschedule {id} --at 2030-01-31T08:00:00Z"),
        &format!("forebay message reschedule {id} --in 90s"),
        &format!("forebay message why {id} --json"),
        &format!("forebay message redrive {id}"),
        "forebay message redrive --lane acme/sink --json",
        &format!("forebay message resolve {id} --as published"),
        "forebay lane list --namespace acme --destination sink --json",
        "forebay lane show acme/sink",
        "forebay lane pause sink --reason maintenance",
        "forebay lane resume sink",
        "forebay lane close acme/sink --json",
        "forebay shard list --json",
        "forebay stats --json",
        "forebay retention --json",
        "forebay migrate --data d --json",
        "forebay doctor --config f.toml --data d --pack a.fpk --secrets s --admin http://127.0.0.1:9 --json",
        "forebay config --check f.toml",
        "forebay config --reference",
    ] {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
}

#[test]
fn what_cannot_be_right_is_refused() {
    let id = "msg_0192f00000007000800000000000000a";
    for line in [
        "forebay",
        "forebay sevre",
        "forebay event show 42",
        "forebay event list --state finished",
        "forebay event list --namespace Acme",
        "forebay event list --limit 0",
        &format!("forebay message reschedule {id}"),
        &format!("forebay message reschedule {id} --in 90s --at 2030-01-31T08:00:00Z"),
        &format!("forebay message reschedule {id} --at tomorrow"),
        &format!("forebay message reschedule {id} --in 1month"),
        &format!("forebay message reschedule {id} --in=-5s"),
        "forebay message redrive",
        &format!("forebay message redrive {id} --lane acme/sink"),
        &format!("forebay message resolve {id} --as lost"),
        "forebay lane pause Acme/sink",
        "forebay lane show",
        "forebay config",
        "forebay config --reference --check f.toml",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_delay_is_a_number_of_milliseconds() {
    for (text, expected) in [("90s", 90_000), ("1d", 86_400_000), ("2h 30m", 9_000_000), ("250ms", 250), ("0s", 0)] {
        assert_eq!(parse_delay_ms(text), Ok(expected), "{text}");
    }
}

#[test]
fn tables_are_aligned_and_show_no_control_characters() {
    let mut table = Table::new(["ID", "KEY", "STATE"]);
    table.row(["evt_1", "a\u{1b}[31mred\n", "done"]);
    table.row(["evt_22", &"x".repeat(80), "dead"]);
    expect![[r#"
        ID      KEY                                                           STATE
        evt_1   a�[31mred�                                                    done
        evt_22  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…  dead
    "#]]
    .assert_eq(&table.render());
    expect![[r#"
        event      evt_1
        work item  a�b
    "#]]
    .assert_eq(&fields(&[("event", Some("evt_1")), ("note", None), ("work item", Some("a\tb"))]));
    assert_eq!(printable_lines("a\n\tb\u{7}"), "a\n\tb\u{fffd}");
}

/// A host that listens where the system finds room, with these keys beside.
async fn host(data: &Path, keys: &[(&'static str, &str)]) -> Running {
    let listen = [("intake.listen", "127.0.0.1:0"), ("admin.listen", "127.0.0.1:0")];
    let flag = |(key, value): &(&'static str, &str)| FlagSetting { flag: "test", key, value: (*value).to_owned() };
    let flags = listen.iter().chain(keys).map(flag).collect();
    let config = Config::load(&Sources { flags, ..Sources::default() }).unwrap();
    let launch = Launch { data: data.to_owned(), secrets: None, packs: Vec::new() };
    App::start(config, launch).await.unwrap()
}

#[tokio::test]
async fn what_a_host_answers_decides_the_exit_code() {
    let data = tempfile::tempdir().unwrap();
    let running = host(data.path(), &[]).await;
    let admin = format!("http://{}", running.admin_addr());
    for what in [
        "event show evt_00000000000000000000000000000000",
        "work-item show wi_00000000000000000000000000000000",
        "work-item skip wi_00000000000000000000000000000000",
        "work-item replay wi_00000000000000000000000000000000",
        "event replay evt_00000000000000000000000000000000",
        "message show msg_00000000000000000000000000000000",
        "message cancel msg_00000000000000000000000000000000",
        "message reschedule msg_00000000000000000000000000000000 --in 5s",
        "message why msg_00000000000000000000000000000000",
        "message redrive msg_00000000000000000000000000000000",
        "message resolve msg_00000000000000000000000000000000 --as retry",
        "lane show sink",
        "lane pause sink",
        "lane resume sink",
    ] {
        let failure = run(parse(&format!("forebay {what} --admin {admin}")).unwrap().verb).await.unwrap_err();
        assert!(matches!(failure, Failure::NotFound(_)), "{what}: {failure:?}");
    }
    for what in ["lane list", "shard list", "retention", "message redrive --lane acme/sink"] {
        for format in ["", " --json"] {
            run(parse(&format!("forebay {what}{format} --admin {admin}")).unwrap().verb).await.unwrap();
        }
    }
    running.shutdown(Duration::from_secs(25)).await.unwrap();
    let failure = run(parse(&format!("forebay stats --admin {admin}")).unwrap().verb).await.unwrap_err();
    assert!(matches!(failure, Failure::Unreachable(_)), "{failure:?}");
    let failure = run(parse("forebay stats --admin https://127.0.0.1").unwrap().verb).await.unwrap_err();
    assert!(matches!(failure, Failure::Usage(_)), "{failure:?}");
}

#[tokio::test]
async fn a_name_that_means_nothing_here_is_not_taken_for_good_news() {
    let data = tempfile::tempdir().unwrap();
    let keys = [("namespaces", "acme"), ("destinations.sink.url", "http://a.example/")];
    let running = host(data.path(), &keys).await;
    let admin = format!("http://{}", running.admin_addr());
    let ask = async |what: &str| run(parse(&format!("forebay {what} --admin {admin}")).unwrap().verb).await;
    for (what, named) in [
        ("lane pause acmee/sink", "namespace acmee in the configuration"),
        ("lane close acmee/sink", "namespace acmee in the configuration"),
        ("lane resume acmee/sink", "namespace acmee in the configuration"),
        ("lane resume nope", "destination nope on this host"),
        ("queue peek --pack nope", "pack nope"),
        ("event verify --last 5 --pack nope", "pack nope"),
    ] {
        match ask(what).await.unwrap_err() {
            Failure::NotFound(text) => assert!(text.contains(named), "{what}: {text}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    let gates = rig::http::get(running.admin_addr(), "/api/v1/lanes").await.unwrap().json().unwrap();
    assert_eq!(gates["gates"], serde_json::json!([]), "no gate was set");
    for what in ["lane pause acme/sink", "lane resume acme/sink", "lane pause sink", "lane resume sink"] {
        ask(what).await.unwrap();
    }
    running.shutdown(Duration::from_secs(25)).await.unwrap();
}

#[tokio::test]
async fn a_pack_that_is_too_large_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("huge.fpk");
    std::fs::File::create(&file).unwrap().set_len(3 << 30).unwrap();
    // Nothing listens there: what is refused is not sent.
    for what in ["install", "preview"] {
        let line = format!("forebay pack {what} {} --admin http://127.0.0.1:1", file.display());
        match run(parse(&line).unwrap().verb).await.unwrap_err() {
            Failure::Failed(text) => assert!(text.contains("it has 3221225472 bytes"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_cannot_be_read_is_answered_with_what_can() {
    let id = "msg_0192f00000007000800000000000000a";
    for (line, hint) in [
        (format!("forebay message reschedule {id} --at tomorrow"), "like 2030-01-31T08:00:00Z"),
        (format!("forebay message reschedule {id} --at 9999-12-31T23:59:59Z"), "like 2030-01-31T08:00:00Z"),
        ("forebay shard checkpoint x".to_owned(), "use a shard's number"),
    ] {
        let refused = parse(&line).unwrap_err();
        assert!(refused.contains(hint), "{line}: {refused}");
    }
}

#[tokio::test]
async fn migrating_a_directory_without_a_store_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("mistyped");
    match run(parse(&format!("forebay migrate --data {}", data.display())).unwrap().verb).await.unwrap_err() {
        Failure::Failed(text) => assert!(text.contains("there is no store in"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(!data.exists());
}

#[tokio::test]
async fn the_doctor_asks_a_running_host_and_fails_where_none_runs() {
    let data = tempfile::tempdir().unwrap();
    let running = host(data.path(), &[]).await;
    while rig::http::get(running.admin_addr(), "/readyz").await.unwrap().status != StatusCode::OK {
        tokio::task::yield_now().await;
    }
    let line = format!("forebay doctor --data {} --admin http://{}", data.path().display(), running.admin_addr());
    run(parse(&line).unwrap().verb).await.unwrap();
    run(parse(&format!("{line} --json")).unwrap().verb).await.unwrap();
    running.shutdown(Duration::from_secs(25)).await.unwrap();
    match run(parse(&line).unwrap().verb).await.unwrap_err() {
        Failure::Failed(text) => assert_eq!(text, "one finding is a failure"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_missing_token_is_asked_for_by_name() {
    let data = tempfile::tempdir().unwrap();
    let running = host(data.path(), &[("admin.token", "a-token-of-20-letters")]).await;
    let line = format!("forebay stats --admin http://{}", running.admin_addr());
    match run(parse(&line).unwrap().verb).await.unwrap_err() {
        Failure::Failed(text) => assert!(text.contains("FOREBAY_ADMIN_TOKEN"), "{text}"),
        other => panic!("{other:?}"),
    }
    running.shutdown(Duration::from_secs(25)).await.unwrap();
}

#[test]
fn a_refusal_says_what_the_host_said() {
    let body = br#"{"error":{"code":"too_late","message":"it is too late","state":"publishing"}}"#;
    assert!(matches!(refusal(StatusCode::CONFLICT, body), Failure::Conflict(text) if text == "it is too late"));
    assert!(matches!(refusal(StatusCode::BAD_REQUEST, body), Failure::Usage(_)));
    assert!(matches!(refusal(StatusCode::BAD_GATEWAY, b"<html>"), Failure::Failed(text) if text.contains("502")));
}
