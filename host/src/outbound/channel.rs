//! A connection to a destination, counted as long as it is open: under way, idle in the pool, or being made by the pool
//! for nobody any more.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How many connections of a dialer are open; clones count the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Channels(Arc<AtomicUsize>);

impl Channels {
    /// How many are open now.
    pub(crate) fn open(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, stream: TcpStream) -> Channel {
        self.0.fetch_add(1, Ordering::Relaxed);
        Channel { stream, channels: self.clone() }
    }
}

/// A counted connection.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: TcpStream,
    channels: Channels,
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.channels.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection for Channel {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl AsyncRead for Channel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Channel {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// What hyper calls a counted connection.
pub(super) type Counted = TokioIo<Channel>;
