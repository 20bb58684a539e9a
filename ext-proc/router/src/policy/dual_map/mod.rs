//! `dual_map`: two candidates by hash of the prefix, and the better one of them (`DualMap`, sections 3.2 to 3.4, A.1, A.7).
//!
//! - [`hotness`]: how much of the prompt is the key.
//! - [`pair`]: two rings give the key its two candidates, the same for everybody who shares it.
//! - [`choice`]: the one that has more of the prompt, as long as what it still has to compute fits the time that a first
//!   token may take; then the one with less to do. Among equals always that one.
//! - [`lines`] and [`rebalance`]: who finds no room at its candidate waits for it in the router. When both candidates of
//!   an arrival have too much to do, those who wait for them move to their other candidate, largest benefit first.
//!
//! A request never goes to a third replica, however idle, unless the router's own bounds on fairness say so. That is
//! the policy: it keeps every prefix on two replicas.
//!
//! Differs from the paper where a router outside the engines has to: what an engine still has to compute is an estimate, and
//! what waits inside an engine is not migrated any more. With selective pushing that is one request at most; with `blind`
//! nothing waits here, and there is nothing to rebalance.

mod ablation;
mod choice;
mod hotness;
mod lines;
mod pair;
mod rebalance;

use twox_hash::XxHash3_64;

#[cfg_attr(
    not(feature = "research"),
    expect(unreachable_pub, reason = "for experiments only")
)]
pub use ablation::{Ablation, CandidateRule};

use self::hotness::Hotness;
use self::lines::CandidateQueues;
use self::pair::{Pair, TwoRings};
use super::{
    DelayedRequests, NextRequest, Policy, Selection, View, least_loaded, match_less_load,
    may_serve, uncached_tokens,
};
use crate::index::PrefixMatch;
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// How often one that waits may see a later one go to any replica. In lines of their own most of those take nothing from it:
/// with the usual 64, a pool of eight would tear every conversation from its two replicas that waits behind eight others.
const OVERTAKES_MAX: u32 = 256;

/// The better of two candidates.
#[derive(Debug, Default)]
pub(super) struct DualMap {
    ablation: Ablation,
    rings: TwoRings,
    hotness: Hotness,
    lines: CandidateQueues,
    /// Whether replicas joined or left since the lines were looked through.
    rings_changed: bool,
}

/// One of the candidates, chosen.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    slot: ReplicaIndex,
    reason: Reason,
    matched: PrefixMatch,
}

impl DualMap {
    /// The two candidates of a request, among those that it may use and that are well.
    fn pair(&self, request: &Request, view: &View<'_>) -> Option<Pair> {
        let seq = self.lines.seq_of(request.id);
        let entry = seq.and_then(|seq| self.lines.get(seq));
        let pinned = entry.and_then(|entry| entry.pinned.as_deref());
        let is_open = |slot| {
            is_well(slot, view)
                && may_serve(request, slot, view)
                && pinned.is_none_or(|slots| slots.contains(&slot))
        };
        self.rings.pair(self.key(request), is_open)
    }

    /// What the rings are asked for: the prefix; for a prompt too short to have one, the session.
    fn key(&self, request: &Request) -> u64 {
        let key = self.hotness.key(request.fingerprint.blocks());
        key.unwrap_or_else(|| {
            let key = request.session.map_or(request.id.0, |session| session.0);
            XxHash3_64::oneshot(&key.to_le_bytes())
        })
    }

    /// Where a request goes: one that waits to where it was put, or to its other candidate when it is late. When its
    /// candidates have changed since, it is chosen anew.
    fn chosen(&self, request: &Request, view: &View<'_>) -> Option<Chosen> {
        let pair = self.pair(request, view)?;
        let seq = self.lines.seq_of(request.id);
        let stands = seq.and_then(|seq| Some((seq, self.lines.get(seq)?)));
        let Some((seq, entry)) = stands.filter(|(_, entry)| entry.pair == pair) else {
            return Some(self.choose(request, pair, view));
        };
        let slot = entry.slot;
        let other = pair.other(slot).filter(|other| {
            !view.candidates.contains(slot)
                && view.candidates.contains(*other)
                && self.saves(seq, *other, view).is_some()
        });
        Some(candidate_at(other.unwrap_or(slot), request, view))
    }
}

impl Policy for DualMap {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let Chosen {
            slot,
            reason,
            matched,
        } = self.chosen(request, view)?;
        Some(if view.candidates.contains(slot) {
            Selection::Dispatch {
                slot,
                reason,
                matched: Some(matched),
            }
        } else {
            Selection::WaitFor(slot)
        })
    }

    fn on_arrival(&mut self, request: &Request, view: &View<'_>) {
        let replicas = view.replicas.staying().len();
        self.hotness.observe(request.fingerprint.blocks(), replicas);
        self.rehouse(view);
        self.rebalance(request, view);
    }

    fn on_enqueue(&mut self, queued: &QueuedRequest, view: &View<'_>) {
        if let Some(pair) = self.pair(&queued.request, view) {
            let chosen = self.choose(&queued.request, pair, view);
            let tokens = uncached_tokens(&queued.request, chosen.matched.depth);
            self.lines.push(queued, pair, chosen.slot, tokens);
        }
    }

    fn on_dequeue(&mut self, seq: QueueSeq) {
        self.lines.remove(seq);
    }

    /// The oldest in its own line. With nobody there, whoever is late elsewhere and would be in time here, the one with
    /// the largest benefit; then whoever has nobody to wait for.
    fn select_request(
        &self,
        slot: ReplicaIndex,
        queued: &mut dyn Iterator<Item = (QueueSeq, &QueuedRequest)>,
        view: &View<'_>,
        _declined: &mut DelayedRequests,
    ) -> Option<NextRequest> {
        let goes_here = |request: &Request| {
            let chosen = self.chosen(request, view);
            chosen.filter(|chosen| chosen.slot == slot)
        };
        let own = self.lines.first(slot);
        let own = own.and_then(|seq| Some((seq, self.lines.get(seq)?)));
        if let Some((seq, entry)) = own
            && let Some(chosen) = goes_here(&entry.request)
        {
            return Some(here(seq, &chosen));
        }
        let mut best: Option<(f64, QueueSeq, Chosen)> = None;
        for (seq, queued) in queued {
            let Some(chosen) = goes_here(&queued.request) else {
                continue;
            };
            let benefit_s = self.saves(seq, slot, view).unwrap_or_default();
            if best.is_none_or(|(best_s, ..)| benefit_s > best_s) {
                best = Some((benefit_s, seq, chosen));
            }
        }
        best.map(|(_, seq, chosen)| here(seq, &chosen))
    }

    fn max_overtakes(&self) -> u32 {
        OVERTAKES_MAX
    }

    /// The other candidate first.
    fn select_fallback(
        &self,
        request: &Request,
        _found: Option<&PrefixMatch>,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        let pair = self.pair(request, view);
        let is_open =
            |slot: &ReplicaIndex| view.candidates.contains(*slot) && !failed.contains(slot);
        pair.and_then(|pair| pair.iter().find(is_open))
            .or_else(|| least_loaded(view, failed))
    }

    /// What it has of the prompt, and one more if it is a candidate.
    fn score(&self, request: &Request, slot: ReplicaIndex, view: &View<'_>) -> f64 {
        let pair = self.pair(request, view);
        let is_candidate = pair.is_some_and(|pair| pair.contains(slot));
        f64::from(u8::from(is_candidate)) + match_less_load(request, slot, view)
    }

    fn on_replica_added(&mut self, slot: ReplicaIndex, name: &str) {
        self.rings.join(slot, name);
        self.rings_changed = true;
    }

    fn on_replica_removed(&mut self, slot: ReplicaIndex, name: &str) {
        self.rings.leave(slot, name);
        self.rings_changed = true;
    }

    #[cfg(feature = "research")]
    fn ablate(&mut self, ablation: Ablation) {
        self.ablation = ablation;
    }
}

/// Whether requests may wait for a replica. One that is on trial is available and not trusted.
fn is_well(slot: ReplicaIndex, view: &View<'_>) -> bool {
    view.replicas.trusted().contains(slot) || view.candidates.contains(slot)
}

/// One that waits goes to the freed replica.
const fn here(seq: QueueSeq, chosen: &Chosen) -> NextRequest {
    NextRequest::ThisReplica {
        seq,
        reason: chosen.reason,
        matched: Some(chosen.matched),
    }
}

/// A candidate that is settled on, with what it has of the prompt.
fn candidate_at(slot: ReplicaIndex, request: &Request, view: &View<'_>) -> Chosen {
    let matched = view.index.deepest_of(request.fingerprint.blocks(), slot);
    Chosen {
        slot,
        reason: reason_of(&matched),
        matched,
    }
}

/// Why a candidate with such a match was chosen.
const fn reason_of(matched: &PrefixMatch) -> Reason {
    if matched.depth > 0 {
        Reason::Prefix
    } else {
        Reason::Ring
    }
}

#[cfg(test)]
mod tests;
