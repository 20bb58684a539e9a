//! A service of another region that says of itself what a test tells it, whatever is true.
//!
//! It speaks the peering protocol and nothing else: it answers each ping at once, in the form of `peering.proto`. The
//! messages are declared here anew, as far as they are needed, so that the protocol is spoken by somebody who did not
//! copy it from the service.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use crate::MODEL;

/// The version of the protocol that is spoken.
const PROTOCOL: u32 = 1;
/// In front of each message on a gRPC stream: whether it is compressed, and its length.
const GRPC_PREFIX_BYTES: usize = 5;
/// How many answers wait to be read.
const ANSWERS_MAX: usize = 64;

/// What it says of its only pool.
#[derive(Clone, Copy, Debug)]
pub struct ReportedPool {
    /// Replicas that take another request.
    pub available: u32,
    /// Requests that it could start now.
    pub free_capacity: u32,
    /// Requests that wait.
    pub queue: u32,
}

/// A running liar; it ends when it is dropped.
#[derive(Debug)]
pub struct MisbehavingPeer {
    address: SocketAddr,
    claim: Arc<Mutex<ReportedPool>>,
    _server: JoinSet<()>,
}

impl MisbehavingPeer {
    /// Starts one that says that it is `region`, in plain text.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(region: &str, claim: ReportedPool) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let claim = Arc::new(Mutex::new(claim));
        let mut server = JoinSet::new();
        server.spawn(serve(listener, region.to_owned(), Arc::clone(&claim)));
        Ok(Self {
            address,
            claim,
            _server: server,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it says from now on.
    pub fn say(&self, claim: ReportedPool) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = claim;
    }
}

async fn serve(listener: TcpListener, region: String, claim: Arc<Mutex<ReportedPool>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let (region, claim) = (region.clone(), Arc::clone(&claim));
        connections.spawn(async move {
            let service =
                service_fn(|request| converse(request, region.clone(), Arc::clone(&claim)));
            let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            // It ends when the other side goes away.
            drop(served.await);
        });
    }
}

type Answers = StreamBody<ReceiverStream<Result<Frame<Bytes>, Infallible>>>;

async fn converse(
    request: Request<Incoming>,
    region: String,
    claim: Arc<Mutex<ReportedPool>>,
) -> Result<Response<Answers>, hyper::http::Error> {
    let (sender, answers) = mpsc::channel(ANSWERS_MAX);
    tokio::spawn(async move {
        let mut asked = BodyStream::new(request.into_body().map_err(drop));
        let mut read = BytesMut::new();
        while let Some(Ok(frame)) = asked.next().await {
            read.extend(frame.into_data().unwrap_or_default());
            while let Some(said) = take(&mut read) {
                let Some(what) = answer(&said, &region, &claim) else {
                    continue;
                };
                let answer = Said {
                    session: said.session,
                    ..what
                };
                if sender.send(Ok(Frame::data(framed(&answer)))).await.is_err() {
                    return;
                }
            }
        }
    });
    Response::builder()
        .header("content-type", "application/grpc")
        .body(StreamBody::new(ReceiverStream::new(answers)))
}

fn answer(said: &Said, region: &str, claim: &Mutex<ReportedPool>) -> Option<Said> {
    let claim = *claim.lock().unwrap_or_else(PoisonError::into_inner);
    if said.hello.is_some() {
        let hello = Hello {
            protocol: PROTOCOL,
            region: region.to_owned(),
            incarnation: 1,
        };
        return Some(Said {
            hello: Some(hello),
            ..Said::default()
        });
    }
    let ping = said.ping.as_ref()?;
    let pool = PoolReport {
        model: MODEL.to_owned(),
        available: claim.available,
        replicas: claim.available.max(1),
        free_capacity: claim.free_capacity,
        queue: claim.queue,
        drain_per_s: 1000.0,
    };
    let stance = Stance {
        incarnation: 1,
        number: 1,
        gateway: true,
    };
    Some(Said {
        heartbeat: Some(Heartbeat {
            answers: ping.seq,
            stance: Some(stance),
            pools: vec![pool],
        }),
        ..Said::default()
    })
}

/// The next whole message of what was read.
fn take(read: &mut BytesMut) -> Option<Said> {
    let length = usize::try_from(read.get(1..GRPC_PREFIX_BYTES)?.get_u32()).ok()?;
    if read.len() < GRPC_PREFIX_BYTES + length {
        return None;
    }
    read.advance(GRPC_PREFIX_BYTES);
    Said::decode(read.split_to(length).freeze()).ok()
}

fn framed(said: &Said) -> Bytes {
    let message = said.encode_to_vec();
    let mut framed = BytesMut::with_capacity(GRPC_PREFIX_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(&message);
    framed.freeze()
}

#[derive(Clone, PartialEq, prost::Message)]
struct Said {
    #[prost(uint64, tag = "1")]
    session: u64,
    #[prost(message, optional, tag = "2")]
    hello: Option<Hello>,
    #[prost(message, optional, tag = "3")]
    ping: Option<Ping>,
    #[prost(message, optional, tag = "4")]
    heartbeat: Option<Heartbeat>,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
struct Hello {
    #[prost(uint32, tag = "1")]
    protocol: u32,
    #[prost(string, tag = "2")]
    region: String,
    #[prost(uint64, tag = "3")]
    incarnation: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
struct Ping {
    #[prost(uint64, tag = "1")]
    seq: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Heartbeat {
    #[prost(uint64, tag = "1")]
    answers: u64,
    #[prost(message, optional, tag = "3")]
    stance: Option<Stance>,
    #[prost(message, repeated, tag = "4")]
    pools: Vec<PoolReport>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
struct Stance {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(bool, tag = "3")]
    gateway: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PoolReport {
    #[prost(string, tag = "1")]
    model: String,
    #[prost(uint32, tag = "2")]
    available: u32,
    #[prost(uint32, tag = "3")]
    replicas: u32,
    #[prost(uint32, tag = "4")]
    free_capacity: u32,
    #[prost(uint32, tag = "5")]
    queue: u32,
    #[prost(float, tag = "6")]
    drain_per_s: f32,
}
