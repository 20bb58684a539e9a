//! A home region and two peers, eu and asia, for scripts of what goes between them.

use isotherm_router::{PeerReport, Push, Request, RouterConfig};

use super::script::Script;
use super::{request, traveller};

pub const EU: u16 = 1;
pub const ASIA: u16 = 2;

pub fn config() -> RouterConfig {
    RouterConfig {
        push: Push::Outstanding { max: 1 },
        ..RouterConfig::default()
    }
}

/// A region with so many free replicas, each of which takes one request; eu and asia have plenty of room.
pub fn region(replicas: u32) -> Script {
    region_with(config(), replicas)
}

pub fn region_with(config: RouterConfig, replicas: u32) -> Script {
    let mut script = Script::new(config, replicas);
    script.add_peer(EU);
    script.add_peer(ASIA);
    script.peer_at(EU, 90, roomy());
    script.peer_at(ASIA, 200, roomy());
    script
}

/// One whose replicas are all taken, by requests from `u64::MAX` downwards.
pub fn full(replicas: u32) -> Script {
    full_with(config(), replicas)
}

pub fn full_with(config: RouterConfig, replicas: u32) -> Script {
    let mut script = region_with(config, replicas);
    for i in 0..replicas {
        script.arrive(request(taken(i), 0, &[]));
    }
    assert_eq!(script.sent().len(), replicas as usize);
    script
}

pub fn taken(replica: u32) -> u64 {
    u64::MAX - u64::from(replica)
}

pub fn free_capacity(requests: u32) -> PeerReport {
    PeerReport {
        available: 2,
        replicas: 4,
        free_capacity: requests,
        queue: 0,
        drain_per_s: 10.0,
        ..PeerReport::default()
    }
}

pub fn roomy() -> PeerReport {
    free_capacity(100)
}

pub fn no_free_capacity() -> PeerReport {
    PeerReport {
        available: 0,
        ..free_capacity(0)
    }
}

pub fn any(id: u64) -> Request {
    traveller(id, id, &[id, id, id, id], &[])
}

pub fn script_tau() -> u32 {
    config().region.queue_max
}
