//! Failures of commands and their exit codes.

use std::io::{self, Write};
use std::process::ExitCode;

/// The exit code of wrong usage; also what the argument parser exits with.
pub(super) const USAGE: u8 = 2;

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Any other failure.
    Failed(String),
    /// Wrong arguments or configuration.
    Usage(String),
    /// The object does not exist.
    NotFound(String),
    /// The command is too late, or conflicts with the state of the object.
    Conflict(String),
    /// The host does not answer.
    Unreachable(String),
    /// A comparison found a difference.
    Differs(String),
    /// The reader of the output has closed the pipe.
    OutputClosed,
}

impl Failure {
    /// The message for the operator; empty for a closed pipe.
    pub(super) fn text(&self) -> &str {
        match self {
            Failure::Failed(text)
            | Failure::Usage(text)
            | Failure::NotFound(text)
            | Failure::Conflict(text)
            | Failure::Unreachable(text)
            | Failure::Differs(text) => text,
            Failure::OutputClosed => "",
        }
    }

    /// Prints the message on standard error, and returns the exit code.
    pub(super) fn report(self) -> ExitCode {
        let (code, text) = match self {
            Failure::Failed(text) => (1, text),
            Failure::Usage(text) => (USAGE, text),
            Failure::NotFound(text) => (3, text),
            Failure::Conflict(text) => (4, text),
            Failure::Unreachable(text) => (5, text),
            Failure::Differs(text) => (6, text),
            Failure::OutputClosed => return ExitCode::SUCCESS,
        };
        // If standard error cannot be written, the exit code still tells.
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
        // The context is part of the message: a cause alone names no file.
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
