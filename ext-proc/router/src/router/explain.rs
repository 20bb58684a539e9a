//! Why a request would go where it would: the same questions to the same policy, with nothing changed.

use core::time::Duration;

use super::Router;
use crate::peers::Going;
use crate::policy::{Placement, least_loaded};
use crate::slots::Slot;
use crate::{Candidate, Choice, Explanation, Reason, RejectReason, Request, Time};

impl Router {
    /// What would happen to this request now, and why. Changes nothing.
    #[must_use]
    pub fn explain(&self, now: Time, request: &Request) -> Explanation {
        let now = self.now.max(now);
        let pinned = self.pinned(request);
        let available = self.fleet.available_at(now);
        let allowed = self.allowed(pinned.as_deref(), &available);
        let view = self.view(allowed.as_ref().unwrap_or(&available));
        let going = request.tried().and_then(|tried| {
            self.peers
                .choose_at(now, request, tried, self.config.policy)
        });
        let forward = |going: &Going| Choice::Forward {
            peer: going.peer,
            reason: going.reason,
        };
        let drawn = |going: &&Going| self.draws(going, request, &available);
        let choice = if let Some(reason) = self.refusal(request, pinned.as_deref()) {
            Choice::Reject { reason }
        } else if let Some(going) = going.as_ref().filter(drawn) {
            forward(going)
        } else {
            let waits = |slot: Option<Slot>| {
                let ahead = self.queue.len();
                let stays =
                    |going: &Going| self.is_better_here(going, request, Duration::ZERO, ahead);
                if let Some(going) = going.as_ref().filter(|_| available.is_empty())
                    && !stays(going)
                {
                    return forward(going);
                }
                if self.is_too_full_for(request) {
                    return Choice::Reject {
                        reason: RejectReason::RegionFull,
                    };
                }
                Choice::Wait {
                    replica: slot.and_then(|slot| self.fleet.id_of(slot)),
                    ahead,
                }
            };
            match self.policy.place(request, &view) {
                None => waits(None),
                Some(Placement::WaitFor(slot)) => {
                    // Where it would be refused instead of waiting, any free replica is better.
                    let is_full = self.queue.len() >= self.config.queue.length_max;
                    let refuses = self.is_too_full_for(request) || is_full;
                    let free = least_loaded(&view, &[]).filter(|_| refuses);
                    match free.and_then(|free| self.fleet.id_of(free)) {
                        Some(replica) => Choice::Dispatch {
                            replica,
                            reason: Reason::LeastLoaded,
                        },
                        None => waits(Some(slot)),
                    }
                }
                Some(Placement::Now { slot, reason, .. }) => self
                    .fleet
                    .id_of(slot)
                    .map_or(waits(None), |replica| Choice::Dispatch { replica, reason }),
            }
        };
        let mut candidates: Vec<Candidate> = self
            .fleet
            .everybody()
            .filter(|slot| pinned.as_ref().is_none_or(|pinned| pinned.contains(slot)))
            .filter_map(|slot| {
                let replica = self.fleet.get(slot)?;
                let found = self.index.deepest_of(request.fingerprint.blocks(), slot);
                Some(Candidate {
                    replica: replica.id,
                    name: replica.name.clone(),
                    matched_bytes: request.fingerprint.bytes_at(found.depth),
                    outstanding: replica.outstanding,
                    pending: replica.load().map(|load| load.pending),
                    availability: self.fleet.availability(slot, now)?,
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
