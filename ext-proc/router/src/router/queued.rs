//! The entry of a request in the queue: band, restrictions and tokens.

use super::decide::pinned;
use super::hold::batch_rules;
use super::prefill::whole_tokens;
use crate::pool_state::PoolState;
use crate::queue::{Band, EnteredBy, LinePlace, QueueSeq, QueueTurns, QueuedRequest};
use crate::tenants::TenantCharge;
use crate::{BatchTier, ReplicaId, Request, ResponseKey, Scope, TenantId, Tier, Time};

/// A request before it waits, with its prompt in tokens of the learned length.
pub(super) fn queued(
    pool: &PoolState,
    mut request: Request,
    seq: QueueSeq,
    arrived: Time,
    entered_by: EnteredBy,
) -> QueuedRequest {
    keep_to_response(pool, &mut request);
    let rules = batch_rules(pool).filter(|_| request.tier == Tier::NonInteractive);
    let is_batch = rules.is_some();
    let is_near = |rules: &BatchTier| {
        let deadline = request.deadline;
        deadline.is_some_and(|deadline| deadline.before(rules.promote_left) <= pool.now)
    };
    let band = match rules {
        Some(rules) if !is_near(rules) => Band::Held,
        Some(_) | None => Band::Waiting,
    };
    let estimated_tokens = request.prompt_tokens;
    request.prompt_tokens = pool.caches.token_length.tokens(estimated_tokens);
    QueuedRequest {
        seq,
        place: LinePlace::LAST,
        band,
        estimated_tokens,
        arrived,
        entered: arrived,
        charge: TenantCharge {
            slot: pool.tenants.slot_of(request.tenant),
            tokens: tokens_of(pool, &request),
        },
        turns: QueueTurns::default(),
        pinned: pinned(pool, &request),
        entered_by: if is_batch && band == Band::Waiting {
            EnteredBy::Promoted
        } else {
            entered_by
        },
        is_long_prompt: false,
        preferred: None,
        delayed_since: None,
        request,
    }
}

/// Estimated tokens of a request that count for its tenant: the prompt and the answer. A prompt that the filter has not read counts as
/// the mean request of the pool.
fn tokens_of(pool: &PoolState, request: &Request) -> u64 {
    let expected = whole_tokens(pool.replicas.output_tokens());
    let answer = request.output_tokens_max.unwrap_or(u32::MAX).min(expected);
    match (request.prompt_tokens, pool.tenants.mean_tokens()) {
        (0, Some(mean)) => mean,
        (prompt, _) => u64::from(prompt) + u64::from(answer),
    }
}

/// The replica that may have a stored response of a tenant, if it is still in the pool.
pub(super) fn replica_of_response(
    pool: &PoolState,
    tenant: TenantId,
    response: ResponseKey,
) -> Option<ReplicaId> {
    let replica = pool.caches.stored.replica_of(tenant, response)?;
    pool.replicas.slot_of(replica).map(|_| replica)
}

/// Restricts a request to the replica that has the response which it continues. A request is routed as any other if no replica is
/// known to have it, or if that replica takes no new requests or may not serve this one.
fn keep_to_response(pool: &PoolState, request: &mut Request) {
    let response = request.previous_response;
    let replica = response.and_then(|key| replica_of_response(pool, request.tenant, key));
    let Some(replica) = replica else {
        return;
    };
    let subset = request.subset.as_deref();
    let listers = pool.adapters.listers(request);
    let may_serve = pool.replicas.slot_of(replica).is_some_and(|index| {
        pool.replicas.staying().contains(index)
            && listers.is_none_or(|listers| listers.contains(index))
            && subset.is_none_or(|subset| subset.contains(&replica))
    });
    if may_serve {
        request.subset = Some([replica].into());
        if let Scope::Regions { .. } = request.scope {
            request.scope = Scope::Local;
        }
    }
}
