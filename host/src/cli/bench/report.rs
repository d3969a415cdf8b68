//! The output of a benchmark: its figures, and the machine for comparisons.

use std::process::Command;

use serde::Serialize;

use super::load::Outcome;

/// The machine of a measurement.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    processor: String,
    cores: usize,
    memory_mib: u64,
    kernel: String,
    version: &'static str,
    commit: Option<String>,
    optimized: bool,
}

impl Machine {
    /// This machine; unknown parts are empty.
    pub(super) fn this() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let meminfo = read("/proc/meminfo");
        let memory_kib = field(&meminfo, "MemTotal").split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0u64);
        Self {
            processor: field(&cpuinfo, "model name").to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: memory_kib / 1_024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            optimized: !cfg!(debug_assertions),
        }
    }

    /// One line.
    pub(super) fn describe(&self) -> String {
        let commit = self.commit.as_deref().unwrap_or("unknown");
        let build = if self.optimized { "release" } else { "debug: NOT a figure to quote" };
        format!(
            "{} x {}, {} MiB, Linux {}; forebay {} ({commit}, {build})",
            self.cores, self.processor, self.memory_mib, self.kernel, self.version
        )
    }
}

/// The figures of a load that was sent.
#[derive(Debug, Serialize)]
pub(super) struct Admitted {
    /// Accepted requests per second.
    pub(super) rate: f64,
    accepted: u64,
    others: std::collections::BTreeMap<u16, u64>,
    seconds: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl From<&Outcome> for Admitted {
    fn from(outcome: &Outcome) -> Self {
        let accepted = http::StatusCode::ACCEPTED.as_u16();
        Self {
            rate: outcome.rate(),
            accepted: outcome.accepted(),
            others: outcome.statuses.iter().filter(|(status, _)| **status != accepted).map(|(s, n)| (*s, *n)).collect(),
            seconds: outcome.elapsed.as_secs_f64(),
            p50_ms: outcome.latency_ms(0.50),
            p99_ms: outcome.latency_ms(0.99),
            max_ms: outcome.latency_ms(1.0),
        }
    }
}

impl Admitted {
    /// One line.
    pub(super) fn describe(&self) -> String {
        let mut line = format!(
            "{:>8.0}/s   p50 {:.1} ms   p99 {:.1} ms   max {:.1} ms   ({} in {:.1} s)",
            self.rate, self.p50_ms, self.p99_ms, self.max_ms, self.accepted, self.seconds
        );
        for (status, count) in &self.others {
            line.push_str(&format!(", {count} x {status}"));
        }
        line
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The first `name : value` of a file in the style of /proc.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    value.map_or("", str::trim)
}

/// The commit of the present checkout, if there is one.
fn commit() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}
