//! One attempt: TCP, TLS, HTTP/2, Hello.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use isotherm_regions::Session;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tonic::Streaming;

use super::PeerEndpoint;
use super::connection::Connection;
use crate::peering::allowed_regions::region_dns_name;
use crate::peering::loopback::check_loopback;
use crate::peering::send_queue::SendQueue;
use crate::peering::transport::Transport;
use crate::peering::wire::{Envelope, Payload};
use crate::peering::{
    LinkError, LinkTimeouts, LocalIdentity, PROTOCOL_VERSION, TransportSecurity, hello,
};

/// The most addresses that one attempt tries.
const ADDRESSES_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Connector {
    pub(super) identity: Arc<LocalIdentity>,
    pub(super) peer: PeerEndpoint,
    pub(super) timeouts: LinkTimeouts,
}

/// A stream to a peer with the right identity.
pub(super) struct EstablishedLink {
    pub(super) queue: Arc<SendQueue>,
    pub(super) inbound: Streaming<Envelope>,
    pub(super) connection: Connection,
}

impl Connector {
    /// Tries each address in turn.
    pub(super) async fn connect(&self) -> Result<EstablishedLink, LinkError> {
        let lookup = tokio::net::lookup_host(&self.peer.address);
        let found = tokio::time::timeout(self.timeouts.attempt_max, lookup).await;
        let found = found.map_err(|_| self.timeout("resolving the name"))?;
        let found = found.map_err(|error| LinkError::resolve(&self.peer.address, &error))?;
        let mut failed = LinkError::resolve(&self.peer.address, &"no addresses");
        for address in found.take(ADDRESSES_MAX) {
            match self.connect_to(address).await {
                Ok(link) => return Ok(link),
                // A peer that refuses says more than an address without a service.
                Err(error) if matches!(failed, LinkError::Refused(_)) => drop(error),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn connect_to(&self, address: SocketAddr) -> Result<EstablishedLink, LinkError> {
        let until = Instant::now() + self.timeouts.attempt_max;
        let transport = self.open(address, until).await?;
        let link = async { self.greet(Connection::open(transport).await?).await };
        let link = timeout_at(until, link).await;
        link.unwrap_or_else(|_| Err(self.timeout("the other's Hello")))
    }

    async fn open(&self, address: SocketAddr, until: Instant) -> Result<Transport<()>, LinkError> {
        let security = self.identity.security();
        if matches!(security, TransportSecurity::Plaintext) {
            check_loopback(address).map_err(|error| LinkError::Unreachable(error.to_string()))?;
        }
        let socket = timeout_at(until, TcpStream::connect(address))
            .await
            .map_err(|_| self.timeout("connecting"))?
            .map_err(|error| LinkError::connect(address, &error))?;
        // The option only reduces latency.
        let _ = socket.set_nodelay(true);
        let TransportSecurity::Tls(credentials) = security else {
            return Ok(Transport::new(socket, ()));
        };
        let name = region_dns_name(&self.peer.region).map_err(LinkError::Unreachable)?;
        let connector = TlsConnector::from(Arc::clone(&credentials.current().client));
        let tls = timeout_at(until, connector.connect(name, socket))
            .await
            .map_err(|_| self.timeout("the TLS handshake"))?
            .map_err(|error| LinkError::handshake(&error))?;
        Ok(Transport::new(tls, ()))
    }

    fn timeout(&self, phase: &str) -> LinkError {
        LinkError::timeout(phase, self.timeouts.attempt_max)
    }

    /// Opens the stream, on which each side sends its Hello.
    async fn greet(&self, connection: Connection) -> Result<EstablishedLink, LinkError> {
        let session = Session(rand::random());
        let queue = Arc::new(SendQueue::new(session));
        let outbound = outbound(hello(&self.identity, session), Arc::clone(&queue));
        let mut inbound = connection.stream_messages(outbound).await?;
        let first = match inbound.message().await {
            Ok(Some(first)) => first,
            Ok(None) => return Err(LinkError::closed()),
            Err(status) => return Err(connection.error(&status)),
        };
        self.check(first)?;
        Ok(EstablishedLink {
            queue,
            inbound,
            connection,
        })
    }

    fn check(&self, first: Envelope) -> Result<(), LinkError> {
        let Some(Payload::Hello(hello)) = first.payload else {
            return Err(LinkError::protocol("the first message is no Hello"));
        };
        let (version, region, expected) =
            (hello.protocol_version, &hello.region, &self.peer.region);
        if version != PROTOCOL_VERSION {
            let reason = format!("version {version} instead of {PROTOCOL_VERSION}");
            return Err(LinkError::protocol(reason));
        }
        if region != expected {
            let reason = format!("it says that it is the region `{region}`, not `{expected}`");
            return Err(LinkError::Refused(reason));
        }
        if hello.incarnation == self.identity.incarnation() {
            let reason = "the address leads back to this service";
            return Err(LinkError::Refused(reason.into()));
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
