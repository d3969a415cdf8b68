//! The output of the demonstration.

use std::fmt::Display;
use std::time::Duration;

use crate::admin::console_url;
use crate::rig::site::{GITHUB_SECRET, NAMESPACE, Site};

/// The heading of an act.
pub(super) fn act(number: u32, title: &str) {
    println!("\n{number}. {title}");
}

/// A line of an act.
pub(super) fn line(text: impl Display) {
    println!("   {text}");
}

/// An empty line.
pub(super) fn blank() {
    println!();
}

/// `+12 ms`, or `+1.2 s`.
pub(super) fn offset(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ 0..10_000 => format!("+{millis} ms"),
        _ => format!("+{:.1} s", duration.as_secs_f64()),
    }
}

/// Places to look at while the host runs.
pub(super) fn where_to_look(site: &Site) {
    let admin = site.host.admin;
    let binary = site.host.binary.display();
    println!("\nWhere to look next");
    line(format_args!("{}    the console, in a browser", console_url(admin)));
    line(format_args!("{binary} event list --admin http://{admin}"));
    line(format_args!("{binary} stats --admin http://{admin}"));
    line(format_args!("curl http://{admin}/metrics"));
    line(format_args!("its log: {}", site.host.log.display()));
    println!("Deliver by hand (bash)");
    line(format_args!("body='{{\"zen\":\"Hello\",\"repository\":{{\"full_name\":\"acme/api\"}}}}'"));
    line(format_args!(
        "curl -i http://{}/in/{NAMESPACE}/github -H 'content-type: application/json' -H 'x-github-event: ping' \\",
        site.host.intake
    ));
    line(format_args!(
        "  -H \"x-github-delivery: $RANDOM\" -d \"$body\" -H \"x-hub-signature-256: sha256=$(printf %s \"$body\" | \
         openssl dgst -sha256 -hmac '{}' -r | cut -d ' ' -f 1)\"",
        GITHUB_SECRET.replace('\'', "'\\''")
    ));
}

/// Places to look at after the host has ended.
pub(super) fn look_at_what_is_left(site: &Site) {
    println!("\nWhere to look next");
    line("STAY=1 make demo            the same, and the host keeps serving");
    line(format_args!("{}    its log, its store, its configuration", site.path().display()));
    line("docs/quick-start.md         a host of your own");
    line("docs/writing-a-pack.md      a connector of your own");
    line("ARCHITECTURE.md             how it works");
}
