//! The answering end of links: accepts connections, checks who calls, hands on what is said.

mod limiter;
mod stream;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::{Incarnation, Session};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use super::loopback::{NotLoopback, check_loopback};
use super::{LinkTimeouts, LocalIdentity, Message, TransportSecurity};
use limiter::ConnectionLimiter;
use stream::Peering;

/// The most streams of one connection: a service needs one, and one more while it goes from one to the next.
const STREAMS_MAX: u32 = 2;

/// How much may be under way and not read, in bytes; see the calling end.
const WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// How often a silent connection is asked whether it is alive, and how long it may take to say so.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that are through and wait to be served.
const WAITING_MAX: usize = 16;

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The region, by its certificate; the own one for a sibling. Without TLS, by what it says.
    pub region: Arc<str>,
    /// The number that it gave its stream.
    pub session: Session,
    /// Which start of the calling service.
    pub incarnation: Incarnation,
}

/// Answers those who call.
pub trait MessageHandler: Send + Sync + 'static {
    /// A stream has begun.
    fn on_open(&self, _caller: &Caller) {}

    /// Somebody says something; what is returned is answered, in that order. The next message of the same stream is read
    /// only when that has been sent, so whoever takes time here slows down its caller and nobody else.
    ///
    /// `session` is what the message itself names: where it is not the caller's, the message is an old one.
    fn on_message(
        &self,
        caller: &Caller,
        session: Session,
        said: Message,
    ) -> impl Future<Output = Vec<Message>> + Send;

    /// A stream has ended.
    fn on_close(&self, _caller: &Caller) {}

    /// Somebody was turned away: no certificate or a wrong one, too many connections, nonsense.
    fn on_rejected(&self, _from: Option<SocketAddr>, _why: &str) {}
}

/// Accepts those who call.
#[derive(Debug)]
pub struct Acceptor<A> {
    own: Arc<LocalIdentity>,
    listener: TcpListener,
    pace: LinkTimeouts,
    handler: Arc<A>,
}

impl<A: MessageHandler> Acceptor<A> {
    /// Accepts on `listener`.
    ///
    /// # Errors
    ///
    /// Without TLS, when others than this machine reach the listener.
    pub fn new(
        own: Arc<LocalIdentity>,
        listener: TcpListener,
        pace: LinkTimeouts,
        handler: Arc<A>,
    ) -> Result<Self, NotLoopback> {
        if matches!(own.security(), TransportSecurity::Plaintext) {
            // A socket that does not know where it is bound is not known to be this machine's alone.
            let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
            check_loopback(listener.local_addr().unwrap_or(unknown))?;
        }
        Ok(Self {
            own,
            listener,
            pace,
            handler,
        })
    }

    /// Serves until `stopping` turns true; then all streams end.
    ///
    /// # Errors
    ///
    /// When the server fails.
    pub async fn run(self, stopping: watch::Receiver<bool>) -> Result<(), tonic::transport::Error> {
        let (through, incoming) = mpsc::channel(WAITING_MAX);
        let gate = ConnectionLimiter::new(
            Arc::clone(&self.own),
            self.pace.greeting_max,
            Arc::clone(&self.handler),
        );
        let peering = Peering::new(
            self.own,
            self.pace.greeting_max,
            self.handler,
            stopping.clone(),
        );
        let mut ending = stopping.clone();
        let server = Server::builder()
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .add_service(peering)
            .serve_with_incoming_shutdown(
                ReceiverStream::new(incoming).map(Ok::<_, std::io::Error>),
                async move {
                    // Whoever is gone will not say more.
                    drop(ending.wait_for(|stopping| *stopping).await);
                },
            );
        let mut closing = stopping;
        let gate = async move {
            tokio::select! {
                () = gate.open(self.listener, through) => {}
                // Closes the listener: who calls now is refused at once, and does not wait for a service that goes.
                _ = closing.wait_for(|stopping| *stopping) => {}
            }
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            served = server => served,
            never = gate => match never {},
        }
    }
}
