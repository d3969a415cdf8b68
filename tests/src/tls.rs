//! TLS in front of a receiver that speaks none, under the certificate of an authority that nobody trusts unless told
//! to.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use forebay::env;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::paths;

/// A listener that speaks TLS; it stops when this is dropped.
pub struct TlsFront {
    /// Where it listens.
    pub address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl TlsFront {
    /// Listens on a port of its own, and passes on to `behind` what comes in by TLS.
    pub async fn start(behind: SocketAddr) -> anyhow::Result<Self> {
        let chain = CertificateDer::pem_file_iter(certificate("localhost.pem"))?.collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_file(certificate("localhost.key"))?;
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("binding a TLS listener")?;
        let address = listener.local_addr()?;
        let accepting = env::spawn("TLS front", async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(env::spawn("TLS front connection", pass_on(acceptor.clone(), stream, behind)));
            }
        });
        Ok(Self { address, accepting })
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The authority's certificate, in PEM.
pub fn authority() -> PathBuf {
    certificate("authority.pem")
}

/// A client that does not trust the certificate goes away, and nobody here minds.
async fn pass_on(acceptor: TlsAcceptor, stream: TcpStream, behind: SocketAddr) {
    let Ok(mut outside) = acceptor.accept(stream).await else { return };
    let Ok(mut inside) = TcpStream::connect(behind).await else { return };
    let _ = copy_bidirectional(&mut outside, &mut inside).await;
}

fn certificate(name: &str) -> PathBuf {
    paths::root().join("tests/certificates").join(name)
}
