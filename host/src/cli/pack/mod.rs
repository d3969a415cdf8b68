//! `forebay pack`: from a folder to a pack file, and from a pack file to the active generation.

mod build;
mod diff;
mod new;
mod preview;
mod rehearsal;
mod rollout;
mod test;

use std::fmt;
use std::str::FromStr;

use clap::Subcommand;

use super::exit::Failure;
use crate::guest::read_pack_file;
use crate::model::names::PackName;

pub(super) const HELP: &str = "\
Examples, in the order of a new pack:
  forebay pack new orders                            create a project with fixtures
  forebay dev orders                                 write it: each save builds and tries it
  forebay pack test orders                           compare its results with the expected ones
  forebay pack build orders --output orders.fpk      write the pack file
  forebay pack install orders.fpk                    install it on a running host, as orders@1
  forebay pack preview orders@1                      run it on past events, without effects
  forebay pack activate orders@1                     admit new events under it";

/// `forebay pack`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Create a project that builds and passes its test
    #[command(after_help = new::HELP)]
    New(new::Arguments),
    /// Build a folder with a pack.toml, and run its fixtures through the real engine
    #[command(after_help = test::HELP)]
    Test(test::Arguments),
    /// Compile a folder with a pack.toml, check it as a host does, and write its pack file
    #[command(after_help = build::BUILD_HELP)]
    Build(build::BuildArguments),
    /// Show what a pack file declares and can do, or why no host would serve it
    #[command(after_help = build::CHECK_HELP)]
    Check(build::CheckArguments),
    /// Install a pack file on a running host, as a new generation of its pack
    #[command(after_help = rollout::INSTALL_HELP)]
    Install(rollout::InstallArguments),
    /// List generations with their stages and unfinished work
    #[command(after_help = rollout::LIST_HELP)]
    List(rollout::ListArguments),
    /// Make a generation the active one: new events are admitted under it
    #[command(after_help = rollout::ACTIVATE_HELP)]
    Activate(rollout::ActivateArguments),
    /// Go back to the generation that was active before
    #[command(after_help = rollout::ROLLBACK_HELP)]
    Rollback(rollout::RollbackArguments),
    /// Close a pack's routes; admitted events are finished
    #[command(after_help = rollout::DEACTIVATE_HELP)]
    Deactivate(rollout::DeactivateArguments),
    /// Move the waiting work of a generation to another one, or end it as dead
    #[command(after_help = rollout::DRAIN_HELP)]
    Drain(rollout::DrainArguments),
    /// Run a pack on past events without effects, and show the differences
    #[command(after_help = preview::HELP)]
    Preview(preview::Arguments),
}

pub(super) async fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::New(arguments) => new::new(&arguments),
        Verb::Test(arguments) => test::test(arguments).await,
        Verb::Build(arguments) => build::build(&arguments),
        Verb::Check(arguments) => build::check(&arguments),
        Verb::Install(arguments) => rollout::install(arguments).await,
        Verb::List(arguments) => rollout::list(arguments).await,
        Verb::Activate(arguments) => rollout::activate(arguments).await,
        Verb::Rollback(arguments) => rollout::rollback(arguments).await,
        Verb::Deactivate(arguments) => rollout::deactivate(arguments).await,
        Verb::Drain(arguments) => rollout::drain(arguments).await,
        Verb::Preview(arguments) => preview::preview(arguments).await,
    }
}

/// A generation as people write it: `orders@3`.
#[derive(Debug, Clone)]
pub(super) struct GenerationName {
    pack: PackName,
    number: u32,
}

impl FromStr for GenerationName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pack, number) = text
            .split_once('@')
            .ok_or_else(|| format!("a generation is PACK@N, like {text}@1: `forebay pack list` shows them"))?;
        let pack = pack.parse().map_err(|error| format!("{error}"))?;
        match number.parse() {
            Ok(number @ 1..) => Ok(Self { pack, number }),
            Ok(0) | Err(_) => Err(format!("`{number}` is not a generation's number: these begin at 1")),
        }
    }
}

impl fmt::Display for GenerationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pack, self.number)
    }
}

/// Reads a pack file whole.
fn read_file(file: &std::path::Path) -> Result<Vec<u8>, Failure> {
    read_pack_file(file).map_err(|error| Failure::Failed(format!("{}: {error}", file.display())))
}
