//! Queued requests that may leave for a peer, by the peers that they have returned from: nearly always none.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::QueueSeq;
use crate::{PeerId, Request};

/// The peers that a request has returned from, in order of id.
type TriedPeers = SmallVec<[PeerId; 2]>;

#[derive(Debug, Default)]
pub(super) struct ForwardableSet {
    by_tried: BTreeMap<TriedPeers, BTreeSet<QueueSeq>>,
}

impl ForwardableSet {
    pub(super) fn insert(&mut self, seq: QueueSeq, request: &Request) {
        if let Some(tried) = tried_of(request) {
            self.by_tried.entry(tried).or_default().insert(seq);
        }
    }

    pub(super) fn remove(&mut self, seq: QueueSeq, request: &Request) {
        if let Some(tried) = tried_of(request)
            && let Some(waiting) = self.by_tried.get_mut(&tried)
        {
            waiting.remove(&seq);
            if waiting.is_empty() {
                self.by_tried.remove(&tried);
            }
        }
    }

    /// The oldest request at or behind `from`; `is_open_to` says whether a peer is left for a set of tried ones.
    pub(super) fn next(
        &self,
        from: QueueSeq,
        is_open_to: impl Fn(&[PeerId]) -> bool,
    ) -> Option<QueueSeq> {
        self.by_tried
            .iter()
            .filter(|(tried, _)| is_open_to(tried))
            .filter_map(|(_, waiting)| waiting.range(from..).next().copied())
            .min()
    }
}

/// The peers that a request has returned from, if it may be forwarded.
fn tried_of(request: &Request) -> Option<TriedPeers> {
    let mut tried = TriedPeers::from_slice(request.tried()?);
    tried.sort_unstable();
    tried.dedup();
    Some(tried)
}
