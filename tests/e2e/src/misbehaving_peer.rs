//! A service of another region that reports what a test tells it to report, true or not.
//!
//! It implements the called side of the peering protocol, `peering.proto`, and replies to each ping at once. The messages
//! are declared here again, as far as they are needed, so that the service's own declarations are tested against another
//! implementation.

use std::convert::Infallible;
use std::net::SocketAddr;

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

const PROTOCOL_VERSION: u32 = 1;
/// Length of a gRPC message's prefix: whether it is compressed, and its length.
const GRPC_PREFIX_BYTES: usize = 5;
/// Replies that may wait for the caller to read them.
const REPLIES_MAX: usize = 64;

/// The state that the peer reports of its only pool.
#[derive(Clone, Copy, Debug)]
pub struct ReportedPool {
    /// Replicas that accept another request.
    pub available: u32,
    /// Requests that the pool could start now.
    pub free_capacity: u32,
    /// Queue length.
    pub queue: u32,
}

impl ReportedPool {
    /// More free capacity than any pool of these tests has.
    pub const IDLE: Self = Self {
        available: 50,
        free_capacity: 1000,
        queue: 0,
    };
}

/// A running peer; it ends when it is dropped.
#[derive(Debug)]
pub struct MisbehavingPeer {
    address: SocketAddr,
    _server: JoinSet<()>,
}

impl MisbehavingPeer {
    /// Starts a peer that identifies itself as `region`, without TLS.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(region: &str, pool: ReportedPool) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut server = JoinSet::new();
        server.spawn(accept(listener, region.to_owned(), pool));
        Ok(Self {
            address,
            _server: server,
        })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(listener: TcpListener, region: String, pool: ReportedPool) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let region = region.clone();
        connections.spawn(async move {
            let service = service_fn(|request| handle_stream(request, region.clone(), pool));
            let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            drop(served.await); // ends when the caller disconnects
        });
    }
}

type ReplyStream = StreamBody<ReceiverStream<Result<Frame<Bytes>, Infallible>>>;

async fn handle_stream(
    request: Request<Incoming>,
    region: String,
    pool: ReportedPool,
) -> Result<Response<ReplyStream>, hyper::http::Error> {
    let (sender, replies) = mpsc::channel(REPLIES_MAX);
    tokio::spawn(async move {
        let mut messages = BodyStream::new(request.into_body().map_err(drop));
        let mut buffer = BytesMut::new();
        while let Some(Ok(frame)) = messages.next().await {
            buffer.extend(frame.into_data().unwrap_or_default());
            while let Some(message) = decode_next(&mut buffer) {
                let Some(reply) = reply_to(&message, &region, pool) else {
                    continue;
                };
                if sender.send(Ok(Frame::data(encode(&reply)))).await.is_err() {
                    return;
                }
            }
        }
    });
    Response::builder()
        .header("content-type", "application/grpc")
        .body(StreamBody::new(ReceiverStream::new(replies)))
}

fn reply_to(message: &PeerMessage, region: &str, pool: ReportedPool) -> Option<PeerMessage> {
    let mut reply = PeerMessage {
        session: message.session,
        ..PeerMessage::default()
    };
    if message.hello.is_some() {
        reply.hello = Some(Hello {
            protocol: PROTOCOL_VERSION,
            region: region.to_owned(),
            incarnation: 1,
        });
        return Some(reply);
    }
    let pool = PoolReport {
        model: MODEL.to_owned(),
        available: pool.available,
        replicas: pool.available.max(1),
        free_capacity: pool.free_capacity,
        queue: pool.queue,
        drain_per_s: 1000.0,
    };
    let stance = Stance {
        incarnation: 1,
        number: 1,
        gateway: true,
    };
    reply.heartbeat = Some(Heartbeat {
        answers: message.ping.as_ref()?.seq,
        stance: Some(stance),
        pools: vec![pool],
    });
    Some(reply)
}

/// Takes the next whole message from the buffer.
fn decode_next(buffer: &mut BytesMut) -> Option<PeerMessage> {
    let length = usize::try_from(buffer.get(1..GRPC_PREFIX_BYTES)?.get_u32()).ok()?;
    if buffer.len() < GRPC_PREFIX_BYTES + length {
        return None;
    }
    buffer.advance(GRPC_PREFIX_BYTES);
    PeerMessage::decode(buffer.split_to(length).freeze()).ok()
}

fn encode(message: &PeerMessage) -> Bytes {
    let message = message.encode_to_vec();
    let mut framed = BytesMut::with_capacity(GRPC_PREFIX_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(&message);
    framed.freeze()
}

#[derive(Clone, PartialEq, prost::Message)]
struct PeerMessage {
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
