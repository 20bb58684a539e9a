//! One HTTP/1.1 connection to another service.
//!
//! Rejected: hyper-util's client with its pool, which hides when a request leaves, so that a handshake would count in the
//! round trip. It also keeps the certificates of its start.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::codec::decode;
use super::host::{host, server_name};
use super::link_error::tls_error;
use super::message;
use super::{
    LinkError, LinkTimeouts, LocalIdentity, MESSAGE_BYTES_MAX, Message, TransportSecurity,
};
use crate::tasks::AbortOnDrop;

/// The most addresses that one attempt tries.
const ADDRESSES_MAX: usize = 8;

/// The service at the other end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEndpoint {
    /// The region that the service must belong to; this service's own region for a sibling.
    pub region: String,
    /// The service's address, `host:port`. Each attempt resolves the host.
    pub address: String,
}

/// Opens connections to one service.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) identity: Arc<LocalIdentity>,
    pub(super) peer: PeerEndpoint,
    pub(super) timeouts: LinkTimeouts,
}

/// A connection without a request under way. Dropping it closes the socket.
#[derive(Debug)]
pub(super) struct Connection {
    requests: http1::SendRequest<Full<Bytes>>,
    /// The task that reads and writes, and its result.
    driver: JoinHandle<hyper::Result<()>>,
    _driver: AbortOnDrop,
}

impl Connector {
    /// Opens a connection to the first address that accepts this service.
    pub(super) async fn open(&self) -> Result<Connection, LinkError> {
        let lookup = tokio::net::lookup_host(&self.peer.address);
        let found = timeout(self.timeouts.attempt_max, lookup).await;
        let found = found.map_err(|_| self.timeout("resolving the name"))?;
        let found = found.map_err(|error| LinkError::resolve(&self.peer.address, &error))?;
        let mut failed = LinkError::resolve(&self.peer.address, &"no addresses");
        for address in found.take(ADDRESSES_MAX) {
            match self.open_to(address).await {
                Ok(connection) => return Ok(connection),
                // A peer that refuses says more than an address without a service.
                Err(error) if matches!(failed, LinkError::Refused(_)) => drop(error),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn open_to(&self, address: SocketAddr) -> Result<Connection, LinkError> {
        let until = Instant::now() + self.timeouts.attempt_max;
        let security = self.identity.security();
        let is_local = address.ip().to_canonical().is_loopback();
        if matches!(security, TransportSecurity::Plaintext) && !is_local {
            let reason = format!("{address} is not a loopback address, and there is no TLS");
            return Err(LinkError::Unreachable(reason));
        }
        let socket = timeout_at(until, TcpStream::connect(address))
            .await
            .map_err(|_| self.timeout("connecting"))?
            .map_err(|error| {
                LinkError::Unreachable(format!("no connection to {address}: {error}"))
            })?;
        // The option only reduces latency.
        let _ = socket.set_nodelay(true);
        let connection = match security {
            TransportSecurity::Plaintext => Connection::new(socket).await?,
            TransportSecurity::Tls(credentials) => {
                let name = server_name(&self.peer.region).map_err(LinkError::Unreachable)?;
                let connector = TlsConnector::from(Arc::clone(&credentials.current().client));
                let tls = timeout_at(until, connector.connect(name, socket))
                    .await
                    .map_err(|_| self.timeout("the TLS handshake"))?
                    .map_err(|error| LinkError::broken(&error))?;
                Connection::new(tls).await?
            }
        };
        // With TLS 1.3 a client learns after its handshake whether the server accepts its certificate.
        let accepted = timeout_at(until, self.exchange(connection, Bytes::new())).await;
        let (connection, _) = accepted.map_err(|_| self.timeout("the first response"))??;
        Ok(connection)
    }

    /// Sends an encoded message and returns the response, with the connection for the next message. The caller bounds the time.
    pub(super) async fn exchange(
        &self,
        mut connection: Connection,
        body: Bytes,
    ) -> Result<(Connection, Option<Message>), LinkError> {
        let request = Request::post(message::PATH)
            .header(header::HOST, host(&self.peer.region))
            .header(message::REGION_HEADER, self.identity.region())
            .header(message::INCARNATION_HEADER, self.identity.incarnation())
            .body(Full::new(body))
            .map_err(|error| LinkError::Unreachable(error.to_string()))?;
        let sent = async {
            connection.requests.ready().await?;
            connection.requests.send_request(request).await
        };
        let response = match sent.await {
            Ok(response) => response,
            Err(error) => return Err(connection.fault(error).await),
        };
        let status = response.status();
        let body = Limited::new(response.into_body(), MESSAGE_BYTES_MAX).collect();
        let body = body.await.map_err(|error| LinkError::broken(&*error))?;
        let body = body.to_bytes();
        if !status.is_success() {
            return Err(LinkError::status(status, &body));
        }
        let message = decode(&body).map_err(LinkError::protocol)?;
        Ok((connection, message))
    }

    fn timeout(&self, phase: &str) -> LinkError {
        LinkError::timeout(phase, self.timeouts.attempt_max)
    }
}

impl Connection {
    async fn new(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, LinkError> {
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (requests, connection) = opened.map_err(|error| LinkError::broken(&error))?;
        let driver = tokio::spawn(connection);
        Ok(Self {
            requests,
            _driver: AbortOnDrop(driver.abort_handle()),
            driver,
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Why a request failed. The connection itself has the cause if it ended before the request.
    async fn fault(self, error: hyper::Error) -> LinkError {
        drop(self.requests);
        if tls_error(&error).is_none()
            && let Ok(Err(earlier)) = self.driver.await
        {
            return LinkError::broken(&earlier);
        }
        LinkError::broken(&error)
    }
}
