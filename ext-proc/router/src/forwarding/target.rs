//! The selection of the peer that a request is forwarded to.
//!
//! `docs/design/forwarding.md` has the order of the candidates and the rejected rules.

use core::cmp::Reverse;

use super::forwarded::ForwardTarget;
use super::peer_table::PeerTable;
use crate::constant::constants;
use crate::index::PrefixMatch;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{PeerId, PromptCost, Reason, RegionChoice, Request};

constants! {
    /// Smallest matched share of the prompt that selects a peer by its prefix.
    MATCH_SHARE_MIN: f64 = 0.5;
}

impl PeerTable {
    /// Selects a peer for `request` among the `available` ones that were not tried.
    pub(crate) fn select(
        &self,
        request: &Request,
        tried: &[PeerId],
        ignores_prefixes: bool,
        available: &ReplicaSet,
    ) -> Option<ForwardTarget> {
        let candidates = &*self.untried(available, tried);
        if candidates.is_empty() {
            return None;
        }
        let blocks = request.fingerprint.blocks();
        let (slot, reason, matched) = if ignores_prefixes {
            let slot = self.ring.walk(request, candidates, &[])?;
            (slot, Reason::Ring, None)
        } else {
            let matched = self.index.deepest(blocks, candidates);
            let holders = self.index.targets(&matched, candidates);
            let warm = (request.fingerprint.share_at(matched.depth) >= MATCH_SHARE_MIN.get())
                .then(|| self.soonest(holders))
                .flatten();
            match warm {
                Some(slot) => (slot, Reason::Prefix, Some(matched)),
                None => (self.soonest(candidates.iter())?, Reason::Soonest, None),
            }
        };
        let matched = matched.unwrap_or_else(|| self.index.deepest_of(blocks, slot));
        self.target(slot, reason, matched)
    }

    /// The cheapest of the available peers that report costs and were not tried, with the cost. `price` takes the costs that a peer
    /// reports, the tokens that the peer has to compute, and the wait before it computes them, in seconds.
    pub(crate) fn cheapest(
        &self,
        request: &Request,
        tried: &[PeerId],
        available: &ReplicaSet,
        price: impl Fn(&PromptCost, f64, f64) -> f64,
    ) -> Option<(f64, ForwardTarget)> {
        let candidates = self.untried(available, tried);
        let blocks = request.fingerprint.blocks();
        let priced = candidates.iter().filter_map(|slot| {
            let prompt_cost = self.get(slot)?.prompt_cost()?;
            let matched = self.index.deepest_of(blocks, slot);
            let tokens = request.uncached_tokens(matched.depth);
            let is_warm = request.fingerprint.share_at(matched.depth) >= MATCH_SHARE_MIN.get();
            let reason = if is_warm {
                Reason::Prefix
            } else {
                Reason::Soonest
            };
            let target = self.target(slot, reason, matched)?;
            let wait_s = target.estimated_ttft.as_secs_f64();
            Some((price(&prompt_cost, tokens, wait_s), target))
        });
        priced.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The first untried peer, by round trip, whose utilisation is below the threshold of [`RegionChoice`]; else the least utilised
    /// one, if it is less utilised than the own region.
    pub(crate) fn by_utilisation(
        &self,
        request: &Request,
        tried: &[PeerId],
        available: &ReplicaSet,
        own: Option<f64>,
    ) -> Option<ForwardTarget> {
        let candidates = self.untried(available, tried);
        let mut peers: Vec<_> = candidates
            .iter()
            .filter_map(|slot| {
                let peer = self.get(slot)?;
                Some((peer.round_trip()?, peer.id, slot, peer.utilisation()?))
            })
            .collect();
        peers.sort_by_key(|(round_trip, id, ..)| (*round_trip, *id));
        let has_spare = |(.., used): &&(_, _, _, f64)| *used < RegionChoice::UTILISATION_MAX;
        let least = || {
            let least = peers.iter().min_by(|a, b| a.3.total_cmp(&b.3));
            least.filter(|(.., used)| own.is_none_or(|own| *used < own))
        };
        let (_, _, slot, _) = peers.iter().find(has_spare).or_else(least)?;
        let blocks = request.fingerprint.blocks();
        let matched = self.index.deepest_of(blocks, *slot);
        self.target(*slot, Reason::Utilisation, matched)
    }

    fn target(
        &self,
        slot: ReplicaIndex,
        reason: Reason,
        matched: PrefixMatch,
    ) -> Option<ForwardTarget> {
        let peer = self.get(slot)?;
        Some(ForwardTarget {
            slot,
            peer: peer.id,
            reason,
            matched,
            estimated_ttft: peer.estimated_ttft()?,
        })
    }

    /// The peer with the smallest estimated time to first token; among equals the one with the most free capacity left.
    fn soonest(&self, candidates: impl Iterator<Item = ReplicaIndex>) -> Option<ReplicaIndex> {
        let key = |slot| {
            let peer = self.get(slot)?;
            let ttft = peer.estimated_ttft()?;
            Some((ttft, Reverse(peer.free_capacity_left()), peer.id, slot))
        };
        let (.., slot) = candidates.filter_map(key).min()?;
        Some(slot)
    }
}
