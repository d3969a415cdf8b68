//! What a failed command means for the script that called it.

use std::io::{self, Write};
use std::process::ExitCode;

/// The exit code of wrong usage; also what the argument parser exits with.
pub(super) const USAGE: u8 = 2;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(super) enum Failure {
    /// It failed.
    Failed(String),
    /// Its arguments or a configuration are wrong.
    Usage(String),
    /// There is no such thing.
    NotFound(String),
    /// It comes too late, or the thing's state forbids it.
    Conflict(String),
    /// The host does not answer.
    Unreachable(String),
    /// What was looked at differs, and the caller wanted to be told.
    Changed(String),
    /// Whoever reads the output has stopped reading.
    OutputClosed,
}

impl Failure {
    /// What happened, for people; nothing, if nobody listens.
    pub(super) fn text(&self) -> &str {
        match self {
            Failure::Failed(text)
            | Failure::Usage(text)
            | Failure::NotFound(text)
            | Failure::Conflict(text)
            | Failure::Unreachable(text)
            | Failure::Changed(text) => text,
            Failure::OutputClosed => "",
        }
    }

    /// Says on standard error what happened, and gives the exit code.
    pub(super) fn report(self) -> ExitCode {
        let (code, text) = match self {
            Failure::Failed(text) => (1, text),
            Failure::Usage(text) => (USAGE, text),
            Failure::NotFound(text) => (3, text),
            Failure::Conflict(text) => (4, text),
            Failure::Unreachable(text) => (5, text),
            Failure::Changed(text) => (6, text),
            Failure::OutputClosed => return ExitCode::SUCCESS,
        };
        // Nobody reads it, or the disk that it goes to is full: the exit code still says it.
        let _ = writeln!(io::stderr(), "forebay: {text}");
        ExitCode::from(code)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Failed(error.to_string()),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        // What was being done when it failed is said too: a cause alone names no file.
        match error.downcast_ref::<io::Error>() {
            Some(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            Some(_) | None => Failure::Failed(format!("{error:#}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_failure_says_what_was_being_done() {
        let missing = Err::<(), _>(io::Error::from(io::ErrorKind::NotFound)).context("nowhere/fixtures").unwrap_err();
        let Failure::Failed(text) = Failure::from(missing) else { panic!("it is a plain failure") };
        assert!(text.starts_with("nowhere/fixtures: "), "{text}");
    }

    #[test]
    fn output_that_nobody_reads_is_no_failure() {
        let closed = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(Failure::from(closed), Failure::OutputClosed));
    }
}
