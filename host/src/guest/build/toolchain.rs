//! The Rust toolchain for guests: rustup's, with the wasm target added if it is missing; or Debian's compiler, which
//! builds the target's standard library from source.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::guest::LoadError;

/// What guests are compiled for: wasm with no system beneath.
pub(super) const TARGET: &str = "wasm32-unknown-unknown";

/// Debian's `rustc-web` and `rust-web-src`.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_LIBRARY: &str = "/usr/lib/rustlib/src/rust/library";

/// A way to compile guests.
pub(super) enum Toolchain {
    /// The compiler has the target.
    WithTarget,
    /// The standard library is compiled along, by this compiler and with this linker.
    FromSource { rustc: PathBuf, linker: PathBuf },
}

impl Toolchain {
    /// Finds one, or makes one by adding the target.
    pub(super) fn find(progress: &mut dyn FnMut(&str)) -> Result<Self, LoadError> {
        let sysroot = PathBuf::from(rustc(&["--print", "sysroot"])?);
        if has_target(&sysroot) {
            return Ok(Self::WithTarget);
        }
        if let Some(from_source) = Self::from_source(&sysroot)? {
            progress("the wasm target is not installed: its standard library is built from source");
            return Ok(from_source);
        }
        progress(&format!("rustup target add {TARGET}"));
        let added = Command::new("rustup").args(["target", "add", TARGET]).stdin(Stdio::null()).output();
        if added.is_ok_and(|output| output.status.success()) && has_target(&sysroot) {
            return Ok(Self::WithTarget);
        }
        Err(LoadError(format!(
            "the Rust target {TARGET} is missing and cannot be added: run `rustup target add {TARGET}`, or on Debian \
             `apt-get install rustc-web rust-web-src`"
        )))
    }

    fn from_source(sysroot: &Path) -> Result<Option<Self>, LoadError> {
        if !Path::new(DEBIAN_RUSTC).exists() || !Path::new(DEBIAN_LIBRARY).exists() {
            return Ok(None);
        }
        let version = rustc(&["--version", "--verbose"])?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let linker = sysroot.join("lib/rustlib").join(host).join("bin/rust-lld");
        Ok(linker.exists().then(|| Self::FromSource { rustc: PathBuf::from(DEBIAN_RUSTC), linker }))
    }

    /// Cargo, set up for it.
    pub(super) fn cargo(&self) -> Command {
        let mut command = Command::new("cargo");
        match self {
            Self::WithTarget => {}
            Self::FromSource { rustc, linker } => {
                command
                    .args(["-Z", "build-std=std,panic_abort"])
                    .env("RUSTC", rustc)
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
            }
        }
        command
    }
}

fn has_target(sysroot: &Path) -> bool {
    sysroot.join("lib/rustlib").join(TARGET).join("lib").exists()
}

fn rustc(arguments: &[&str]) -> Result<String, LoadError> {
    let missing = |reason: String| {
        LoadError(format!("the Rust compiler cannot be run: {reason}. Install Rust: https://rustup.rs"))
    };
    let output = Command::new("rustc").args(arguments).output().map_err(|error| missing(error.to_string()))?;
    if !output.status.success() {
        return Err(missing(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
