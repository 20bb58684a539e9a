//! `dual_map`: two candidates by hash of the prefix, and the better one of them (`DualMap`, sections 3.2 to 3.4, A.1, A.7).
//!
//! [`hotness`] decides the length of the prefix that is the key, [`pair`] the two candidates, [`choice`] the better one, and
//! [`rebalance`] moves requests between the [`candidate_queues`]. A router outside the engines differs from the paper: the
//! work left in an engine is an estimate, and a request inside an engine does not migrate. `docs/design/dual-map.md` has the
//! rules.

mod candidate_queues;
mod choice;
mod hotness;
mod pair;
mod reassign;
mod rebalance;
mod stall_detector;

use std::collections::BTreeMap;

use isotherm_router::{
    Dispatch, Policy, PolicyEvent, PolicyRules, PrefixMatch, QueuedRequest, Reason, ReplicaIndex,
    Request, Selection, View,
};
use twox_hash::XxHash3_64;

use self::candidate_queues::CandidateQueues;
use self::hotness::Hotness;
use self::pair::{Pair, TwoRings};
use self::reassign::Recheck;
use self::stall_detector::StallDetector;
use crate::match_less_load;

/// `DualMap`'s two candidates, and moves between them.
#[derive(Debug, Default)]
pub struct DualMap {
    rings: TwoRings,
    hotness: Hotness,
    queues: CandidateQueues,
    recheck: Recheck,
    stalls: BTreeMap<ReplicaIndex, StallDetector>,
}

impl DualMap {
    /// The two candidates of a request, among the usable replicas that may serve it.
    fn pair(&self, request: &Request, view: &View<'_>) -> Option<Pair> {
        let queued = view.queued(request.id);
        let pinned = queued.and_then(QueuedRequest::pinned);
        let is_open = |replica| {
            is_usable(replica, view)
                && view.may_serve(request, replica)
                && pinned.is_none_or(|replicas| replicas.contains(&replica))
        };
        self.rings.pair(self.key(request), is_open)
    }

    /// The key of a request on the rings: its prefix, or its session where the prompt is too short for a block.
    fn key(&self, request: &Request) -> u64 {
        let key = self.hotness.key(request.fingerprint.blocks());
        key.unwrap_or_else(|| {
            let key = request.session.map_or(request.id.0, |session| session.0);
            XxHash3_64::oneshot(&key.to_le_bytes())
        })
    }

    /// The replica for a request: for a queued one its candidate, or the other one when it is late.
    fn chosen(&self, request: &Request, view: &View<'_>) -> Option<Dispatch> {
        let pair = self.pair(request, view)?;
        let seq = view.queued(request.id).map(QueuedRequest::seq);
        let entry_of = seq.and_then(|seq| Some((seq, self.queues.get(seq)?)));
        let Some((seq, entry)) = entry_of.filter(|(_, entry)| entry.pair == pair) else {
            return Some(self.choose(request, pair, view));
        };
        let replica = entry.replica;
        let other = pair.other(replica).filter(|other| {
            !view.candidates().contains(replica)
                && view.candidates().contains(*other)
                && self.saves(seq, *other, view).is_some()
        });
        Some(candidate_at(other.unwrap_or(replica), request, view))
    }
}

impl Policy for DualMap {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let chosen = self.chosen(request, view)?;
        Some(if view.candidates().contains(chosen.replica) {
            Selection::Dispatch(chosen)
        } else {
            Selection::WaitFor(chosen.replica)
        })
    }

    /// Selects the other candidate first.
    fn select_fallback(
        &self,
        request: &Request,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        let pair = self.pair(request, view);
        let is_open = |replica: &ReplicaIndex| {
            view.candidates().contains(*replica) && !failed.contains(replica)
        };
        pair.and_then(|pair| pair.iter().find(is_open))
            .or_else(|| view.least_loaded(failed))
    }

    /// The match less a little for the load, and one more for a candidate.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let pair = self.pair(request, view);
        let is_candidate = pair.is_some_and(|pair| pair.contains(replica));
        f64::from(u8::from(is_candidate)) + match_less_load(request, replica, view)
    }

    fn on_event(&mut self, event: PolicyEvent<'_>) {
        match event {
            PolicyEvent::Arrival(request, view) => {
                let replicas = view.staying().len();
                self.hotness.observe(request.fingerprint.blocks(), replicas);
                self.reassign(view);
                self.rebalance(request, view);
            }
            PolicyEvent::Enqueue(queued, view) => {
                if let Some(pair) = self.pair(queued.request(), view) {
                    self.assign(queued.seq(), queued.request(), pair, view);
                }
            }
            PolicyEvent::Dequeue(seq) => self.queues.remove(seq),
            PolicyEvent::ReplicaAdded(replica, name) => {
                self.rings.join(replica, name);
                self.recheck.rings_changed();
            }
            PolicyEvent::ReplicaRemoved(replica) => {
                self.rings.leave(replica);
                self.recheck.rings_changed();
                self.stalls.remove(&replica);
            }
            PolicyEvent::Probed(replica, load, sent) => {
                let stall = self.stalls.entry(replica).or_default();
                stall.on_probe(load, sent);
            }
            PolicyEvent::FirstToken(replica, at) => {
                if let Some(stall) = self.stalls.get_mut(&replica) {
                    stall.computed(at);
                }
            }
            _ => {}
        }
    }

    fn rules(&self) -> PolicyRules {
        PolicyRules {
            is_bound_to_candidates: true,
            ..PolicyRules::default()
        }
    }
}

/// Whether requests may wait for a replica. A replica on trial is available but not trusted.
fn is_usable(replica: ReplicaIndex, view: &View<'_>) -> bool {
    view.trusted().contains(replica) || view.candidates().contains(replica)
}

/// Estimated tokens that the chosen replica has to compute of a request.
fn uncached_on(request: &Request, chosen: &Dispatch) -> f64 {
    request.uncached_tokens(chosen.matched.map_or(0, |matched| matched.depth))
}

fn candidate_at(replica: ReplicaIndex, request: &Request, view: &View<'_>) -> Dispatch {
    let matched = view.match_on(request, replica);
    Dispatch {
        replica,
        reason: reason_of(&matched),
        matched: Some(matched),
    }
}

const fn reason_of(matched: &PrefixMatch) -> Reason {
    if matched.depth > 0 {
        Reason::Prefix
    } else {
        Reason::Ring
    }
}

#[cfg(test)]
mod tests;
