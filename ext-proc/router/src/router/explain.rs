//! Why a request would go where it would: the same questions to the same policy, with nothing changed.

use core::time::Duration;

use super::Router;
use crate::forwarding::ForwardTarget;
use crate::policy::{Selection, least_loaded};
use crate::replica_index::ReplicaIndex;
use crate::{Candidate, Choice, Explanation, Reason, RejectReason, Request, Time};

impl Router {
    /// What would happen to this request now, and why. Changes nothing.
    #[must_use]
    pub fn explain(&self, now: Time, request: &Request) -> Explanation {
        let now = self.now.max(now);
        let pinned = self.pinned(request);
        let available = self.replicas.available_at(now);
        let allowed = self.allowed(pinned.as_deref(), &available);
        let view = self.view(allowed.as_ref().unwrap_or(&available));
        let target = request.tried().and_then(|tried| {
            let available = self.peers.available_at(now);
            let policy = self.config.policy;
            self.peers.select(request, tried, policy, &available)
        });
        let forward = |target: &ForwardTarget| Choice::Forward {
            peer: target.peer,
            reason: target.reason,
        };
        let cost = self.forwarding_cost();
        let drawn = |target: &&ForwardTarget| cost.is_warmer(target, request, &available);
        let choice = if let Some(reason) = self.refusal(request, pinned.as_deref()) {
            Choice::Reject { reason }
        } else if let Some(target) = target.as_ref().filter(drawn) {
            forward(target)
        } else {
            let waits = |slot: Option<ReplicaIndex>| {
                let ahead = self.queue.len();
                let stays = |target: &ForwardTarget| {
                    cost.is_waiting_cheaper(target, request, Duration::ZERO, ahead)
                };
                if let Some(target) = target.as_ref().filter(|_| available.is_empty())
                    && !stays(target)
                {
                    return forward(target);
                }
                if self.is_too_full_for(request) {
                    return Choice::Reject {
                        reason: RejectReason::RegionFull,
                    };
                }
                Choice::Wait {
                    replica: slot.and_then(|slot| self.replicas.id_of(slot)),
                    ahead,
                }
            };
            match self.policy.select_replica(request, &view) {
                None => waits(None),
                Some(Selection::WaitFor(slot)) => {
                    // Where it would be refused instead of waiting, any free replica is better.
                    let is_full = self.queue.len() >= self.config.queue.length_max;
                    let refuses = self.is_too_full_for(request) || is_full;
                    let free = least_loaded(&view, &[]).filter(|_| refuses);
                    match free.and_then(|free| self.replicas.id_of(free)) {
                        Some(replica) => Choice::Dispatch {
                            replica,
                            reason: Reason::LeastLoaded,
                        },
                        None => waits(Some(slot)),
                    }
                }
                Some(Selection::Dispatch { slot, reason, .. }) => self
                    .replicas
                    .id_of(slot)
                    .map_or(waits(None), |replica| Choice::Dispatch { replica, reason }),
            }
        };
        let mut candidates: Vec<Candidate> = self
            .replicas
            .all()
            .filter(|slot| pinned.as_ref().is_none_or(|pinned| pinned.contains(slot)))
            .filter_map(|slot| {
                let replica = self.replicas.get(slot)?;
                let matched = self.index.deepest_of(request.fingerprint.blocks(), slot);
                Some(Candidate {
                    replica: replica.id,
                    name: replica.name.clone(),
                    matched_bytes: request.fingerprint.bytes_at(matched.depth),
                    outstanding: replica.outstanding,
                    pending: replica.load().map(|load| load.pending),
                    availability: self.replicas.availability(slot, now)?,
                    score: self.policy.score(request, slot, &view),
                })
            })
            .collect();
        candidates.sort_by(|a, b| (&a.name, a.replica).cmp(&(&b.name, b.replica)));
        let peers = if request.tried().is_some() {
            self.peers.candidates(now, request)
        } else {
            Vec::new()
        };
        Explanation {
            candidates,
            peers,
            choice,
        }
    }
}
