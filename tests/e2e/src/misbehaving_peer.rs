//! A service of another region that reports free capacity which it does not have.
//!
//! The peer implements the called side of the peering protocol, `peering.proto`, without TLS, and replies to each ping at once.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _};
use isotherm_ext_proc::peering::PROTOCOL_VERSION;
use isotherm_ext_proc::peering::wire::{Envelope, Heartbeat, Hello, Payload, PoolReport};
use isotherm_harness::TcpServer;
use tonic::Response;

use crate::MODEL;
use crate::peering_server::serve_peering;

/// More than any pool of these tests has.
const FREE_CAPACITY: u32 = 1000;
/// Replicas that the peer reports; all are available.
const REPLICAS: u32 = 50;

/// A running peer; it ends when it is dropped.
#[derive(Debug)]
pub struct MisbehavingPeer(TcpServer);

impl MisbehavingPeer {
    /// Starts a peer that identifies itself as `region`.
    pub async fn start(region: &str) -> anyhow::Result<Self> {
        let region: Arc<str> = region.into();
        let server = serve_peering(move |messages| {
            let region = Arc::clone(&region);
            let replies = messages.filter_map(move |message| {
                let reply = message.map(|message| reply_to(message, &region));
                ready(reply.transpose())
            });
            ready(Ok(Response::new(replies.boxed()))).boxed()
        });
        Ok(Self(server.await?))
    }

    /// The address on which the peer listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

fn reply_to(message: Envelope, region: &str) -> Option<Envelope> {
    let payload = match message.payload? {
        Payload::Hello(_) => Payload::Hello(Hello {
            protocol_version: PROTOCOL_VERSION,
            region: region.to_owned(),
            incarnation: 1,
            ..Hello::default()
        }),
        Payload::Ping(ping) => Payload::Heartbeat(Heartbeat {
            ping_seq: ping.seq,
            has_gateway: true,
            pools: vec![PoolReport {
                model: MODEL.to_owned(),
                available: REPLICAS,
                replicas: REPLICAS,
                free_capacity: FREE_CAPACITY,
                queue: 0,
                drain_per_s: 1000.0,
                ..PoolReport::default()
            }],
            ..Heartbeat::default()
        }),
        _ => return None,
    };
    Some(Envelope {
        session: message.session,
        payload: Some(payload),
    })
}
