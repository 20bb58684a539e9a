//! The accepting end of links: listens, verifies callers, and hands their messages to a [`MessageHandler`].

mod limiter;
mod listener;
mod service;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::Session;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use super::loopback::{NotLoopback, check_loopback};
use super::{LinkTimeouts, LocalIdentity, Message, TransportSecurity, WINDOW_BYTES};
use crate::streaming_server::StreamingServer;
use crate::tasks::AbortOnDrop;
use limiter::ConnectionLimiter;
use service::LinkMethod;

/// The most streams of one connection: a service needs one, and one more while it replaces a stream.
const STREAMS_MAX: u32 = 2;

/// HTTP/2's keepalive on a silent connection, longer than the caller's: the caller finds a dead link first, and redials.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The most connections that wait between their handshake and the server.
const ACCEPTED_MAX: usize = 16;

/// The service at the calling end of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The region in its certificate; without TLS, the region in its Hello. A sibling has this service's region.
    pub region: Arc<str>,
    /// The caller's number for the stream.
    pub session: Session,
}

/// Receiver of the messages of callers.
pub trait MessageHandler: Send + Sync + 'static {
    /// Handles the beginning of a stream.
    fn on_open(&self, _caller: &Caller) {}

    /// Handles a message and returns the replies, in order. The acceptor reads the next message of a stream when it has sent
    /// the replies, so a slow handler slows down this caller only.
    ///
    /// `session` is the number in the message. A number other than the caller's marks an old message.
    fn on_message(
        &self,
        caller: &Caller,
        session: Session,
        message: Message,
    ) -> impl Future<Output = Vec<Message>> + Send;

    /// Handles the end of a stream.
    fn on_close(&self, _caller: &Caller) {}

    /// Handles the rejection of a caller: by its certificate, by a limit, or for an invalid message.
    fn on_rejected(&self, _from: Option<SocketAddr>, _reason: &str) {}
}

/// The accepting end of all links of a service.
#[derive(Debug)]
pub struct Acceptor<H> {
    context: AcceptorContext<H>,
    listener: TcpListener,
}

/// State that all connections and streams of an acceptor share.
#[derive(Debug)]
struct AcceptorContext<H> {
    identity: Arc<LocalIdentity>,
    /// Bound on the handshake, and on the time until the Hello.
    hello_max: Duration,
    handler: Arc<H>,
    limiter: ConnectionLimiter,
}

impl<H: MessageHandler> Acceptor<H> {
    /// Creates an acceptor on `listener`.
    /// Fails without TLS when other machines reach the listener.
    pub fn new(
        identity: Arc<LocalIdentity>,
        listener: TcpListener,
        timeouts: LinkTimeouts,
        handler: Arc<H>,
    ) -> Result<Self, NotLoopback> {
        if matches!(identity.security(), TransportSecurity::Plaintext) {
            // A socket without a known address may be reachable by other machines.
            let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
            check_loopback(listener.local_addr().unwrap_or(unknown))?;
        }
        let context = AcceptorContext {
            identity,
            hello_max: timeouts.hello_max,
            handler,
            limiter: ConnectionLimiter::default(),
        };
        Ok(Self { context, listener })
    }

    /// Serves until `stopping` turns true; then all streams end.
    /// Fails when the server fails.
    pub async fn run(self, stopping: watch::Receiver<bool>) -> Result<(), tonic::transport::Error> {
        let context = Arc::new(self.context);
        let (accepted, incoming) = mpsc::channel(ACCEPTED_MAX);
        let service = StreamingServer(LinkMethod {
            context: Arc::clone(&context),
            stopping: stopping.clone(),
        });
        let (mut server_stopping, mut listener_stopping) = (stopping.clone(), stopping);
        let server = Server::builder()
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .add_service(service)
            .serve_with_incoming_shutdown(
                ReceiverStream::new(incoming).map(Ok::<_, std::io::Error>),
                async move {
                    // A dropped sender stops the server, too.
                    drop(server_stopping.wait_for(|stopping| *stopping).await);
                },
            );
        let listening = tokio::spawn(async move {
            tokio::select! {
                () = context.listen(self.listener, accepted) => {}
                // Closes the listener: the system refuses new callers at once.
                _ = listener_stopping.wait_for(|stopping| *stopping) => {}
            }
        });
        let _listening = AbortOnDrop(listening.abort_handle());
        server.await
    }
}
