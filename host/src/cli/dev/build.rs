//! Builds a pack's folder and activates the result on the host.

use std::path::PathBuf;
use std::sync::Arc;

use crate::admin::wire;
use crate::cli::client::Client;
use crate::env::Env;
use crate::guest::{PackBuild, Trial, build_pack};
use crate::model::pack::Manifest;

/// Lines of a compiler that are shown after a failed build, from the first on.
const LINES_SHOWN: usize = 200;

/// Builds packs and installs them on the host.
#[derive(Clone)]
pub(super) struct Builder {
    pub(super) client: Arc<Client>,
    pub(super) target_directory: Option<PathBuf>,
    pub(super) env: Env,
}

/// A pack that serves.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) manifest: Arc<Manifest>,
    /// The line for the author.
    pub(super) text: String,
}

impl Builder {
    /// Builds the pack in `folder`, installs and activates it. The error is a text for the author.
    pub(super) async fn build(&self, folder: PathBuf, output: PathBuf) -> Result<Serving, String> {
        let begin = self.env.clock.monotonic();
        let target_directory = self.target_directory.clone();
        let (folder_built, output_written) = (folder.clone(), output.clone());
        let building = tokio::task::spawn_blocking(move || {
            let mut lines = Vec::new();
            let wanted = PackBuild {
                folder: &folder_built,
                output: Some(&output_written),
                target_directory: target_directory.as_deref(),
                trial: Trial::OfTheNext,
            };
            build_pack(wanted, &mut |line| lines.push(line.to_owned()))
                .map_err(|error| failed(&lines, &error.to_string()))
        });
        let built = building.await.map_err(|error| format!("the build ended unexpectedly: {error}"))??;
        let file = std::fs::read(&output).map_err(|error| format!("{}: {error}", output.display()))?;
        let installed = self.client.post_file("/api/v1/packs?activate=true", file).await;
        let installed: wire::Installed =
            installed.and_then(|answer| answer.read()).map_err(|failure| failure.text().to_owned())?;
        let took = (self.env.clock.monotonic() - begin).as_secs_f64();
        let text = format!("{}@{} serves (built in {took:.1} s)", installed.pack, installed.generation);
        Ok(Serving { manifest: built.report.manifest, text })
    }
}

/// The output of a compiler, without its progress, and the reason of the failure.
fn failed(lines: &[String], reason: &str) -> String {
    let account = |line: &&String| !line.trim_start().starts_with("Compiling ");
    let mut shown: Vec<&str> = lines.iter().filter(account).map(String::as_str).collect();
    let cut = shown.len().saturating_sub(LINES_SHOWN);
    shown.truncate(LINES_SHOWN);
    let mut text = shown.join("\n");
    if cut > 0 {
        text.push_str(&format!("\n… {cut} more lines"));
    }
    format!("{text}\n{reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_complaints_are_shown_and_how_many_more_there_are() {
        let mut lines = vec!["   Compiling orders v0.1.0".to_owned()];
        lines.extend((0..=LINES_SHOWN).map(|number| format!("error {number}")));
        let text = failed(&lines, "the crate does not compile");
        assert!(text.starts_with("error 0\n") && !text.contains("Compiling"), "{text}");
        assert!(text.ends_with("… 1 more lines\nthe crate does not compile"), "{text}");
    }
}
