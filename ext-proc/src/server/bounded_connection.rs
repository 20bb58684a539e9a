//! A connection that counts among the open ones of its socket, and that must begin in time.
//!
//! Without a bound, a client could take the file descriptors that Envoys need. The HTTP/2 server pings idle connections, but
//! only once it has read the preface: a client that never sends it would stay for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

/// Longest time until a client has sent HTTP/2's preface.
const PREFACE_TIME_MAX: Duration = Duration::from_secs(10);
/// Length of HTTP/2's preface.
const PREFACE_BYTES: usize = 24;

/// A counted connection with a deadline for its beginning.
pub(super) struct BoundedConnection<S> {
    stream: S,
    /// `None` once the preface has been read.
    opening: Option<PrefaceDeadline>,
    /// Gives the place of the connection back on drop.
    _permit: OwnedSemaphorePermit,
}

struct PrefaceDeadline {
    bytes_left: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S> BoundedConnection<S> {
    /// Starts the deadline of a new connection. Must be called inside a tokio runtime.
    pub(super) fn new(stream: S, permit: OwnedSemaphorePermit) -> Self {
        Self {
            stream,
            opening: Some(PrefaceDeadline {
                bytes_left: PREFACE_BYTES,
                deadline: Box::pin(sleep(PREFACE_TIME_MAX)),
            }),
            _permit: permit,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buffer);
        let Some(opening) = &mut this.opening else {
            return polled;
        };
        let read = buffer.filled().len() - before;
        opening.bytes_left = opening.bytes_left.saturating_sub(read);
        if opening.bytes_left == 0 {
            this.opening = None;
        } else if polled.is_pending() && opening.deadline.as_mut().poll(cx).is_ready() {
            let reason = "the client has not begun to speak HTTP/2 in time";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedConnection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_sends_the_preface_is_cut_and_its_place_is_free() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        let (mut client, server) = duplex(64);
        let mut server = BoundedConnection::new(server, permit);
        client.write_all(b"PRI").await.unwrap();
        let error = server
            .read_exact(&mut [0; PREFACE_BYTES])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(server);
        assert_eq!(permits.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_begun_may_stay_silent() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = permits.acquire_owned().await.unwrap();
        let (mut client, server) = duplex(64);
        let mut server = BoundedConnection::new(server, permit);
        client.write_all(&[0; PREFACE_BYTES]).await.unwrap();
        server.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
        let silent = tokio::time::timeout(2 * PREFACE_TIME_MAX, server.read_u8());
        assert!(silent.await.is_err(), "the connection must stay open");
    }
}
