//! The requests at peers, and the recognition of a request that returns (`docs/design/forwarding.md`).
//!
//! Among equal requests the oldest one matches. A request that left through a sibling is not recognised and queues as a new one.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use isotherm_fingerprint::Fingerprint;

use crate::index::{PredictionRecord, PrefixMatch};
use crate::queue::QueueSeq;
use crate::replica::BreakerPermit;
use crate::replica_index::ReplicaIndex;
use crate::{PeerId, Reason, Request, RequestId, SessionKey, Time};

/// The selected peer of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ForwardTarget {
    pub(crate) slot: ReplicaIndex,
    pub(crate) peer: PeerId,
    pub(crate) reason: Reason,
    /// The longest prefix of the prompt that was forwarded to the peer before.
    pub(crate) matched: PrefixMatch,
    pub(crate) estimated_ttft: Duration,
}

/// Region that a request goes to.
#[derive(Debug)]
pub(crate) enum ChosenRegion {
    Own,
    Peer(ForwardTarget),
}

#[derive(Debug)]
pub(crate) struct ForwardedRequest {
    pub(crate) peer: PeerId,
    pub(crate) permit: BreakerPermit,
    pub(crate) forwarded_at: Time,
    pub(crate) seq: QueueSeq,
    pub(crate) arrived: Time,
    /// The time from which the request's waits counted: its arrival, or its promotion.
    pub(crate) entered: Time,
    pub(crate) fingerprint: Arc<Fingerprint>,
    pub(crate) session: Option<SessionKey>,
    pub(crate) recorded: PredictionRecord,
    /// Whether the request returned and continues under another request id.
    pub(crate) has_returned: bool,
}

impl ForwardedRequest {
    fn key(&self) -> MatchKey {
        match_key(self.peer, self.session, &self.fingerprint)
    }
}

/// Key of equal requests: peer, session, bytes of the prompt, and last block hash.
type MatchKey = (PeerId, Option<SessionKey>, u32, Option<u64>);

fn match_key(peer: PeerId, session: Option<SessionKey>, prompt: &Fingerprint) -> MatchKey {
    let last = prompt.blocks().last().map(|block| block.hash);
    (peer, session, prompt.total_bytes(), last)
}

#[derive(Debug, Default)]
pub(crate) struct ForwardedTable {
    requests: BTreeMap<RequestId, ForwardedRequest>,
    /// The requests that have not returned.
    by_key: BTreeSet<(MatchKey, RequestId)>,
}

impl ForwardedTable {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    pub(crate) fn insert(&mut self, id: RequestId, request: ForwardedRequest) {
        self.by_key.insert((request.key(), id));
        self.requests.insert(id, request);
    }

    pub(crate) fn remove(&mut self, id: RequestId) -> Option<ForwardedRequest> {
        let request = self.requests.remove(&id)?;
        self.by_key.remove(&(request.key(), id));
        Some(request)
    }

    /// Finds the oldest request that `peer` may have returned as `request`, and marks it as returned.
    pub(crate) fn take_returned(
        &mut self,
        peer: PeerId,
        request: &Request,
    ) -> Option<&ForwardedRequest> {
        let key = match_key(peer, request.session, &request.fingerprint);
        let first = *self.by_key.range((key, RequestId(0))..).next()?;
        if first.0 != key {
            return None;
        }
        self.by_key.remove(&first);
        let request = self.requests.get_mut(&first.1)?;
        request.has_returned = true;
        Some(request)
    }
}
