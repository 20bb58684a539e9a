//! One attempt: TCP, TLS, HTTP/2, Hello.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use isotherm_regions::{Incarnation, Session};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tonic::{Status, Streaming};

use super::connection::Connection;
use super::resolve::Resolver;
use super::{LinkError, LinkTimeouts, LocalIdentity, PeerEndpoint, SendQueue, millis, random};
use crate::peering::identity::region_dns_name;
use crate::peering::link_error::{ConnectPhase, LocalError, RefusedError, UnreachableError};
use crate::peering::loopback::check_loopback;
use crate::peering::transport::Io;
use crate::peering::wire::{self, Payload};
use crate::peering::{PROTOCOL, TransportSecurity, hello};

/// Dials one peer.
#[derive(Debug)]
pub(super) struct Caller {
    own: Arc<LocalIdentity>,
    peer: PeerEndpoint,
    pace: LinkTimeouts,
    resolver: Resolver,
}

/// A stream whose other end is who it should be.
pub(super) struct Reached {
    pub(super) outbox: Arc<SendQueue>,
    pub(super) incarnation: Incarnation,
    pub(super) inbound: Streaming<wire::Envelope>,
    connection: Connection,
}

impl Reached {
    /// Why a stream ended.
    pub(super) fn why(&self, status: &Status) -> LinkError {
        self.connection.why(status)
    }
}

impl Caller {
    pub(super) fn new(own: Arc<LocalIdentity>, peer: PeerEndpoint, pace: LinkTimeouts) -> Self {
        Self {
            own,
            peer,
            pace,
            resolver: Resolver::default(),
        }
    }

    pub(super) fn region(&self) -> &str {
        &self.peer.region
    }

    /// Tries each address in turn.
    pub(super) async fn reach(&mut self) -> Result<Reached, LinkError> {
        let within = self.pace.attempt_max;
        let addresses = self.resolver.resolve(&self.peer.address, within).await?;
        let mut failed: Option<LinkError> = None;
        for address in addresses {
            match self.reach_at(address).await {
                Ok(reached) => return Ok(reached),
                Err(why) => {
                    failed = Some(match failed {
                        Some(before) => before.or(why),
                        None => why,
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

    async fn reach_at(&self, address: SocketAddr) -> Result<Reached, LinkError> {
        let until = Instant::now() + self.pace.attempt_max;
        let io = self.open(address, until).await?;
        let connection = Connection::open(io, until, self.pace.attempt_max).await?;
        let greeting = self.greet(connection);
        let greeting = timeout_at(until, greeting).await;
        greeting.unwrap_or_else(|_| Err(self.too_long(ConnectPhase::Hello)))
    }

    async fn open(&self, address: SocketAddr, until: Instant) -> Result<Io<()>, LinkError> {
        let protection = self.own.security();
        if matches!(protection, TransportSecurity::Plaintext) {
            check_loopback(address)
                .map_err(|_| LinkError::Local(LocalError::NotLoopback(address)))?;
        }
        let socket = timeout_at(until, TcpStream::connect(address))
            .await
            .map_err(|_| self.too_long(ConnectPhase::Connect))?
            .map_err(|error| LinkError::connect(address, &error))?;
        // A link lives without it, only slower.
        let _ = socket.set_nodelay(true);
        let TransportSecurity::Tls(credentials) = protection else {
            return Ok(Io::plain(socket, ()));
        };
        let name = region_dns_name(&self.peer.region)
            .map_err(|error| LinkError::Local(LocalError::Name(error)))?;
        let connector = TlsConnector::from(Arc::clone(&credentials.current().client));
        let tls = timeout_at(until, connector.connect(name, socket))
            .await
            .map_err(|_| self.too_long(ConnectPhase::Tls))?
            .map_err(|error| LinkError::tls(&error))?;
        Ok(Io::tls(tls, ()))
    }

    fn too_long(&self, step: ConnectPhase) -> LinkError {
        let after_ms = millis(self.pace.attempt_max);
        LinkError::Unreachable(UnreachableError::Timeout { step, after_ms })
    }

    /// Opens the stream; each side says Hello.
    async fn greet(&self, connection: Connection) -> Result<Reached, LinkError> {
        let session = Session(random());
        let outbox = Arc::new(SendQueue::new(session));
        let outbound = says(hello(&self.own, session), Arc::clone(&outbox));
        let mut inbound = connection.converse(outbound).await?;
        let first = match inbound.message().await {
            Ok(Some(first)) => first,
            Ok(None) => return Err(LinkError::Unreachable(UnreachableError::Closed)),
            Err(status) => return Err(connection.why(&status)),
        };
        let incarnation = self.check(first).map_err(LinkError::Refused)?;
        Ok(Reached {
            outbox,
            incarnation,
            inbound,
            connection,
        })
    }

    fn check(&self, first: wire::Envelope) -> Result<Incarnation, RefusedError> {
        let Some(Payload::Hello(hello)) = first.payload else {
            return Err(RefusedError::Protocol(
                "the first message is no Hello".into(),
            ));
        };
        if hello.protocol != PROTOCOL {
            let why = format!("version {} instead of {PROTOCOL}", hello.protocol);
            return Err(RefusedError::Protocol(why));
        }
        if hello.region != self.peer.region {
            return Err(RefusedError::OtherRegion {
                said: hello.region,
                expected: self.peer.region.clone(),
            });
        }
        if hello.incarnation == self.own.incarnation() {
            return Err(RefusedError::Itself);
        }
        Ok(Incarnation(hello.incarnation))
    }
}

/// What this end says: Hello, and then what is put into the outbox.
fn says(
    hello: wire::Envelope,
    outbox: Arc<SendQueue>,
) -> impl Stream<Item = wire::Envelope> + Send {
    let rest = stream::unfold(outbox, |outbox| async move {
        let message = outbox.next().await;
        Some((message, outbox))
    });
    stream::iter([hello]).chain(rest)
}
