//! `forebay config`: checks a configuration, or prints the reference.

use std::path::PathBuf;

use clap::Args;

use super::exit::Failure;
use super::output::print;
use crate::app::{self, Config, Sources, reference};

/// `forebay config`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  forebay config --check /etc/forebay.toml\n  forebay config --reference | less")]
#[group(required = true, multiple = false)]
pub(super) struct Arguments {
    /// Check a file with the environment and the files that it names, as `forebay serve` does
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Print every key with its type, default, variable and meaning, as Markdown
    #[arg(long)]
    reference: bool,
}

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Some(file) = arguments.check else {
        return Ok(print(&reference())?);
    };
    let sources = Sources { file: Some(&file), environment: std::env::vars_os().collect(), flags: Vec::new() };
    let config = Config::load(&sources).map_err(|error| Failure::Usage(error.to_string()))?;
    app::check(&config).map_err(|error| Failure::Usage(error.to_string()))?;
    app::check_environment().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(print(&format!("{} can be used\n", file.display()))?)
}
