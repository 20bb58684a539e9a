//! What pools know of other regions, and do for them.

use std::collections::BTreeMap;
use std::fmt;

use isotherm_router::PeerAvailability;

use super::page::{Page, Snapshot, count};

/// Writes all of it.
pub(super) fn encode(page: &mut Page<'_>, pools: &[Snapshot]) -> fmt::Result {
    sent(page, pools)?;
    taken(page, pools)?;
    peers(page, pools)?;
    placements(page, pools)
}

fn sent(page: &mut Page<'_>, pools: &[Snapshot]) -> fmt::Result {
    page.peer_counter(
        "forwarded",
        "Requests sent to another region",
        pools,
        |peer| peer.forwarded,
    )?;
    page.peer_counter(
        "returned",
        "Of these, those that came back: refused, or not served there",
        pools,
        |peer| peer.returned,
    )?;
    page.peer_gauge(
        "forwarded_in_flight",
        "Requests sent to another region and not finished",
        pools,
        |peer| Some(f64::from(peer.outstanding)),
    )?;
    page.counter(
        "forwarded_prompt_tokens",
        "Prompt tokens of forwarded requests whose engine told what it found in its cache",
        pools,
        |c| c.forwarded_prompt_tokens,
    )?;
    page.counter(
        "forwarded_cached_tokens",
        "What it found, same requests",
        pools,
        |c| c.forwarded_cached_tokens,
    )
}

fn taken(page: &mut Page<'_>, pools: &[Snapshot]) -> fmt::Result {
    page.counter(
        "forwarded_in",
        "Requests forwarded to this region by a peer",
        pools,
        |c| c.forwarded_in,
    )?;
    page.counter(
        "forwarded_in_refused",
        "Of these, those that were sent back because the queue was too long",
        pools,
        |c| c.forwarded_in_rejected,
    )?;
    let mut adopted: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for pool in pools {
        for peer in &pool.peers {
            adopted.insert((&pool.pool, &peer.name), 0);
        }
        for region in &pool.adopted {
            *adopted.entry((&pool.pool, region)).or_default() += 1;
        }
    }
    page.labelled(
        "adopted_replicas",
        "Replicas of another region that this one looks after",
        adopted.into_iter().map(|((pool, region), number)| {
            let labels = [("pool", pool.to_owned()), ("region", region.to_owned())];
            (labels, count(number))
        }),
    )
}

fn peers(page: &mut Page<'_>, pools: &[Snapshot]) -> fmt::Result {
    let each = || {
        pools
            .iter()
            .flat_map(|pool| pool.peers.iter().map(move |peer| (pool, peer)))
    };
    page.labelled(
        "peer_available",
        "1 when requests are forwarded there; the label says why not",
        each().map(|(pool, peer)| {
            let labels = [
                ("pool", pool.pool.to_string()),
                ("region", peer.name.clone()),
                ("state", peer.availability.as_str().to_owned()),
            ];
            let available = peer.availability == PeerAvailability::Available;
            (labels, f64::from(u8::from(available)))
        }),
    )?;
    page.peer_gauge(
        "peer_available_replicas",
        "Replicas there that take another request, as it said last",
        pools,
        |peer| Some(f64::from(peer.report?.available)),
    )?;
    page.peer_gauge(
        "peer_free_capacity",
        "Requests that the peer could start at once, by its last report",
        pools,
        |peer| Some(f64::from(peer.report?.free_capacity)),
    )?;
    page.peer_gauge(
        "peer_queue_length",
        "Requests that wait there, as it said last",
        pools,
        |peer| Some(f64::from(peer.report?.queue)),
    )?;
    page.gauge(
        "peer_index_bytes",
        "Memory of the index over other regions",
        pools,
        |s| count(s.peer_index.bytes),
    )
}

fn placements(page: &mut Page<'_>, pools: &[Snapshot]) -> fmt::Result {
    page.counter(
        "placements_sent",
        "Placements that siblings were told",
        pools,
        |c| c.shared_sent,
    )?;
    page.counter(
        "placements_received",
        "Placements that siblings told",
        pools,
        |c| c.shared_received,
    )?;
    page.counter(
        "placements_unattached",
        "Of these, those that continue a prefix which is not known here",
        pools,
        |c| c.shared_unattached,
    )?;
    page.counter(
        "placements_dropped",
        "Placements that siblings were not told in time",
        pools,
        |c| c.shared_dropped,
    )
}
