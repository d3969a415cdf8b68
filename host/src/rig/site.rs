//! A folder with all that a host needs: configuration, secrets, data, log.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::TempDir;

use super::process::{HostCommand, free_address};

/// The tenant that the rig's deliveries belong to.
pub const NAMESPACE: &str = "demo";
/// The secret that the rig's GitHub deliveries are signed with.
pub const GITHUB_SECRET: &str = "It's a Secret to Everybody";
/// The secret that the rig's destinations sign with.
pub const DESTINATION_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// The name of that secret.
const DESTINATION_SECRET_NAME: &str = "notifications";

/// The folder, and how to start a host in it.
pub struct Site {
    folder: TempDir,
    /// What starts its host; may be changed between two starts.
    pub host: HostCommand,
}

impl Site {
    /// Makes the folder. `settings` is what the configuration says beyond the namespace.
    pub fn new(binary: PathBuf, packs: Vec<PathBuf>, settings: &str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("forebay-").tempdir().context("making a temporary folder")?;
        let at = |name: &str| folder.path().join(name);
        let secrets = at("secrets");
        std::fs::create_dir(&secrets)?;
        write_secret(&secrets.join("github"), GITHUB_SECRET)?;
        write_secret(&secrets.join(DESTINATION_SECRET_NAME), DESTINATION_SECRET)?;
        std::fs::write(at("forebay.toml"), format!("namespaces = [\"{NAMESPACE}\"]\n{settings}"))?;
        let host = HostCommand {
            binary,
            config: at("forebay.toml"),
            data: at("data"),
            secrets,
            packs,
            log: at("forebay.log"),
            intake: free_address()?,
            admin: free_address()?,
            limits: None,
        };
        Ok(Self { folder, host })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives the host one more secret.
    pub fn add_secret(&self, name: &str, secret: &str) -> anyhow::Result<()> {
        write_secret(&self.host.secrets.join(name), secret)
    }

    /// Leaves the folder where it is when this is dropped.
    pub fn keep(&mut self) {
        self.folder.disable_cleanup(true);
    }
}

fn write_secret(path: &Path, secret: &str) -> anyhow::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.write_all(secret.as_bytes())?)
}

/// Allows destinations on this machine.
pub const LOOPBACK_ALLOWED: &str = "[publish]\nallow_networks = [\"127.0.0.0/8\"]\n";

/// The configuration of a destination on this machine.
pub fn destination(name: &str, address: SocketAddr, more: &str) -> String {
    format!(
        "[destinations.{name}]\nurl = \"http://{address}/{name}\"\nsecret = \"{DESTINATION_SECRET_NAME}\"\n{more}\n"
    )
}
