//! The admin token, from where the configuration says it is.

use super::StartError;
use crate::config::{TOKEN_BYTES_MIN, TokenSource};
use crate::secrets::Secret;

/// Reads the token, if there is to be one.
pub(super) fn read(source: Option<&TokenSource>) -> Result<Option<Secret>, StartError> {
    match source {
        None => Ok(None),
        Some(TokenSource::Given(token)) => Ok(Some(token.clone())),
        Some(TokenSource::File(path)) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| StartError::Token(format!("{} cannot be read: {error}", path.display())))?;
            let token = text.lines().next().unwrap_or_default().trim();
            if token.len() < TOKEN_BYTES_MIN {
                let reason = format!("the first line of {} is shorter than {TOKEN_BYTES_MIN} bytes", path.display());
                return Err(StartError::Token(reason));
            }
            Ok(Some(Secret::new(token.as_bytes())))
        }
    }
}
