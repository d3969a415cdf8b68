//! Readers' calls over the network: to the host that the manifest allows or the operator says, with the operator's
//! secrets, through the guarded client.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{HOST, HeaderValue, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{Request, Uri};
use http_body_util::Full;
use tokio::time::Instant;

use super::caller::{CallOutcome, Caller, ReaderCall, Unread};
use super::division::Blame;
use crate::env;
use crate::guest::ReadResponse;
use crate::model::names::PackName;
use crate::model::pack::{Reader, SecretHeader};
use crate::model::reading::ReaderOrigin;
use crate::outbound::{CallFailure, Client};
use crate::secrets::Secrets;

const FOREBAY: HeaderValue = HeaderValue::from_static(concat!("forebay/", env!("CARGO_PKG_VERSION")));

/// Calls providers over the network.
pub struct HttpCaller {
    client: Client,
    secrets: Secrets,
    origins: Arc<[ReaderOrigin]>,
}

impl HttpCaller {
    /// A caller with these secrets. What `origins` names is called there, and not at the manifest's hosts.
    pub fn new(client: Client, secrets: Secrets, origins: Vec<ReaderOrigin>) -> Self {
        Self { client, secrets, origins: origins.into() }
    }

    async fn send(&self, call: ReaderCall<'_>, deadline: Instant) -> Result<ReadResponse, Unread> {
        let reader = call.reader;
        let request = self.request(&call)?;
        let deadline = reader.timeout.map_or(deadline, |timeout| env::deadline(timeout).min(deadline));
        let bytes_max = usize::try_from(reader.response_bytes_max).unwrap_or(usize::MAX);
        match self.client.call(request, bytes_max, deadline).await {
            Ok(response) => {
                Ok(ReadResponse { status: response.status, headers: response.headers, body: response.body })
            }
            Err(CallFailure::Denied(reason)) => Err(Unread::refused(CallOutcome::Denied, reader, reason)),
            Err(CallFailure::Unreachable(reason)) => Err(Unread::failed(CallOutcome::Broken, reader, None, reason)),
            // The provider may have come to grief over one record.
            Err(CallFailure::Broken(reason)) => {
                Err(Unread::failed(CallOutcome::Broken, reader, None, reason).by(Blame::KeyOrProvider))
            }
            Err(timed_out @ CallFailure::TimedOut) => {
                Err(Unread::failed(CallOutcome::TimedOut, reader, None, timed_out).by(Blame::KeyOrProvider))
            }
            Err(CallFailure::TooLong { .. }) => Err(Unread::too_long(reader)),
        }
    }

    fn request(&self, call: &ReaderCall<'_>) -> Result<Request<Full<bytes::Bytes>>, Unread> {
        let asked = &call.request;
        let uri = match self.origin(call.pack, call.reader) {
            Some(origin) => behind(&origin.origin, &asked.path),
            None => Uri::builder()
                .scheme(Scheme::HTTPS)
                .authority(asked.host.clone())
                .path_and_query(asked.path.clone())
                .build()
                .ok(),
        };
        let uri = uri.ok_or_else(|| Unread::refused(CallOutcome::Denied, call.reader, "its path cannot be sent"))?;
        let mut headers = asked.headers.clone();
        headers.entry(USER_AGENT).or_insert(FOREBAY);
        // The client writes the one that belongs to the address.
        headers.remove(HOST);
        for secret in &call.reader.secret_headers {
            headers.insert(secret.name.clone(), self.secret(call, secret)?);
        }
        let mut request = Request::new(Full::new(asked.body.clone()));
        *request.method_mut() = asked.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// What the operator says of this reader; what is said of it alone counts more than what is said of its pack.
    fn origin(&self, pack: &PackName, reader: &Reader) -> Option<&ReaderOrigin> {
        let own = |origin: &&ReaderOrigin| origin.pack == *pack && origin.reader.as_ref() == Some(&reader.name);
        let of_pack = |origin: &&ReaderOrigin| origin.pack == *pack && origin.reader.is_none();
        self.origins.iter().find(own).or_else(|| self.origins.iter().find(of_pack))
    }

    /// Nobody but the operator can mend a secret: the events are tried again meanwhile.
    fn secret(&self, call: &ReaderCall<'_>, header: &SecretHeader) -> Result<HeaderValue, Unread> {
        let unusable = |reason: String| Unread::failed(CallOutcome::NoSecret, call.reader, None, reason);
        let secrets = self.secrets.of_pack(call.namespace, call.pack, &header.secret);
        let secrets = secrets.map_err(|error| unusable(error.to_string()))?;
        let newest = secrets.first().ok_or_else(|| unusable("its secret is empty".to_owned()))?;
        let value = [header.prefix.as_bytes(), newest.expose()].concat();
        let mut value = HeaderValue::from_bytes(&value)
            .map_err(|_| unusable(format!("the secret `{}` cannot be sent in a header", header.secret)))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Caller for HttpCaller {
    fn call<'a>(&'a self, call: ReaderCall<'a>, deadline: Instant) -> BoxFuture<'a, Result<ReadResponse, Unread>> {
        self.send(call, deadline).boxed()
    }
}

/// The path behind an origin that may have a path itself.
fn behind(origin: &Uri, path: &PathAndQuery) -> Option<Uri> {
    let before = origin.path().trim_end_matches('/');
    let mut parts = origin.clone().into_parts();
    parts.path_and_query = Some(format!("{before}{path}").parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_goes_behind_that_of_the_origin() {
        for (origin, path, whole) in [
            ("https://a.example", "/v1?x=1", "https://a.example/v1?x=1"),
            ("http://a.example:81/", "/v1", "http://a.example:81/v1"),
            ("http://a.example/proxy/", "/v1", "http://a.example/proxy/v1"),
        ] {
            let uri = behind(&origin.parse().unwrap(), &path.parse().unwrap()).unwrap();
            assert_eq!(uri.to_string(), whole);
        }
    }
}
