//! The transport of a link: TCP, with or without TLS.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::link_error::tls_error;

/// A connection, with a value of its owner.
#[derive(Debug)]
pub(super) struct Transport<T> {
    socket: Socket,
    tls_fault: TlsFault,
    pub(super) context: T,
}

#[derive(Debug)]
enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

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
    pub(super) fn plain(socket: TcpStream, context: T) -> Self {
        Self {
            socket: Socket::Plain(socket),
            tls_fault: TlsFault::default(),
            context,
        }
    }

    pub(super) fn tls(socket: impl Into<TlsStream<TcpStream>>, context: T) -> Self {
        Self {
            socket: Socket::Tls(Box::new(socket.into())),
            tls_fault: TlsFault::default(),
            context,
        }
    }

    pub(super) fn tls_fault(&self) -> TlsFault {
        self.tls_fault.clone()
    }
}

/// Calls a method of the socket, and keeps its first TLS error.
macro_rules! delegate {
    ($self:ident . $method:ident ( $($argument:expr),* )) => {{
        let this = $self.get_mut();
        let result = match &mut this.socket {
            Socket::Plain(socket) => Pin::new(socket).$method($($argument),*),
            Socket::Tls(socket) => Pin::new(socket.as_mut()).$method($($argument),*),
        };
        this.tls_fault.record(result)
    }};
}

impl<T: Unpin> AsyncRead for Transport<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self.poll_read(cx, buffer))
    }
}

impl<T: Unpin> AsyncWrite for Transport<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        delegate!(self.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self.poll_shutdown(cx))
    }
}
