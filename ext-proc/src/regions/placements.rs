//! Placements, shared between the services of one region so that any of them routes like the others.
//!
//! They are gathered for a few milliseconds and told to every sibling, in messages of bounded length. A sibling that is
//! not there, or does not keep up, misses some: its index is then a little poorer, and nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::RegionsDriver;
use super::pools::pool_of;
use crate::peering::{Message, NamedPlacement, NamedTarget};
use crate::pool::{Pool, PoolTable, SharedPlacement, SharedTarget};

/// How long placements are gathered.
const GATHER: Duration = Duration::from_millis(10);
/// How long it takes at most until a sibling that comes is told anything.
const ALONE: Duration = Duration::from_secs(1);
/// How many go into one message: with the longest chains that a header holds, half of what a message may have.
const BATCH_MAX: usize = 128;
/// How many messages of one pool go out in a row; what is more waits for the next round.
const BATCHES_MAX: usize = 8;

/// Tells siblings what is placed here, until the service is gone.
pub(super) async fn follow(shared: Weak<RegionsDriver>) {
    let mut pause = GATHER;
    loop {
        tokio::time::sleep(pause).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let alone = shared.lock().links.siblings.is_empty();
        pause = if alone { ALONE } else { GATHER };
        for pool in shared.pool_registry().table().pools() {
            for _ in 0..BATCHES_MAX {
                let placements = pool.take_placements(BATCH_MAX);
                let whole = placements.len() == BATCH_MAX;
                send(&shared, pool, placements);
                if !whole {
                    break;
                }
            }
        }
    }
}

fn send(shared: &RegionsDriver, pool: &Pool, placements: Vec<SharedPlacement>) {
    if placements.is_empty() {
        return;
    }
    let placed = placements.into_iter().map(|placement| NamedPlacement {
        model: Arc::clone(pool.name()),
        target: match placement.target {
            SharedTarget::Replica(address) => NamedTarget::Replica(address.to_string().into()),
            SharedTarget::Peer(region) => NamedTarget::Region(region),
        },
        parent: placement.parent,
        blocks: placement.blocks,
    });
    let said = Message::Placements(placed.collect());
    let mut core = shared.lock();
    let core = &mut *core;
    for link in &core.links.siblings {
        match link.tell(&said) {
            Ok(()) => core.counts.sent += 1,
            Err(_) => core.counts.dropped += 1,
        }
    }
}

/// A sibling told what it has placed.
pub(super) fn receive(shared: &RegionsDriver, placed: Vec<NamedPlacement>) {
    shared.lock().counts.received += 1;
    let table = shared.pool_registry().table();
    for (name, placements) in by_pool(&table, placed) {
        if let Some(pool) = pool_of(&table, &name) {
            pool.apply_placements(placements);
        }
    }
}

fn by_pool(
    table: &PoolTable,
    placed: Vec<NamedPlacement>,
) -> BTreeMap<Arc<str>, Vec<SharedPlacement>> {
    let mut pools: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for placed in placed {
        let target = match placed.target {
            NamedTarget::Replica(address) => match address.parse::<SocketAddr>() {
                Ok(address) => SharedTarget::Replica(address),
                Err(_) => continue,
            },
            NamedTarget::Region(region) => SharedTarget::Peer(region),
        };
        if let Some(pool) = pool_of(table, &placed.model) {
            let placement = SharedPlacement {
                target,
                parent: placed.parent,
                blocks: placed.blocks,
            };
            let pool = pools.entry(Arc::clone(pool.name())).or_default();
            pool.push(placement);
        }
    }
    pools
}
