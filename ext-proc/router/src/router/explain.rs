//! Explanations of a decision, with the replicas and peers that it compared. An explanation changes nothing.

use super::Router;
use super::decide::{allowed, decide_at_once, decide_on_wait};
use super::hold::decide_held;
use super::prefill::{prompt_coverage, select_prefiller};
use super::queued::queued;
use super::routing::{AvailableTargets, RoutingDecision};
use crate::policy::Policy;
use crate::pool_state::PoolState;
use crate::queue::{Band, EnteredBy, QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaSet;
use crate::{Candidate, Choice, Explanation, Request, Time};

impl Router {
    /// Explains the decision on a request that would arrive now.
    pub fn explain(&self, now: Time, request: &Request) -> Explanation {
        let (pool, policy) = (&self.pool, &*self.policy);
        let now = pool.now.max(now);
        let (seq, entry) = (QueueSeq::LAST, EnteredBy::Arrived);
        let queued = queued(pool, request.clone(), seq, pool.now, entry);
        let request = &queued.request;
        let replicas = pool.replicas.available_at(true, now);
        let at = AvailableTargets {
            replicas: &replicas,
            peers: &pool.peers.available_at(now),
            is_serving: self.service.is_pending(),
        };
        let routing = decide(pool, policy, &queued, at);
        let prefillers = pool.replicas.available_at(false, now);
        let choice = choice(pool, routing, request, &prefillers);
        let peers = request.tried().map(|_| pool.peers.candidates(now, request));
        let allowed = allowed(queued.pinned.as_deref(), &replicas);
        let view = pool.view_of(&queued, &allowed);
        let all = pool.replicas.all();
        let mut candidates: Vec<Candidate> = all
            .filter(|index| view.may_serve(request, *index))
            .filter_map(|index| {
                let replica = pool.replicas.get(index)?;
                let blocks = request.fingerprint.blocks();
                let matched = pool.caches.index.deepest_of(blocks, index);
                Some(Candidate {
                    replica: replica.id,
                    name: replica.name.clone(),
                    role: replica.role,
                    matched_bytes: request.fingerprint.bytes_at(matched.depth),
                    outstanding: replica.outstanding(),
                    pending: replica.load().map(|load| load.pending),
                    availability: pool.replicas.availability(index, now)?,
                    adapter: request
                        .adapter
                        .map(|adapter| pool.adapters.state(index, adapter)),
                    score: if replica.role.has_requests() {
                        policy.score(request, index, &view)
                    } else {
                        // Minus the seconds until the prefill replica has computed the prompt.
                        let uncached = request.uncached_tokens(matched.depth);
                        -pool.replicas.ttft_s(index, uncached, pool.now)
                    },
                })
            })
            .collect();
        candidates.sort_by(|a, b| (&a.name, a.replica).cmp(&(&b.name, b.replica)));
        Explanation {
            candidates,
            peers: peers.unwrap_or_default(),
            choice,
        }
    }
}

/// Decides on a request as if it arrived.
fn decide(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    at: AvailableTargets<'_>,
) -> RoutingDecision {
    if queued.band == Band::Held {
        return decide_held(pool, policy, queued, at);
    }
    match decide_at_once(pool, policy, queued, at) {
        RoutingDecision::Wait(preferred) => decide_on_wait(pool, policy, queued, preferred, at),
        decided => decided,
    }
}

/// The choice of a decision, as an explanation shows it.
fn choice(
    pool: &PoolState,
    routing: RoutingDecision,
    request: &Request,
    prefillers: &ReplicaSet,
) -> Choice {
    let ahead = pool.queue.len();
    let id_of = |replica| pool.replicas.id_of(replica);
    match routing {
        RoutingDecision::Dispatch(dispatch) => match id_of(dispatch.replica) {
            Some(replica) => Choice::Dispatch {
                replica,
                prefiller: {
                    let work = prompt_coverage(pool, request, &dispatch, replica);
                    let prefiller = select_prefiller(pool, request, work.uncached, prefillers);
                    prefiller.and_then(|prefiller| id_of(prefiller.replica))
                },
                reason: dispatch.reason,
            },
            None => Choice::Wait {
                replica: None,
                ahead,
            },
        },
        RoutingDecision::Forward(target) => Choice::Forward {
            peer: target.peer,
            reason: target.reason,
        },
        RoutingDecision::Reject(reason) => Choice::Reject { reason },
        RoutingDecision::Wait(preferred) => Choice::Wait {
            replica: preferred.and_then(id_of),
            ahead,
        },
    }
}
