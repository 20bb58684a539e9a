//! Exchange of placements between the services of one region, so that each of them routes like the others.
//!
//! Placements are gathered for a few milliseconds and sent to every sibling in bounded messages. A sibling that is down or
//! slow misses some, which costs it cache hits only.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::RegionsDriver;
use super::pools::pool_of;
use crate::peering::{Message, encode};
use crate::pool::{Pool, SharedPlacement};

/// Time for which placements are gathered: the staleness of a sibling's index, for fewer messages.
const GATHER_TIME: Duration = Duration::from_millis(10);
/// Longest time until a new sibling gets placements.
const IDLE_TIME: Duration = Duration::from_secs(1);
/// Placements per message; with the longest chains of a header, half of the size limit.
const BATCH_MAX: usize = 64;
/// Messages of one pool in one round; the rest waits for the next round.
const BATCHES_MAX: usize = 8;

/// Sends placements to the siblings until the driver is gone.
pub(super) async fn follow(driver: Weak<RegionsDriver>) {
    let mut pause = GATHER_TIME;
    loop {
        tokio::time::sleep(pause).await;
        let Some(driver) = driver.upgrade() else {
            return;
        };
        let has_no_siblings = driver.lock().links.siblings().next().is_none();
        pause = if has_no_siblings {
            IDLE_TIME
        } else {
            GATHER_TIME
        };
        for pool in driver.pool_registry().table().pools() {
            for _ in 0..BATCHES_MAX {
                let placements = pool.take_placements(BATCH_MAX);
                let is_full = placements.len() == BATCH_MAX;
                send(&driver, pool, placements);
                if !is_full {
                    break;
                }
            }
        }
    }
}

fn send(driver: &RegionsDriver, pool: &Pool, placements: Vec<SharedPlacement>) {
    if placements.is_empty() {
        return;
    }
    let named = placements.into_iter();
    let named = named.map(|placement| (Arc::clone(pool.name()), placement));
    // All siblings get the same bytes.
    let message = encode(&Message::Placements(named.collect()));
    let message = message.inspect_err(|error| tracing::debug!(%error, "placements not sent"));
    let mut core = driver.lock();
    let core = &mut *core;
    for link in core.links.siblings() {
        let message = message.as_ref();
        match message.is_ok_and(|message| link.send(message.clone())) {
            true => core.counters.sharing_sent += 1,
            false => core.counters.sharing_dropped += 1,
        }
    }
}

/// Applies placements of a sibling, each with the model of its pool.
pub(super) fn receive(driver: &RegionsDriver, placements: Vec<(Arc<str>, SharedPlacement)>) {
    driver.lock().counters.sharing_received += 1;
    let table = driver.pool_registry().table();
    let mut by_pool: BTreeMap<&str, (&Pool, Vec<_>)> = BTreeMap::new();
    for (model, placement) in placements {
        if let Some(pool) = pool_of(&table, &model) {
            let (_, placements) = by_pool.entry(pool.name()).or_insert((pool, Vec::new()));
            placements.push(placement);
        }
    }
    for (pool, placements) in by_pool.into_values() {
        pool.apply_placements(placements);
    }
}
