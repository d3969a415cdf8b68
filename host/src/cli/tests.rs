use clap::{CommandFactory, Parser};
use expect_test::expect;

use super::Cli;
use super::message::parse_delay_ms;
use super::output::{Table, fields, printable_lines};

fn parse(line: &str) -> Result<Cli, String> {
    Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
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
        &format!("forebay message list --destination crm --state retry_wait --event {event} --after {id}"),
        &format!("forebay message show {id} --json"),
        &format!("forebay message cancel {id}"),
        &format!("forebay message reschedule {id} --at 2030-01-31T08:00:00Z"),
        &format!("forebay message reschedule {id} --in 90s"),
        "forebay stats --json",
        "forebay migrate --data d --json",
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
