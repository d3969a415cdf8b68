//! Finds saved files in a pack's folder by polling: it works on every file system, and an editor that writes a file in
//! three steps causes one change.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::cli::fixture::{EXPECTED_SUFFIX, FOLDER, REQUEST_SUFFIX};

/// The most files in a folder; a pack has a handful.
const FILES_MAX: usize = 10_000;
/// Folders of generated files.
const MADE_FOLDERS: [&str; 3] = ["target", "target-guests", "node_modules"];
/// Files that a build writes.
const MADE_FILES: [&str; 1] = ["Cargo.lock"];
const PACK_SUFFIX: &str = ".fpk";

/// The mark of a file's version.
type Stamp = (SystemTime, u64);

/// The files of a folder at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Look(BTreeMap<PathBuf, Stamp>);

/// Saved files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Saved {
    /// Whether a source file of the pack was saved.
    pub(super) source: bool,
    /// Names of saved fixtures.
    pub(super) fixtures: Vec<String>,
}

/// A folder under watch.
#[derive(Debug)]
pub(super) struct Watch {
    folder: PathBuf,
    reported: Look,
    last: Look,
}

impl Watch {
    /// Starts to watch a folder; its present files count as known.
    pub(super) fn begin(folder: &Path) -> io::Result<Self> {
        let now = Look::at(folder)?;
        Ok(Self { folder: folder.to_owned(), reported: now.clone(), last: now })
    }

    /// Looks again. Changes are reported when two looks in a row are equal.
    pub(super) fn look(&mut self) -> io::Result<Saved> {
        let now = Look::at(&self.folder)?;
        let settled = now == self.last;
        self.last = now;
        if !settled {
            return Ok(Saved::default());
        }
        let saved = self.reported.until(&self.last);
        self.reported = self.last.clone();
        Ok(saved)
    }
}

impl Look {
    fn at(folder: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(below) = folders.pop() {
            let entries = match fs::read_dir(folder.join(&below)) {
                // Removed after its parent was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound && below != Path::new("") => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    if !MADE_FOLDERS.contains(&&*name) && !name.starts_with('.') {
                        folders.push(below.join(&*name));
                    }
                } else if is_written(&name) {
                    files.insert(below.join(&*name), (metadata.modified()?, metadata.len()));
                }
                if files.len() > FILES_MAX {
                    let text = format!("more than {FILES_MAX} files: is this the folder of a pack?");
                    return Err(io::Error::other(text));
                }
            }
        }
        Ok(Self(files))
    }

    fn until(&self, later: &Self) -> Saved {
        let mut saved = Saved::default();
        let changed = later.0.iter().filter(|(path, stamp)| self.0.get(*path) != Some(stamp)).map(|(path, _)| path);
        let removed = self.0.keys().filter(|path| !later.0.contains_key(*path));
        let (changed, removed): (Vec<_>, Vec<_>) = (changed.collect(), removed.collect());
        for path in changed {
            match fixture_of(path) {
                Some(name) => saved.fixtures.push(name.to_owned()),
                None => saved.source = true,
            }
        }
        saved.source |= removed.into_iter().any(|path| fixture_of(path).is_none());
        saved
    }
}

/// Whether a file of this name is the author's.
fn is_written(name: &str) -> bool {
    let made = MADE_FILES.contains(&name) || name.ends_with(PACK_SUFFIX) || name.ends_with(EXPECTED_SUFFIX);
    // Temporary files of editors.
    let aside = name.starts_with('.') || name.ends_with('~') || name.ends_with(".swp") || name.starts_with('#');
    !made && !aside
}

fn fixture_of(path: &Path) -> Option<&str> {
    let in_folder = path.parent()? == Path::new(FOLDER);
    path.file_name()?.to_str()?.strip_suffix(REQUEST_SUFFIX).filter(|_| in_folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, file: &str, text: &str) {
        let file = folder.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// Looks until nothing changes between two looks.
    fn settle(watch: &mut Watch) -> Saved {
        watch.look().unwrap();
        watch.look().unwrap()
    }

    #[test]
    fn what_is_saved_is_told_apart_and_told_once() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "src/lib.rs", "a");
        write(folder.path(), "fixtures/one.request.json", "{}");
        let mut watch = Watch::begin(folder.path()).unwrap();
        assert_eq!(settle(&mut watch), Saved::default());
        write(folder.path(), "src/lib.rs", "a longer one");
        assert_eq!(watch.look().unwrap(), Saved::default(), "it may still be being written");
        assert_eq!(watch.look().unwrap(), Saved { source: true, fixtures: vec![] });
        assert_eq!(settle(&mut watch), Saved::default());
        write(folder.path(), "fixtures/one.request.json", "{\"body\":1}");
        assert_eq!(settle(&mut watch), Saved { source: false, fixtures: vec!["one".to_owned()] });
        fs::remove_file(folder.path().join("src/lib.rs")).unwrap();
        assert!(settle(&mut watch).source);
    }

    #[test]
    fn what_is_made_is_not_taken_for_saved() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "pack.toml", "");
        let mut watch = Watch::begin(folder.path()).unwrap();
        for made in [
            "target/debug/x",
            "orders-0.1.0.fpk",
            "Cargo.lock",
            ".git/index",
            "src/.lib.rs.swp",
            "src/lib.rs~",
            "node_modules/a/b.js",
        ] {
            write(folder.path(), made, "made");
        }
        write(folder.path(), "fixtures/one.expected.json", "{}");
        assert_eq!(settle(&mut watch), Saved::default());
    }

    #[test]
    fn a_folder_that_is_gone_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = Watch::begin(folder.path()).unwrap();
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(watch.look().is_err());
    }
}
