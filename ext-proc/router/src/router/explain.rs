//! Explanations of a decision, with the replicas and peers that it compared. An explanation changes nothing.

use super::Router;
use super::decide::{AvailableTargets, RoutingDecision, allowed};
use crate::queue::QueueSeq;
use crate::replica_index::ReplicaSet;
use crate::{Candidate, Choice, Explanation, Request, Time};

impl Router {
    /// Explains the decision on a request that would arrive now.
    pub fn explain(&self, now: Time, request: &Request) -> Explanation {
        let now = self.pool.now.max(now);
        let queued = self.queued(request.clone(), QueueSeq::LAST, self.pool.now, false);
        let request = &queued.request;
        let replicas = self.pool.replicas.available_at(true, now);
        let at = AvailableTargets {
            replicas: &replicas,
            peers: &self.pool.peers.available_at(now),
        };
        let prefillers = self.pool.replicas.available_at(false, now);
        let choice = self.choice(self.decide(&queued, at), request, &prefillers);
        let peers = if request.tried().is_some() {
            self.pool.peers.candidates(now, request)
        } else {
            Vec::new()
        };
        let allowed = allowed(queued.pinned.as_deref(), &replicas);
        let view = self.pool.view_of(&queued, &allowed);
        let mut candidates: Vec<Candidate> = self
            .pool
            .replicas
            .all()
            .filter(|index| view.may_serve(request, *index))
            .filter_map(|index| {
                let replica = self.pool.replicas.get(index)?;
                let blocks = request.fingerprint.blocks();
                let matched = self.pool.index.deepest_of(blocks, index);
                Some(Candidate {
                    replica: replica.id,
                    name: replica.name.clone(),
                    role: replica.role,
                    matched_bytes: request.fingerprint.bytes_at(matched.depth),
                    outstanding: replica.outstanding(),
                    pending: replica.load().map(|load| load.pending),
                    availability: self.pool.replicas.availability(index, now)?,
                    adapter: request
                        .adapter
                        .map(|adapter| self.pool.adapters.state(index, adapter)),
                    score: if replica.role.has_requests() {
                        self.policy.score(request, index, &view)
                    } else {
                        self.score_prefiller(request, index, &view)
                    },
                })
            })
            .collect();
        candidates.sort_by(|a, b| (&a.name, a.replica).cmp(&(&b.name, b.replica)));
        Explanation {
            candidates,
            peers,
            choice,
        }
    }

    fn choice(
        &self,
        routing: RoutingDecision,
        request: &Request,
        prefillers: &ReplicaSet,
    ) -> Choice {
        let ahead = self.pool.queue.len();
        let id_of = |replica| self.pool.replicas.id_of(replica);
        match routing {
            RoutingDecision::Dispatch(dispatch) => match id_of(dispatch.replica) {
                Some(replica) => Choice::Dispatch {
                    replica,
                    prefiller: self
                        .prefiller_of(request, &dispatch, prefillers)
                        .and_then(id_of),
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
}
