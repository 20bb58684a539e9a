//! Verdicts: what the end of a request says about its replicas.

use crate::in_flight::{InFlightRequest, PrefillClaim};
use crate::pool_state::PoolState;
use crate::quarantine::PromptVerdict;
use crate::replica::{ComputedShare, Evidence, Replicas};
use crate::{End, ReplicaId, ServedBy, Time};

/// Where a request ended, beside the replica that was selected for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deviation {
    pub(super) is_elsewhere: bool,
    /// Whether the selected replica has not seen the request.
    pub(super) is_overridden: bool,
    /// The replica that served instead, if a replica of the pool did.
    pub(super) other: Option<ReplicaId>,
}

impl Deviation {
    pub(super) fn of(selected: ReplicaId, served_by: ServedBy) -> Self {
        let server = served_by.server(selected);
        let is_overridden = matches!(served_by, ServedBy::Overridden(_));
        let is_elsewhere = is_overridden || server != Some(selected);
        Self {
            is_elsewhere,
            is_overridden,
            other: server.filter(|_| is_elsewhere),
        }
    }

    /// Whether the gateway tried the selected replica first.
    pub(super) const fn is_retry(self) -> bool {
        self.is_elsewhere && !self.is_overridden
    }
}

/// Tells the replicas how a request ended: the chosen one, which failed if Envoy retried, and the one that served.
pub(super) fn release(
    replicas: &mut Replicas,
    flight: &InFlightRequest,
    end: End,
    prompt: PromptVerdict,
    deviation: Deviation,
    is_streamed: bool,
    now: Time,
) {
    let Deviation {
        is_elsewhere,
        is_overridden,
        other,
    } = deviation;
    let evidence = match end {
        End::Errored => Evidence::Error(flight.identity()),
        End::Refused if !is_elsewhere => judge_refusal(replicas, flight),
        _ if prompt != PromptVerdict::Innocent => Evidence::None,
        _ => Evidence::of(end),
    };
    let of_chosen = match end {
        // The chosen replica has not seen the request.
        _ if is_overridden => Evidence::None,
        // Its first attempt may have ended by a timeout as well.
        End::TimedOut => judge_timeout(replicas, flight),
        End::Broke if evidence == Evidence::None => evidence,
        _ if is_elsewhere => Evidence::Failure,
        _ => evidence,
    };
    let computed = match end {
        End::Unsent => ComputedShare::Nothing,
        _ if is_overridden => ComputedShare::Nothing,
        _ if is_elsewhere => ComputedShare::Partly,
        End::Answered => ComputedShare::Whole,
        End::Refused => ComputedShare::Nothing,
        End::Errored | End::Failed | End::Broke | End::TimedOut => ComputedShare::Partly,
    };
    replicas.on_release(flight, of_chosen, computed, is_streamed, now);
    if let Some(other) = other {
        replicas.served_retry(other, evidence, now);
    }
    if let Some(prefill) = &flight.prefill {
        end_prefill(replicas, prefill, evidence, computed, now);
    }
    let has_failed = deviation.is_retry() || matches!(end, End::Failed | End::Broke);
    if let Some(slot) = replicas
        .slot_of(flight.claim.replica)
        .filter(|_| has_failed)
        && let Some(replica) = replicas.get_mut(slot)
    {
        replica.counts.false_hits.has_failed = true;
    }
}

/// Verdict of a refused request on its replica: an error, where a peer answers what the replica refuses. A client that follows its prefix
/// to one replica counts once.
fn judge_refusal(replicas: &mut Replicas, flight: &InFlightRequest) -> Evidence {
    let slot = replicas.slot_of(flight.claim.replica);
    if !slot.is_some_and(|slot| replicas.on_refusal(slot)) {
        return Evidence::None;
    }
    let client = flight
        .request
        .session
        .filter(|_| flight.predicted.matched_bytes > 0);
    Evidence::Error(client.map_or_else(|| flight.identity(), |session| session.0))
}

/// Verdict of a request that a timeout of the gateway ended on its replica: none, where the replica has shown a sign of life
/// since the dispatch. Otherwise a timeout counts as a refusal does.
fn judge_timeout(replicas: &mut Replicas, flight: &InFlightRequest) -> Evidence {
    let (replica, sent) = (flight.claim.replica, flight.dispatched_at);
    if flight.has_begun || replicas.has_sign_since(replica, sent) {
        return Evidence::None;
    }
    judge_refusal(replicas, flight)
}

/// Verdict of an aborted request on its replica: a client that gave up past the SLO, without a first byte, was failed by
/// a replica that has shown no sign of life since the dispatch.
pub(super) fn abort_evidence(pool: &PoolState, flight: &InFlightRequest) -> Evidence {
    let (sent, replica) = (flight.dispatched_at, flight.claim.replica);
    let tells = flight.request.tells_start && !flight.has_begun && flight.prefill.is_none();
    let is_past_slo = pool.now.since(sent) > pool.config.ttft_slo;
    if tells && is_past_slo && !pool.replicas.has_sign_since(replica, sent) {
        Evidence::Failure
    } else {
        Evidence::None
    }
}

/// Releases what is left of the claim on a prefill replica at the end of its request.
#[cold]
pub(super) fn end_prefill(
    replicas: &mut Replicas,
    prefill: &PrefillClaim,
    evidence: Evidence,
    computed: ComputedShare,
    now: Time,
) {
    let claim = &prefill.claim;
    replicas.change(claim.replica, now, |replica| {
        if !prefill.is_computed {
            replica.on_end(claim.row, computed, now);
        }
        replica.breaker.on_end(claim.permit, evidence, now);
    });
}
