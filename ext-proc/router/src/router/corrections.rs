//! Corrections of the index by predicted cache hits that did not happen.
//!
//! Engines evict the least recently used blocks first, so whatever is as old as the missing prefix is gone, too. But a client
//! can make a prediction fail, so a false hit removes entries of others within two bounds:
//!
//! 1. the bytes that the engine computed for this very request: so much it may have evicted to hold them. A client that makes
//!    an engine compute that much evicts as much for real;
//! 2. entries of the same tenant that are as old as the missing prefix.
//!
//! Several false hits in a row mean an empty cache only behind a sign that the process ended: a failed response or probe
//! since the last prediction that was right. Rejected: to believe several of them without a sign, since one client can send
//! them; to believe none, since an engine without counters that restarts would be asked for each lost prompt once.

use super::learning::CacheHit;
use crate::Counters;
use crate::constant::constants;
use crate::in_flight::InFlightRequest;
use crate::index::Caches;
use crate::replica::{FalseHits, Replicas};
use crate::replica_index::ReplicaIndex;

constants! {
    /// Share of a predicted hit below which the prediction is wrong.
    CONFIRMED_SHARE_MIN: f64 = 0.9;
    /// Missing bytes from which a prediction is wrong: one block, since an engine's blocks do not align with a fingerprint's.
    MISSING_BYTES_MIN: f64 = 256.0;
    /// Wrong predictions in a row, behind a sign of a restart, after which all entries as old as the missing prefix are removed.
    /// Guards: one evicted prefix behind a failed probe does not cost a replica all its entries.
    FALSE_HITS_CONFIRMED: u32 = 3;
    /// Wrong predictions in a row from which on each one removes its own prompt's entries behind the cached ones. Behind a sign of a
    /// restart, all entries from before the first wrong prediction are removed, too.
    FALSE_HITS_MAX: u32 = 5;
}

/// Compares the measured cache hit with the prediction, and corrects the index where the engine had less.
pub(super) fn compare_prediction(
    replicas: &mut Replicas,
    caches: &mut Caches,
    counters: &mut Counters,
    flight: &InFlightRequest,
    hit: CacheHit,
) {
    counters.predicted_cached_tokens += u64::from(hit.predicted_tokens);
    counters.measured_cached_tokens += u64::from(hit.cached_tokens);
    counters.prediction_error_tokens += u64::from(hit.predicted_tokens.abs_diff(hit.cached_tokens));
    counters.measured_prompt_tokens += u64::from(hit.prompt_tokens);
    let Some(slot) = replicas.slot_of(flight.claim.replica) else {
        return;
    };
    let matched_bytes = flight.predicted.matched_bytes;
    if matched_bytes == 0 {
        return;
    }
    if is_false_hit(matched_bytes, hit.cached_bytes) {
        counters.false_hits += 1;
        correct(replicas, caches, flight, slot, hit);
    } else if let Some(replica) = replicas.get_mut(slot) {
        replica.counts.false_hits = FalseHits::default();
    }
}

/// Corrects the index after a false hit.
#[inline(never)]
fn correct(
    replicas: &mut Replicas,
    caches: &mut Caches,
    flight: &InFlightRequest,
    replica: ReplicaIndex,
    hit: CacheHit,
) {
    let recorded = &flight.claim.recorded;
    if caches.forgetting.has_forgotten(replica, recorded.stamp) {
        // The prediction is older than the correction.
        return;
    }
    let (index, forgetting) = (&mut caches.index, &mut caches.forgetting);
    let bytes_max = hit.computed_bytes(&flight.request.fingerprint);
    index.missed(replica, recorded, bytes_max);
    let false_hits = replicas.count_false_hit(replica, recorded.stamp);
    if false_hits.has_failed && false_hits.in_a_row >= FALSE_HITS_CONFIRMED.get() {
        forgetting.add(replica, recorded.used_before);
    }
    if false_hits.in_a_row >= FALSE_HITS_MAX.get() {
        if false_hits.has_failed {
            forgetting.add_empty(replica, false_hits.first, index.last_tick());
        }
        let blocks = flight.request.fingerprint.blocks();
        let kept = blocks.partition_point(|block| f64::from(block.end_bytes) <= hit.cached_bytes);
        index.forget_past(blocks, (replica, recorded.owner), kept);
    }
}

/// Whether an engine found less of a prompt in its cache than predicted, both in bytes.
fn is_false_hit(predicted: u32, measured: f64) -> bool {
    let predicted = f64::from(predicted);
    measured < predicted * CONFIRMED_SHARE_MIN.get()
        && predicted - measured >= MISSING_BYTES_MIN.get()
}
