//! The transport of a link: TCP, with or without TLS.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::link_error::tls_error;

/// A connection, with a value of its owner.
pub(super) struct Transport<T> {
    socket: Box<dyn Socket>,
    tls_fault: TlsFault,
    pub(super) context: T,
}

/// A TCP socket, or a TLS session on one.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// The first TLS error of a connection; clones share it.
///
/// With TLS 1.3 a caller learns after its own handshake that the peer refused its certificate. HTTP/2 reports this error like
/// any other failure of the connection, so the transport keeps it.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsFault(Arc<OnceLock<String>>);

impl TlsFault {
    pub(super) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn record<R>(&self, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if let Poll::Ready(Err(error)) = &result
            && let Some(tls) = tls_error(error)
        {
            // Later errors follow from the first.
            let _ = self.0.set(tls.to_string());
        }
        result
    }
}

impl<T> Transport<T> {
    pub(super) fn new(
        socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        context: T,
    ) -> Self {
        Self {
            socket: Box::new(socket),
            tls_fault: TlsFault::default(),
            context,
        }
    }

    pub(super) fn tls_fault(&self) -> TlsFault {
        self.tls_fault.clone()
    }
}

impl<T: Unpin> AsyncRead for Transport<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_read(cx, buffer);
        self.tls_fault.record(result)
    }
}

impl<T: Unpin> AsyncWrite for Transport<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.tls_fault.record(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_flush(cx);
        self.tls_fault.record(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.tls_fault.record(result)
    }
}
