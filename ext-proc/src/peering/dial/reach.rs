//! One attempt: TCP, TLS, HTTP/2, Hello.
//!
//! HTTP/2 is spoken by hyper directly and not through tonic's channel, which would dial again by itself, hide what
//! failed, and keep the connection in a task of its own for as long as it likes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _, stream};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use isotherm_router::region::{Incarnation, Session};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tonic::codegen::{Service, http};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::super::address::check_loopback;
use super::super::down::{Local, Refused, Step, Unreachable};
use super::super::io::{Fault, Io};
use super::super::own::region_dns_name;
use super::super::wire::{self, What};
use super::super::{MESSAGE_BYTES_MAX, METHOD, PROTOCOL, Protection, hello};
use super::resolve::Resolver;
use super::{Down, Outbox, Own, Pace, Peer, millis, random};

/// How much may be under way and not read, in bytes: less than a message would make a long one take many round trips,
/// and the pings behind it wait for them.
const WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// HTTP/2's own question whether the other side lives, for when it is asked nothing else.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Dials one peer.
#[derive(Debug)]
pub(super) struct Caller {
    own: Arc<Own>,
    peer: Peer,
    pace: Pace,
    resolver: Resolver,
}

/// A stream whose other end is who it should be.
pub(super) struct Reached {
    pub(super) outbox: Arc<Outbox>,
    pub(super) incarnation: Incarnation,
    pub(super) inbound: Streaming<wire::Said>,
    connection: Connection,
}

impl Reached {
    /// Why a stream ended.
    pub(super) fn why(&self, status: &Status) -> Down {
        self.connection.why(status)
    }
}

impl Caller {
    pub(super) fn new(own: Arc<Own>, peer: Peer, pace: Pace) -> Self {
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
    pub(super) async fn reach(&mut self) -> Result<Reached, Down> {
        let within = self.pace.attempt_max;
        let addresses = self.resolver.resolve(&self.peer.address, within).await?;
        let mut failed: Option<Down> = None;
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
            Down::Local(Local::Resolve {
                name: self.peer.address.clone(),
                why: "no addresses".into(),
            })
        }))
    }

    async fn reach_at(&self, address: SocketAddr) -> Result<Reached, Down> {
        let until = Instant::now() + self.pace.attempt_max;
        let io = self.open(address, until).await?;
        let connection = Connection::open(io, until, self.pace.attempt_max).await?;
        let greeting = self.greet(connection);
        let greeting = timeout_at(until, greeting).await;
        greeting.unwrap_or_else(|_| Err(self.too_long(Step::Hello)))
    }

    async fn open(&self, address: SocketAddr, until: Instant) -> Result<Io<()>, Down> {
        let protection = self.own.protection();
        if matches!(protection, Protection::Plaintext) {
            check_loopback(address).map_err(|_| Down::Local(Local::NotLoopback(address)))?;
        }
        let socket = timeout_at(until, TcpStream::connect(address))
            .await
            .map_err(|_| self.too_long(Step::Connect))?
            .map_err(|error| Down::connect(address, &error))?;
        // A link lives without it, only slower.
        let _ = socket.set_nodelay(true);
        let Protection::Tls(credentials) = protection else {
            return Ok(Io::plain(socket, ()));
        };
        let name =
            region_dns_name(&self.peer.region).map_err(|error| Down::Local(Local::Name(error)))?;
        let connector = TlsConnector::from(Arc::clone(&credentials.current().client));
        let tls = timeout_at(until, connector.connect(name, socket))
            .await
            .map_err(|_| self.too_long(Step::Tls))?
            .map_err(|error| Down::tls(&error))?;
        Ok(Io::tls(tls, ()))
    }

    fn too_long(&self, step: Step) -> Down {
        let after_ms = millis(self.pace.attempt_max);
        Down::Unreachable(Unreachable::Timeout { step, after_ms })
    }

    /// Opens the stream; each side says Hello.
    async fn greet(&self, connection: Connection) -> Result<Reached, Down> {
        let session = Session(random());
        let outbox = Arc::new(Outbox::new(session));
        let outbound = says(hello(&self.own, session), Arc::clone(&outbox));
        let mut inbound = connection.converse(outbound).await?;
        let first = match inbound.message().await {
            Ok(Some(first)) => first,
            Ok(None) => return Err(Down::Unreachable(Unreachable::Closed)),
            Err(status) => return Err(connection.why(&status)),
        };
        let incarnation = self.check(first).map_err(Down::Refused)?;
        Ok(Reached {
            outbox,
            incarnation,
            inbound,
            connection,
        })
    }

    fn check(&self, first: wire::Said) -> Result<Incarnation, Refused> {
        let Some(What::Hello(hello)) = first.what else {
            return Err(Refused::Protocol("the first message is no Hello".into()));
        };
        if hello.protocol != PROTOCOL {
            let why = format!("version {} instead of {PROTOCOL}", hello.protocol);
            return Err(Refused::Protocol(why));
        }
        if hello.region != self.peer.region {
            return Err(Refused::OtherRegion {
                said: hello.region,
                expected: self.peer.region.clone(),
            });
        }
        if hello.incarnation == self.own.incarnation() {
            return Err(Refused::Itself);
        }
        Ok(Incarnation(hello.incarnation))
    }
}

/// What this end says: Hello, and then what is put into the outbox.
fn says(hello: wire::Said, outbox: Arc<Outbox>) -> impl Stream<Item = wire::Said> + Send {
    let rest = stream::unfold(outbox, |outbox| async move {
        let message = outbox.next().await;
        Some((message, outbox))
    });
    stream::iter([hello]).chain(rest)
}

/// An HTTP/2 connection; dropping it closes the socket.
struct Connection {
    requests: http2::SendRequest<tonic::body::Body>,
    fault: Fault,
    _tasks: Running,
}

impl Connection {
    async fn open(io: Io<()>, until: Instant, within: Duration) -> Result<Self, Down> {
        let fault = io.fault();
        let tasks = Running(Tasks::default());
        let opening = http2::Builder::new(tasks.0.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(io));
        let (requests, connection) = match timeout_at(until, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                return Err(refused_by_tls(&fault)
                    .unwrap_or_else(|| Down::Unreachable(Unreachable::Broken(error.to_string()))));
            }
            Err(_) => {
                let (step, after_ms) = (Step::Hello, millis(within));
                return Err(Down::Unreachable(Unreachable::Timeout { step, after_ms }));
            }
        };
        let drive = async move {
            // How it ends is seen on the stream.
            let _ = connection.await;
        };
        tasks.0.execute(drive);
        Ok(Self {
            requests,
            fault,
            _tasks: tasks,
        })
    }

    async fn converse(
        &self,
        outbound: impl Stream<Item = wire::Said> + Send + 'static,
    ) -> Result<Streaming<wire::Said>, Down> {
        let origin = http::Uri::from_static("https://isotherm");
        let requests = Requests(self.requests.clone());
        let mut grpc = tonic::client::Grpc::with_origin(requests, origin)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let codec = ProstCodec::<wire::Said, wire::Said>::default();
        let path = http::uri::PathAndQuery::from_static(METHOD);
        let answered = grpc.streaming(Request::new(outbound), path, codec).await;
        match answered {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(self.why(&status)),
        }
    }

    fn why(&self, status: &Status) -> Down {
        refused_by_tls(&self.fault).unwrap_or_else(|| Down::status(status))
    }
}

fn refused_by_tls(fault: &Fault) -> Option<Down> {
    let why = fault.get()?.to_owned();
    Some(Down::Refused(Refused::Tls(why)))
}

/// What hyper runs for one connection. It would let the connection live until every stream has ended in good order, with
/// a peer that does not answer for ever; here all of it ends when the link is dropped.
#[derive(Clone, Debug, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn execute(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(task);
    }
}

/// Ends all tasks when it is dropped. They hold clones of what holds them, so that alone is not enough.
struct Running(Tasks);

impl Drop for Running {
    fn drop(&mut self) {
        let mut tasks = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        Self::execute(self, task);
    }
}

/// hyper's requests as the service that tonic's client wants.
struct Requests(http2::SendRequest<tonic::body::Body>);

impl Service<http::Request<tonic::body::Body>> for Requests {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, hyper::Error>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
