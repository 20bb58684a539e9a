//! Requests that are at peer regions, and how one that comes back is recognised.
//!
//! A request that comes back is a new one to the service: nothing in it says under which identity it left. But it asks for the
//! same, so it is found by its prompt, its session and the peer. Among equals it does not matter which one it is. What is
//! found gets its place in the order of arrival back, so that a detour costs no more than its time. What left through
//! a sibling is not found, and comes last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use isotherm_fingerprint::Fingerprint;

use crate::index::PredictionRecord;
use crate::peers::PeerHandle;
use crate::queue::QueueSeq;
use crate::replica::BreakerPermit;
use crate::{PeerId, Request, RequestId, SessionKey, Time};

/// A request that was forwarded to a peer.
#[derive(Debug)]
pub(super) struct ForwardedRequest {
    pub(super) handle: PeerHandle,
    pub(super) sent: BreakerPermit,
    /// When it left.
    pub(super) left: Time,
    pub(super) seq: QueueSeq,
    pub(super) arrived: Time,
    pub(super) fingerprint: Arc<Fingerprint>,
    pub(super) session: Option<SessionKey>,
    pub(super) matched_bytes: u32,
    pub(super) recorded: PredictionRecord,
    /// It came back, and goes on under another identity.
    pub(super) came_back: bool,
}

/// What two requests that ask for the same have in common.
type Likeness = (PeerId, Option<SessionKey>, u32, Option<u64>);

/// All requests that are at peer regions.
#[derive(Debug, Default)]
pub(super) struct ForwardedTable {
    forwarded: BTreeMap<RequestId, ForwardedRequest>,
    /// Those that have not come back, by what they ask for.
    alike: BTreeSet<(Likeness, RequestId)>,
}

impl ForwardedTable {
    pub(super) fn len(&self) -> usize {
        self.forwarded.len()
    }

    pub(super) fn contains(&self, id: RequestId) -> bool {
        self.forwarded.contains_key(&id)
    }

    pub(super) fn insert(&mut self, id: RequestId, forwarded: ForwardedRequest) {
        self.alike.insert((likeness_of(&forwarded), id));
        self.forwarded.insert(id, forwarded);
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<ForwardedRequest> {
        let forwarded = self.forwarded.remove(&id)?;
        self.alike.remove(&(likeness_of(&forwarded), id));
        Some(forwarded)
    }

    /// This request came back from this peer: as which one it had left, the oldest one of those like it.
    pub(super) fn came_back(
        &mut self,
        from: PeerId,
        request: &Request,
    ) -> Option<&ForwardedRequest> {
        let like = likeness(from, request.session, &request.fingerprint);
        let first = (like, RequestId(0));
        let matched = *self.alike.range(first..).next()?;
        if matched.0 != like {
            return None;
        }
        self.alike.remove(&matched);
        let forwarded = self.forwarded.get_mut(&matched.1)?;
        forwarded.came_back = true;
        Some(forwarded)
    }
}

fn likeness_of(forwarded: &ForwardedRequest) -> Likeness {
    likeness(
        forwarded.handle.id,
        forwarded.session,
        &forwarded.fingerprint,
    )
}

fn likeness(peer: PeerId, session: Option<SessionKey>, prompt: &Fingerprint) -> Likeness {
    let last = prompt.blocks().last().map(|block| block.hash);
    (peer, session, prompt.total_bytes(), last)
}
