//! Connecting: a host from a URL, its addresses, the guard's word on each of them, and only then a connection.
//!
//! Invariants:
//! - The addresses that were checked are the addresses that are dialled; nothing is resolved twice in between, so a
//!   name that resolves differently every time gains nothing.
//! - A name of which any address is denied is refused whole.
//! - No proxy is asked, whatever the environment says.
//! - Connecting is bounded in time also where nobody waits any more (the pool finishes what a request began).

use std::collections::HashMap;
use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use tower::Service;

use super::channel::{Channels, Counted};
use super::guard::{Denied, Guard, canonical};
use super::{cause, innermost};
use crate::env;
use crate::model::url::{Host, UrlError, port_of};

/// Over lookup, dial and TLS handshake of one connection. Destinations' deadlines are normally shorter; this ends what
/// the pool finishes in the background.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// For one address of several: room for the second retransmission of a lost SYN (after 3 s), then the next address.
const DIAL_TIME_MAX: Duration = Duration::from_secs(4);
/// Addresses of one name that are dialled one after another.
const ADDRESSES_MAX: usize = 8;
/// Lookups of one name at once. A lookup holds a thread until the system's resolver gives up; a dead name server must
/// not hold them all.
const LOOKUPS_PER_NAME_MAX: usize = 2;
/// Names that are looked up at once by a dialer for any host.
const NAMES_MAX: usize = 256;
/// Why there is no connection. Nothing of the request was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The guard refuses the address.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The URL's host or port is none that can be called, or its name none that may be.
    #[error("the URL {0}")]
    Host(#[from] UrlError),
    /// So many names are being looked up that this one must wait for another time.
    #[error("more than {NAMES_MAX} names are being looked up at once")]
    TooManyNames,
    /// The name was not resolved.
    #[error("the name could not be resolved: {0}")]
    Lookup(io::Error),
    /// The name has no address.
    #[error("the name has no address")]
    NoAddress,
    /// No address accepted a connection; the last one's reason.
    #[error("no connection: {0}")]
    Dial(io::Error),
    /// The connection stands, but TLS does not.
    #[error("no TLS connection: {}", tls_words(.0.as_ref()))]
    Tls(Box<dyn StdError + Send + Sync>),
    /// It took too long.
    #[error("no connection within {} s", CONNECT_TIME_MAX.as_secs())]
    TimedOut,
}

/// What is wrong with TLS, in words: the library's own are the names of its variants.
fn tls_words(error: &(dyn StdError + 'static)) -> String {
    use rustls::CertificateError as Wrong;

    // The connector's error holds the library's inside an I/O error, which does not call it its cause.
    let inner = cause::<io::Error>(error).and_then(io::Error::get_ref);
    let inner = inner.and_then(|error| error.downcast_ref::<rustls::Error>());
    let wrong = match inner.or_else(|| cause::<rustls::Error>(error)) {
        Some(rustls::Error::InvalidCertificate(wrong)) => wrong,
        Some(_) | None => return innermost(error).to_string(),
    };
    let words = match wrong {
        Wrong::Expired | Wrong::ExpiredContext { .. } => "it has expired",
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => "it is not valid yet",
        Wrong::UnknownIssuer => "its issuer is not trusted (`publish.ca_file` adds authorities)",
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => "it is for another name",
        Wrong::Revoked => "it was revoked",
        Wrong::BadSignature => "its signature is wrong",
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => "it is an authority's, and not a server's",
        other => return format!("the server's certificate is not taken: {other}"),
    };
    format!("the server's certificate is not taken: {words}")
}

/// Makes TCP connections to checked addresses.
#[derive(Clone)]
pub(crate) struct Dialer {
    guard: Arc<Guard>,
    names: Arc<Names>,
    channels: Channels,
}

/// The names that may be looked up, each with its lookups under way.
enum Names {
    /// These and no others, until others are said.
    Listed(Mutex<HashMap<String, Arc<Semaphore>>>),
    /// Any; an entry a name that is being looked up, at most [`NAMES_MAX`].
    Open(Mutex<HashMap<String, Arc<Semaphore>>>),
}

impl Names {
    /// What bounds the lookups of this name; `None` if it may not be looked up.
    fn lookups_of(&self, name: &str) -> Option<Arc<Semaphore>> {
        let fresh = || Arc::new(Semaphore::new(LOOKUPS_PER_NAME_MAX));
        match self {
            Names::Listed(names) => names.lock().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone),
            Names::Open(names) => {
                let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
                if names.len() >= NAMES_MAX && !names.contains_key(name) {
                    // What only the map holds is not being used.
                    names.retain(|_, lookups| Arc::strong_count(lookups) > 1);
                }
                if names.len() >= NAMES_MAX && !names.contains_key(name) {
                    return None;
                }
                Some(Arc::clone(names.entry(name.to_owned()).or_insert_with(fresh)))
            }
        }
    }
}

impl Dialer {
    /// A dialer for the hosts of these URLs, and for no others.
    pub(crate) fn new<'a>(guard: Guard, urls: impl Iterator<Item = &'a Uri>) -> Result<Self, UrlError> {
        let names = Arc::new(Names::Listed(Mutex::default()));
        let dialer = Self { guard: Arc::new(guard), names, channels: Channels::default() };
        dialer.list(urls)?;
        Ok(dialer)
    }

    /// From here on it dials the hosts of these URLs, and no others. If one of them has none, nothing changes.
    pub(crate) fn list<'a>(&self, urls: impl Iterator<Item = &'a Uri>) -> Result<(), UrlError> {
        let hosts = urls.map(Host::of).collect::<Result<Vec<Host>, UrlError>>()?;
        let Names::Listed(names) = &*self.names else { return Ok(()) };
        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *names);
        for host in hosts {
            match host {
                Host::Address(_) => {}
                Host::Name(name) => {
                    // Lookups that are under way go on counting.
                    let lookups = before.remove(&name);
                    let fresh = || lookups.unwrap_or_else(|| Arc::new(Semaphore::new(LOOKUPS_PER_NAME_MAX)));
                    names.entry(name).or_insert_with(fresh);
                }
            }
        }
        Ok(())
    }

    /// Whether a URL may be dialled, as far as that is known without looking its host up.
    pub(crate) fn check(&self, url: &Uri) -> Result<(), ConnectError> {
        let port = port_of(url)?;
        match Host::of(url)? {
            Host::Address(ip) => Ok(self.guard.check(canonical(SocketAddr::new(ip, port)))?),
            Host::Name(_) => Ok(()),
        }
    }

    /// A dialer for any host: which ones are called is decided before.
    pub(crate) fn for_any(guard: Guard) -> Self {
        Self { guard: Arc::new(guard), names: Arc::new(Names::Open(Mutex::default())), channels: Channels::default() }
    }

    /// Its connections that are open.
    pub(crate) fn channels(&self) -> Channels {
        self.channels.clone()
    }

    async fn connect(self, url: Uri) -> Result<TcpStream, ConnectError> {
        let port = port_of(&url)?;
        let addresses = match Host::of(&url)? {
            Host::Address(ip) => vec![SocketAddr::new(ip, port)],
            Host::Name(name) => self.look_up(name, port).await?,
        };
        dial(&self.guard, addresses).await
    }

    async fn look_up(&self, name: String, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
        let lookups = match &*self.names {
            Names::Listed(_) => self.names.lookups_of(&name).ok_or_else(|| UrlError::Host(name.clone()))?,
            // The names that are being looked up now may be another pack's: this one is tried again.
            Names::Open(_) => self.names.lookups_of(&name).ok_or(ConnectError::TooManyNames)?,
        };
        let permit = lookups.acquire_owned().await.expect("lookups are never closed");
        // The permit goes with the thread, not with the caller, who may stop waiting.
        let lookup = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            (name.as_str(), port).to_socket_addrs().map(Iterator::collect)
        });
        lookup.await.map_err(io::Error::other).flatten().map_err(ConnectError::Lookup)
    }
}

/// Checks all of `addresses`, then dials them in turn until one accepts.
pub(crate) async fn dial(guard: &Guard, addresses: Vec<SocketAddr>) -> Result<TcpStream, ConnectError> {
    let addresses: Vec<SocketAddr> = addresses.into_iter().map(canonical).collect();
    for address in &addresses {
        guard.check(*address)?;
    }
    let mut failure = ConnectError::NoAddress;
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        match timeout_at(env::deadline(DIAL_TIME_MAX), TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // A message is written at once and then waited for: delaying small packets gains nothing.
                stream.set_nodelay(true).map_err(ConnectError::Dial)?;
                return Ok(stream);
            }
            Ok(Err(error)) => failure = ConnectError::Dial(error),
            Err(_elapsed) => failure = ConnectError::Dial(io::ErrorKind::TimedOut.into()),
        }
    }
    Err(failure)
}

impl Service<Uri> for Dialer {
    type Response = Counted;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let channels = self.channels.clone();
        let connecting = self.clone().connect(url);
        Box::pin(async move { connecting.await.map(|stream| TokioIo::new(channels.count(stream))) })
    }
}

/// A [`Dialer`] with TLS where the URL asks for it, bounded in time.
#[derive(Clone)]
pub(crate) struct Connector {
    inner: HttpsConnector<Dialer>,
}

impl Connector {
    /// TLS as `tls` says for `https`, plain TCP for `http`.
    pub(crate) fn new(dialer: Dialer, tls: ClientConfig) -> Self {
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        Self { inner: builder.wrap_connector(dialer) }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<Counted>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connecting = timeout_at(env::deadline(CONNECT_TIME_MAX), self.inner.call(url));
        Box::pin(async move {
            let connected = connecting.await.map_err(|_elapsed| ConnectError::TimedOut)?;
            // What is not the dialer's own error comes from the handshake.
            connected.map_err(|error| match error.downcast::<ConnectError>() {
                Ok(error) => *error,
                Err(error) => ConnectError::Tls(error),
            })
        })
    }
}

#[cfg(test)]
mod tests;
