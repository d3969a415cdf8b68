//! The admin token, from where the configuration says it is.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::config::{TOKEN_BYTES_MIN, TokenSource};
use crate::secrets::Secret;

/// The largest file that a token is read from: it may have lines of notes behind it.
const FILE_BYTES_MAX: u64 = 64 * 1_024;

/// Reads the token, if there is to be one; or says why it cannot be had.
pub(super) fn read(source: Option<&TokenSource>) -> Result<Option<Secret>, String> {
    match source {
        None => Ok(None),
        Some(TokenSource::Given(token)) => Ok(Some(token.clone())),
        Some(TokenSource::File(path)) => {
            let text = read_file(path).map_err(|reason| format!("{} {reason}", path.display()))?;
            let token = text.lines().next().unwrap_or_default().trim();
            if token.len() < TOKEN_BYTES_MIN {
                return Err(format!("the first line of {} is shorter than {TOKEN_BYTES_MIN} bytes", path.display()));
            }
            Ok(Some(Secret::new(token.as_bytes())))
        }
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    // Asked before it is opened: opening a pipe would wait for a writer, and a device may never end.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX { Err(format!("is larger than {FILE_BYTES_MAX} bytes")) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path) -> String {
        read(Some(&TokenSource::File(path.to_owned()))).unwrap_err()
    }

    #[test]
    fn only_a_file_of_a_tokens_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "a-token-of-20-letters\nfor whom it is\n").unwrap();
        let read = read(Some(&TokenSource::File(file.clone()))).unwrap().unwrap();
        assert_eq!(read.expose(), b"a-token-of-20-letters");
        std::fs::write(&file, "a".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
        assert!(refused(&file).ends_with("is larger than 65536 bytes"));
        std::fs::write(&file, "short\n").unwrap();
        assert!(refused(&file).ends_with("is shorter than 16 bytes"));
        assert_eq!(refused(Path::new("/dev/zero")), "/dev/zero is not a regular file");
        assert!(refused(folder.path()).ends_with("is not a regular file"));
        assert!(refused(&folder.path().join("none")).contains("cannot be read"));
    }
}
