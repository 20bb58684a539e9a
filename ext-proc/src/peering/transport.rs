//! The connection under a stream: TCP, with TLS or without.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::link_error::tls_error;

/// A connection, and what its user wants to know with it.
#[derive(Debug)]
pub(super) struct Io<T> {
    socket: Socket,
    fault: Fault,
    pub(super) about: T,
}

#[derive(Debug)]
enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The first TLS error of a connection. HTTP/2 reports it as one failure of a connection among many; but with TLS 1.3
/// it is how a caller learns, after its own handshake is done, that its certificate was refused.
#[derive(Clone, Debug, Default)]
pub(super) struct Fault(Arc<OnceLock<String>>);

impl Fault {
    pub(super) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn note<R>(&self, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if let Poll::Ready(Err(error)) = &result
            && let Some(tls) = tls_error(error)
        {
            // The first one is the cause.
            let _ = self.0.set(tls.to_string());
        }
        result
    }
}

impl<T> Io<T> {
    pub(super) fn plain(socket: TcpStream, about: T) -> Self {
        Self {
            socket: Socket::Plain(socket),
            fault: Fault::default(),
            about,
        }
    }

    pub(super) fn tls(socket: impl Into<TlsStream<TcpStream>>, about: T) -> Self {
        Self {
            socket: Socket::Tls(Box::new(socket.into())),
            fault: Fault::default(),
            about,
        }
    }

    pub(super) fn fault(&self) -> Fault {
        self.fault.clone()
    }
}

/// Calls a method of whichever socket it is, and takes note of what TLS says.
macro_rules! delegate {
    ($self:ident . $method:ident ( $($argument:expr),* )) => {{
        let this = $self.get_mut();
        let result = match &mut this.socket {
            Socket::Plain(socket) => Pin::new(socket).$method($($argument),*),
            Socket::Tls(socket) => Pin::new(socket.as_mut()).$method($($argument),*),
        };
        this.fault.note(result)
    }};
}

impl<T: Unpin> AsyncRead for Io<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self.poll_read(cx, buffer))
    }
}

impl<T: Unpin> AsyncWrite for Io<T> {
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
