//! A service of another region that reports free capacity which it does not have.
//!
//! The peer implements the called side of the peering protocol without TLS, and replies to each ping at once.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use isotherm_ext_proc::peering::{Message, decode, encode};
use isotherm_harness::TcpServer;
use isotherm_regions::Heartbeat;
use isotherm_router::PeerReport;

use crate::MODEL;

/// The peer's report: more free capacity than any pool of these tests has.
const REPORT: PeerReport = PeerReport {
    available: 50,
    replicas: 50,
    free_capacity: 1000,
    queue: 0,
    drain_per_s: 1000.0,
    prompt_cost: None,
    utilisation: None,
    kv_capacity_tokens: 0,
    batch_credit: 0,
    batch_queue: 0,
};

/// A running peer; it ends when it is dropped.
#[derive(Debug)]
pub struct MisbehavingPeer(TcpServer);

impl MisbehavingPeer {
    /// Starts a peer of any region: without TLS a caller does not check it.
    pub async fn start() -> anyhow::Result<Self> {
        let server = TcpServer::start(|connection| {
            let service = service_fn(async |request: Request<Incoming>| {
                let body = request.into_body().collect().await?.to_bytes();
                anyhow::Ok(Response::new(Full::new(reply_to(&body)?)))
            });
            let served = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
            async move { drop(served.await) } // ends when the caller disconnects
        });
        Ok(Self(server.await?))
    }

    /// The address on which the peer listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

fn reply_to(body: &[u8]) -> anyhow::Result<Bytes> {
    let Some(Message::Ping) = decode(body)? else {
        return Ok(Bytes::new());
    };
    Ok(encode(&Message::Heartbeat(Heartbeat {
        version: "misbehaving".into(),
        has_gateway: true,
        pools: vec![(MODEL.into(), REPORT)],
    }))?)
}
