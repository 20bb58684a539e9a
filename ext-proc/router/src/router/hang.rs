//! Replicas that hang: they accept requests, and nothing comes back.
//!
//! A broken replica fails, and the ends of its requests open its circuit breaker. The requests of a hung replica do not end. With
//! each probe, the router therefore measures how long the replica has been silent (`replica/vital_signs.rs`), and checks its
//! requests after a timeout. A dispatch writes nothing for these checks.
//!
//! The circuit breaker opens on less evidence than requests are abandoned on: a trial closes the breaker again, but an abandoned
//! request is lost to its client. `docs/decisions/0114-hung-replicas.md` has the reasons.

use core::time::Duration;

use std::collections::BTreeMap;

use crate::in_flight::InFlightRequest;
use crate::replica::{HANG_TIMEOUT_FACTOR, Replicas, Silence};
use crate::replica_index::ReplicaIndex;
use crate::{RequestId, Time};

/// Shortest silence between two checks of a replica's requests.
const CHECK_PAUSE_MIN: Duration = Duration::from_millis(100);

/// Requests of a silent replica.
#[derive(Debug, Default)]
struct SilentRequests {
    /// Dispatch of the oldest request that the circuit breaker counts and whose response has not begun.
    oldest_unbegun: Option<Time>,
    /// The longest prompt of such requests, in tokens to compute.
    tokens_max: f64,
    /// Whether a response is written, or may be.
    is_writing: bool,
    /// Requests whose responses have not begun, without the abandoned ones.
    unbegun: Vec<RequestId>,
}

/// The result of a check of a silent replica.
pub(super) enum Verdict {
    /// The replica may be alive. It is checked again after a silence of this length.
    CheckAfter(Duration),
    /// The replica hangs, and these requests get no response there.
    Hangs { abandoned: Vec<RequestId> },
}

/// Judges a replica by its silence and its requests.
#[cold]
pub(super) fn judge_silence(
    replicas: &Replicas,
    in_flight: &BTreeMap<RequestId, InFlightRequest>,
    replica: ReplicaIndex,
    silence: &Silence,
    now: Time,
) -> Verdict {
    let requests = silent_requests(replicas, in_flight, replica);
    let is_unsure = requests.is_writing && !silence.is_certain;
    let prompt_s = replicas.prefill_s(replica, requests.tokens_max);
    let prompt = Duration::try_from_secs_f64(prompt_s).unwrap_or_default();
    let signs = replicas.get(replica).map(|replica| &replica.signs);
    let timeout = signs
        .map_or(Duration::MAX, |signs| signs.hang_timeout(is_unsure))
        .max(prompt.saturating_mul(HANG_TIMEOUT_FACTOR.get()));
    // Frozen counters show that answers stall. Without them, only a request without a response shows a hang.
    let heard_for = match requests.oldest_unbegun {
        _ if silence.are_counters_frozen => silence.lasts,
        Some(oldest) => silence.lasts.min(now.since(oldest)),
        None => Duration::ZERO,
    };
    if heard_for < timeout {
        let left = timeout.saturating_sub(heard_for);
        Verdict::CheckAfter(left.max(CHECK_PAUSE_MIN))
    } else if replicas.are_others_alive(replica, timeout / 2, now) {
        let abandoned = requests.unbegun;
        Verdict::Hangs {
            abandoned: if silence.is_certain {
                abandoned
            } else {
                Vec::new()
            },
        }
    } else {
        Verdict::CheckAfter(CHECK_PAUSE_MIN)
    }
}

fn silent_requests(
    replicas: &Replicas,
    in_flight: &BTreeMap<RequestId, InFlightRequest>,
    index: ReplicaIndex,
) -> SilentRequests {
    let mut found = SilentRequests::default();
    let Some(replica) = replicas.get(index) else {
        return found;
    };
    let of_replica = in_flight.iter();
    for (number, flight) in of_replica.filter(|(_, r)| r.claim.replica == replica.id) {
        // Another replica may be at fault for a prompt that is computed there.
        if flight.has_begun || !flight.request.tells_start || flight.prefill.is_some() {
            found.is_writing = true;
            continue;
        }
        if flight.is_abandoned {
            continue;
        }
        found.unbegun.push(*number);
        if replica.breaker.is_of_epoch(flight.claim.permit) {
            let oldest = found.oldest_unbegun.unwrap_or(flight.dispatched_at);
            found.oldest_unbegun = Some(oldest.min(flight.dispatched_at));
            let tokens = flight.predicted.uncached_tokens;
            found.tokens_max = found.tokens_max.max(tokens);
        }
    }
    found
}
