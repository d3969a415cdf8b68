//! Where the build put things.

use std::path::{Path, PathBuf};

/// The `forebay` binary of the build that this test belongs to.
pub fn binary() -> PathBuf {
    let binary = profile_folder().join("forebay");
    assert!(binary.exists(), "{} is not there: `make test` builds it (cargo build -p forebay)", binary.display());
    binary
}

/// An example pack, built.
pub fn pack(name: &str) -> PathBuf {
    built_pack(name).unwrap_or_else(|| panic!("the pack {name} is not there: `make test` builds it (make guests)"))
}

/// An example pack, if it was built: some can only be built where more is installed.
pub fn built_pack(name: &str) -> Option<PathBuf> {
    let target = profile_folder().parent().map(Path::to_owned).expect("profiles lie in the target directory");
    let pack = target.join("packs").join(name).with_extension("fpk");
    pack.exists().then_some(pack)
}

/// The project's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests package lies in the project").to_owned()
}

fn profile_folder() -> PathBuf {
    // Test executables lie in `TARGET/PROFILE/deps`.
    let executable = std::env::current_exe().expect("a test knows where it runs from");
    executable.ancestors().nth(2).expect("it runs from a target directory").to_owned()
}
