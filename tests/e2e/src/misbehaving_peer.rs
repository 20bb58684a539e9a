//! A service of another region that reports free capacity which it does not have.
//!
//! The peer implements the called side of the peering protocol, `peering.proto`, without TLS, and replies to each ping at once.

use std::future::ready;
use std::net::SocketAddr;

use isotherm_ext_proc::peering::wire::{Envelope, Heartbeat, Payload, PoolReport};
use isotherm_harness::TcpServer;
use prost::Message as _;

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
    /// Starts a peer of any region: without TLS a caller does not check it.
    pub async fn start() -> anyhow::Result<Self> {
        let server = serve_peering(|request| {
            let message = Envelope::decode(request.into_body());
            let reply = message.map(|message| reply_to(message).encode_to_vec().into());
            ready(reply.map_err(anyhow::Error::from))
        });
        Ok(Self(server.await?))
    }

    /// The address on which the peer listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

fn reply_to(message: Envelope) -> Envelope {
    let Some(Payload::Ping(ping)) = message.payload else {
        return Envelope::default();
    };
    let heartbeat = Heartbeat {
        nonce: ping.nonce,
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
    };
    Envelope {
        payload: Some(Payload::Heartbeat(heartbeat)),
    }
}
