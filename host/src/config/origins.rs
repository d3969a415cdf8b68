//! Addresses that are no destinations: where providers find this host, and where readers call.

use serde::{Deserialize, Serialize};

use super::sources::Settings;
use crate::model::names::{PackName, ReaderName};
use crate::model::reading::ReaderOrigin;
use crate::model::url;

/// A reader's address as it is written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReaderDocument {
    pack: Option<String>,
    reader: Option<String>,
    origin: Option<String>,
}

impl ReaderDocument {
    /// Checks its keys. What is wrong is noted in `settings`.
    pub(super) fn check(self, name: &str, settings: &mut Settings) -> Option<ReaderOrigin> {
        let path = |key: &str| format!("readers.{name}.{key}");
        let pack = match self.pack.as_deref().map(str::parse::<PackName>) {
            Some(Ok(pack)) => Some(pack),
            Some(Err(error)) => {
                settings.refuse(&path("pack"), format_args!("is wrong: {error}"));
                None
            }
            None => {
                settings.refuse(&path("pack"), "is missing: say whose readers are meant");
                None
            }
        };
        let reader = match self.reader.as_deref().map(str::parse::<ReaderName>).transpose() {
            Ok(reader) => Some(reader),
            Err(error) => {
                settings.refuse(&path("reader"), format_args!("is wrong: {error}"));
                None
            }
        };
        let origin = match self.origin.as_deref().map(origin) {
            Some(Ok(origin)) => Some(origin),
            Some(Err(reason)) => {
                settings.refuse(&path("origin"), reason);
                None
            }
            None => {
                settings.refuse(&path("origin"), "is missing: say where is called, like `https://proxy.example.com`");
                None
            }
        };
        Some(ReaderOrigin { pack: pack?, reader: reader?, origin: origin? })
    }
}

/// The address that providers deliver to, as what stands before the path of a request.
pub(super) fn public_url(text: &str) -> Result<String, String> {
    origin(text).map(|_| text.trim_end_matches('/').to_owned())
}

/// What stands before the path of a request: a URL that can be called, without a query.
fn origin(text: &str) -> Result<http::Uri, String> {
    let url = url::parse(text).map_err(|error| error.to_string())?;
    if url.query().is_some() {
        return Err("must not contain a query".to_owned());
    }
    Ok(url)
}
