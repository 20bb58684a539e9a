//! Metrics of tiers and of the batch gate. Only pools that have them show them.

use std::fmt;
use std::sync::Arc;

use isotherm_router::{BatchStatus, ReleaseReason, TierStatus};
use strum::IntoEnumIterator as _;

use super::families::Family;
use crate::metrics::page::{Page, count};
use crate::pool::Pool;
use crate::tier;

/// The state of a pool's tiers at the moment of a scrape.
pub(super) struct TierSnapshot {
    pool: Arc<str>,
    tiers: Vec<TierStatus>,
    batch: Option<BatchStatus>,
}

impl TierSnapshot {
    pub(super) fn of(pool: &Pool) -> Self {
        Self {
            pool: Arc::clone(pool.name()),
            tiers: pool.tiers().into_iter().flatten().collect(),
            batch: pool.batch_status(),
        }
    }
}

const TIER_COUNTERS: [Family<TierStatus, u64>; 2] = [
    (
        "tier_slo_met",
        "Requests of a tier whose first token came within their budget, or within that of the tier",
        |t| t.within_slo,
    ),
    (
        "tier_slo_missed",
        "Requests of a tier whose first token came later",
        |t| t.past_slo,
    ),
];

const TIER_GAUGES: [Family<TierStatus, f64>; 1] = [(
    "tier_queue_length",
    "Requests of a tier in the queue; of the tier non-interactive, requests that the gate holds",
    |t| count(t.waiting),
)];

const BATCH_GAUGES: [Family<BatchStatus, f64>; 1] = [(
    "batch_held",
    "Requests that the gate for batch work holds",
    |b| count(b.held),
)];

pub(super) fn encode(page: &mut Page<'_>, pools: &[TierSnapshot]) -> fmt::Result {
    encode_tiers(page, pools)?;
    encode_batch(page, pools)
}

fn encode_tiers(page: &mut Page<'_>, pools: &[TierSnapshot]) -> fmt::Result {
    let each = || {
        pools.iter().flat_map(|pool| {
            let tiers = pool.tiers.iter();
            tiers.map(|status| {
                (
                    [("pool", &*pool.pool), ("tier", tier::name(status.tier))],
                    status,
                )
            })
        })
    };
    for (name, help, read) in TIER_COUNTERS {
        let samples = each().map(|(labels, status)| (labels, read(status)));
        page.counters(name, help, samples)?;
    }
    for (name, help, read) in TIER_GAUGES {
        let samples = each().map(|(labels, status)| (labels, read(status)));
        page.gauges(name, help, samples)?;
    }
    Ok(())
}

fn encode_batch(page: &mut Page<'_>, pools: &[TierSnapshot]) -> fmt::Result {
    let gates = || {
        pools
            .iter()
            .filter_map(|pool| Some((pool, pool.batch.as_ref()?)))
    };
    for (name, help, read) in BATCH_GAUGES {
        let samples = gates().map(|(pool, status)| ([("pool", &*pool.pool)], read(status)));
        page.gauges(name, help, samples)?;
    }
    page.gauges(
        "pool_utilisation",
        "Share of the memory for KV caches in use, with what was sent since the last probes; pools with tiers only",
        gates().filter_map(|(pool, status)| Some(([("pool", &*pool.pool)], status.utilisation?))),
    )?;
    page.counters(
        "batch_released",
        "Batch requests that the gate let go, by reason: below_high (the utilisation was below batch_release_below), \
         below_low (below three quarters of it), promoted (the deadline is near)",
        gates().flat_map(|(pool, status)| {
            ReleaseReason::iter().map(|reason| {
                let count = status.released.get(&reason).copied();
                let labels = [("pool", &*pool.pool), ("reason", reason.into())];
                (labels, count.unwrap_or_default())
            })
        }),
    )
}
