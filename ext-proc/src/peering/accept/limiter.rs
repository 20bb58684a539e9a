//! The way in: TCP, TLS, who it is, and whether there is room.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::Connected;

use super::MessageHandler;
use crate::peering::credentials::region_of;
use crate::peering::transport::Io;
use crate::peering::{LocalIdentity, TransportSecurity};

/// Connections whose handshake is going on.
const HANDSHAKES_MAX: usize = 128;
/// The most connections of one region: many services, each twice while it dials again. Without TLS, of all.
const CONNECTIONS_PER_REGION_MAX: usize = 64;
/// As many again are let in to be told that there is no room. One that is just cut off would take this service for dead.
const TURNED_AWAY_PER_REGION_MAX: usize = 64;

/// How long somebody who is turned away has to read why, and how much is read of it meanwhile, in bytes: a socket that
/// is closed with something unread tears down what was sent on it.
const FAREWELL_MAX: Duration = Duration::from_millis(500);
const FAREWELL_BYTES: usize = 16 * 1024;

/// How long to wait when the system has no socket for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection that is through.
pub(super) type Entered = Io<Place>;

/// What is known of a connection: who it is, as proved by its certificate.
#[derive(Clone, Debug)]
pub(super) struct Proved {
    pub(super) region: Option<Arc<str>>,
    pub(super) from: SocketAddr,
    /// Whether its region has room for one more.
    pub(super) has_room: bool,
}

impl Connected for Entered {
    type ConnectInfo = Proved;

    fn connect_info(&self) -> Proved {
        self.about.proved.clone()
    }
}

pub(super) struct ConnectionLimiter<A> {
    own: Arc<LocalIdentity>,
    greeting_max: Duration,
    handler: Arc<A>,
    places: Places,
}

impl<A: MessageHandler> ConnectionLimiter<A> {
    pub(super) fn new(own: Arc<LocalIdentity>, greeting_max: Duration, handler: Arc<A>) -> Self {
        Self {
            own,
            greeting_max,
            handler,
            places: Places::default(),
        }
    }

    /// Lets in who may come in, for ever.
    pub(super) async fn open(self, listener: TcpListener, through: mpsc::Sender<Entered>) {
        let this = Arc::new(self);
        let room = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        // Dropped with this future: no handshake outlives it.
        let mut handshakes = JoinSet::new();
        loop {
            while handshakes.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            let (socket, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (this, through) = (Arc::clone(&this), through.clone());
            handshakes.spawn(async move {
                let _permit = permit;
                match timeout(this.greeting_max, this.enter(socket, from)).await {
                    // A server that is gone stops.
                    Ok(Ok(Some(entered))) => drop(through.send(entered).await),
                    // A health check, say.
                    Ok(Ok(None)) => tracing::debug!(%from, "a caller hung up"),
                    Ok(Err(why)) => this.turn_away(from, &why),
                    Err(_) => this.turn_away(from, "the TLS handshake took too long"),
                }
            });
        }
    }

    /// `None`: the caller hung up.
    async fn enter(&self, socket: TcpStream, from: SocketAddr) -> Result<Option<Entered>, String> {
        // A link lives without it, only slower.
        let _ = socket.set_nodelay(true);
        let TransportSecurity::Tls(credentials) = self.own.security() else {
            let place = self.places.take(None, from)?;
            return Ok(Some(Io::plain(socket, place)));
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&credentials.current().server));
        let tls = match acceptor.accept(socket).into_fallible().await {
            Ok(tls) => tls,
            Err((error, _)) if hung_up(&error) => return Ok(None),
            Err((error, socket)) => {
                farewell(socket).await;
                return Err(error.to_string());
            }
        };
        let certificate = tls.get_ref().1.peer_certificates();
        let certificate = certificate.and_then(<[_]>::first).ok_or("no certificate")?;
        let region = region_of(certificate, self.own.known()).map_err(|error| error.to_string())?;
        let place = self.places.take(Some(region), from)?;
        Ok(Some(Io::tls(tls, place)))
    }

    fn turn_away(&self, from: SocketAddr, why: &str) {
        tracing::debug!(%from, why, "turned away");
        self.handler.on_rejected(Some(from), why);
    }
}

fn hung_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// Gives the other side time to read the alert that was sent.
async fn farewell(mut socket: TcpStream) {
    let listen = async {
        socket.shutdown().await?;
        let mut unread = vec![0; FAREWELL_BYTES];
        while socket.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    // However it ends, it was polite.
    let _ = timeout(FAREWELL_MAX, listen).await;
}

/// How many connections each region has.
#[derive(Clone, Debug, Default)]
struct Places(Arc<Mutex<BTreeMap<Option<Arc<str>>, usize>>>);

/// One connection's place; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    proved: Proved,
    places: Places,
}

impl Places {
    fn take(&self, region: Option<Arc<str>>, from: SocketAddr) -> Result<Place, &'static str> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = places.entry(region.clone()).or_default();
        if *taken >= CONNECTIONS_PER_REGION_MAX + TURNED_AWAY_PER_REGION_MAX {
            return Err("the region has far too many connections");
        }
        *taken += 1;
        let proved = Proved {
            region,
            from,
            has_room: *taken <= CONNECTIONS_PER_REGION_MAX,
        };
        Ok(Place {
            proved,
            places: self.clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = places.get_mut(&self.proved.region) {
            *taken -= 1;
            if *taken == 0 {
                places.remove(&self.proved.region);
            }
        }
    }
}
