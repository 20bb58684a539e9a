//! One attempt: TCP, TLS, HTTP/2, Hello.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use isotherm_regions::Session;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tonic::{Status, Streaming};

use super::connection::Connection;
use super::resolve::Resolver;
use super::{PeerEndpoint, millis, random};
use crate::peering::allowed_regions::region_dns_name;
use crate::peering::loopback::check_loopback;
use crate::peering::send_queue::SendQueue;
use crate::peering::transport::Transport;
use crate::peering::wire::{Envelope, Payload};
use crate::peering::{
    ConnectPhase, LinkError, LinkTimeouts, LocalError, LocalIdentity, PROTOCOL_VERSION,
    RefusedError, TransportSecurity, UnreachableError, hello,
};

/// Connects to one peer.
#[derive(Debug)]
pub(super) struct Connector {
    identity: Arc<LocalIdentity>,
    peer: PeerEndpoint,
    timeouts: LinkTimeouts,
    resolver: Resolver,
}

/// A stream to a peer with the right identity.
pub(super) struct EstablishedLink {
    pub(super) queue: Arc<SendQueue>,
    pub(super) inbound: Streaming<Envelope>,
    connection: Connection,
}

impl EstablishedLink {
    /// Why the stream ended.
    pub(super) fn error(&self, status: &Status) -> LinkError {
        self.connection.error(status)
    }
}

impl Connector {
    pub(super) fn new(
        identity: Arc<LocalIdentity>,
        peer: PeerEndpoint,
        timeouts: LinkTimeouts,
    ) -> Self {
        Self {
            identity,
            peer,
            timeouts,
            resolver: Resolver::default(),
        }
    }

    pub(super) fn region(&self) -> &str {
        &self.peer.region
    }

    /// Tries each address in turn.
    pub(super) async fn connect(&mut self) -> Result<EstablishedLink, LinkError> {
        let within = self.timeouts.attempt_max;
        let addresses = self.resolver.resolve(&self.peer.address, within).await?;
        let mut failed: Option<LinkError> = None;
        for address in addresses {
            match self.connect_to(address).await {
                Ok(link) => return Ok(link),
                Err(error) => {
                    failed = Some(match failed {
                        Some(before) => before.or(error),
                        None => error,
                    });
                }
            }
        }
        Err(failed.unwrap_or_else(|| {
            LinkError::Local(LocalError::Resolve {
                name: self.peer.address.clone(),
                why: "no addresses".into(),
            })
        }))
    }

    async fn connect_to(&self, address: SocketAddr) -> Result<EstablishedLink, LinkError> {
        let until = Instant::now() + self.timeouts.attempt_max;
        let transport = self.open(address, until).await?;
        let link = async { self.greet(Connection::open(transport).await?).await };
        let link = timeout_at(until, link).await;
        link.unwrap_or_else(|_| Err(self.timeout(ConnectPhase::Hello)))
    }

    async fn open(&self, address: SocketAddr, until: Instant) -> Result<Transport<()>, LinkError> {
        let security = self.identity.security();
        if matches!(security, TransportSecurity::Plaintext) {
            check_loopback(address)
                .map_err(|_| LinkError::Local(LocalError::NotLoopback(address)))?;
        }
        let socket = timeout_at(until, TcpStream::connect(address))
            .await
            .map_err(|_| self.timeout(ConnectPhase::Connect))?
            .map_err(|error| LinkError::connect(address, &error))?;
        // The option only reduces latency.
        let _ = socket.set_nodelay(true);
        let TransportSecurity::Tls(credentials) = security else {
            return Ok(Transport::new(socket, ()));
        };
        let name = region_dns_name(&self.peer.region)
            .map_err(|error| LinkError::Local(LocalError::Name(error)))?;
        let connector = TlsConnector::from(Arc::clone(&credentials.current().client));
        let tls = timeout_at(until, connector.connect(name, socket))
            .await
            .map_err(|_| self.timeout(ConnectPhase::Tls))?
            .map_err(|error| LinkError::tls(&error))?;
        Ok(Transport::new(tls, ()))
    }

    fn timeout(&self, phase: ConnectPhase) -> LinkError {
        let after_ms = millis(self.timeouts.attempt_max);
        LinkError::Unreachable(UnreachableError::Timeout { phase, after_ms })
    }

    /// Opens the stream, on which each side sends its Hello.
    async fn greet(&self, connection: Connection) -> Result<EstablishedLink, LinkError> {
        let session = Session(random());
        let queue = Arc::new(SendQueue::new(session));
        let outbound = outbound(hello(&self.identity, session), Arc::clone(&queue));
        let mut inbound = connection.stream_messages(outbound).await?;
        let first = match inbound.message().await {
            Ok(Some(first)) => first,
            Ok(None) => return Err(LinkError::Unreachable(UnreachableError::Closed)),
            Err(status) => return Err(connection.error(&status)),
        };
        self.check(first).map_err(LinkError::Refused)?;
        Ok(EstablishedLink {
            queue,
            inbound,
            connection,
        })
    }

    fn check(&self, first: Envelope) -> Result<(), RefusedError> {
        let Some(Payload::Hello(hello)) = first.payload else {
            let why = "the first message is no Hello".into();
            return Err(RefusedError::Protocol(why));
        };
        if hello.protocol_version != PROTOCOL_VERSION {
            let version = hello.protocol_version;
            let why = format!("version {version} instead of {PROTOCOL_VERSION}");
            return Err(RefusedError::Protocol(why));
        }
        if hello.region != self.peer.region {
            return Err(RefusedError::OtherRegion {
                actual: hello.region,
                expected: self.peer.region.clone(),
            });
        }
        if hello.incarnation == self.identity.incarnation() {
            return Err(RefusedError::Itself);
        }
        Ok(())
    }
}

/// The messages of this end: the Hello, and then those in the queue.
fn outbound(hello: Envelope, queue: Arc<SendQueue>) -> impl Stream<Item = Envelope> + Send {
    let queued = stream::unfold(queue, |queue| async move {
        let envelope = queue.next().await;
        Some((envelope, queue))
    });
    stream::iter([hello]).chain(queued)
}
