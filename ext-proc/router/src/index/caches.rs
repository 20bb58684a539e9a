//! Beliefs about what the replicas of a pool cache: prompts, answers, sessions, stored responses.

use isotherm_fingerprint::Fingerprint;

use super::claims::OrphanClaims;
use super::forget::ForgetQueue;
use super::{
    Answers, CachedShare, PredictionRecord, PrefixIndex, Sessions, StoredResponses, TokenLength,
};
use crate::replica_index::ReplicaIndex;
use crate::{IndexLimits, ReplicaId};

/// Sessions, and answers, each get one part in so many of the memory for indexes.
const SESSIONS_SHARE: usize = 16;
/// The index over peers gets one part in so many of the rest, since only overflow goes to peers.
const PEER_INDEX_SHARE: usize = 4;

/// Beliefs about the caches of a pool's replicas.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) index: PrefixIndex,
    pub(crate) answers: Answers,
    pub(crate) sessions: Sessions,
    pub(crate) stored: StoredResponses,
    pub(crate) cached_share: CachedShare,
    pub(crate) token_length: TokenLength,
    pub(crate) orphans: OrphanClaims,
    pub(crate) forgetting: ForgetQueue,
}

impl Caches {
    /// Nothing is cached. The seed decides where entries lie in memory.
    pub(crate) fn new(limits: IndexLimits, seed: u64) -> Self {
        let sessions = sessions_bytes(limits);
        let [prefixes, _] = index_limits(limits, false);
        Self {
            index: PrefixIndex::new(prefixes, seed),
            answers: Answers::new(sessions, seed),
            sessions: Sessions::new(sessions, seed),
            stored: StoredResponses::new(seed),
            cached_share: CachedShare::default(),
            token_length: TokenLength::default(),
            orphans: OrphanClaims::default(),
            forgetting: ForgetQueue::default(),
        }
    }

    /// Divides the memory for indexes anew.
    pub(crate) fn set_limits(&mut self, limits: IndexLimits, has_peers: bool) {
        let sessions = sessions_bytes(limits);
        let [prefixes, _] = index_limits(limits, has_peers);
        self.index.set_limits(prefixes);
        self.answers.set_bytes_max(sessions);
        self.sessions.set_bytes_max(sessions);
    }

    /// Limits a replica's part of the index to the size of its cache.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of a positive size; saturates"
    )]
    pub(crate) fn set_budget(&mut self, replica: ReplicaIndex, kv_capacity_tokens: u64) {
        let bytes = (kv_capacity_tokens as f64 * self.token_length.bytes()) as u64;
        self.index.set_budget(replica, Some(bytes));
    }

    /// Takes back what a dispatch recorded of a prompt for a replica that has computed nothing, or something else.
    pub(crate) fn take_back(
        &mut self,
        replica: ReplicaIndex,
        prompt: &Fingerprint,
        recorded: &PredictionRecord,
    ) {
        let (index, blocks) = (&mut self.index, prompt.blocks());
        self.orphans.take_back(index, replica, blocks, recorded);
    }

    /// Forgets what the ended process of a replica held.
    pub(crate) fn on_restart(&mut self, id: ReplicaId, replica: ReplicaIndex) {
        self.stored.on_restart(id);
        self.on_emptied(id, replica);
    }

    /// Forgets what the cache of a replica held.
    pub(crate) fn on_emptied(&mut self, id: ReplicaId, replica: ReplicaIndex) {
        self.answers.on_restart(id);
        self.sessions.on_restart(id);
        let tick = self.index.last_tick();
        self.forgetting.add_empty(replica, tick, tick);
        self.forget_more();
    }

    /// Forgets a removed replica, but for its entries in the index.
    pub(crate) fn remove(&mut self, id: ReplicaId, replica: ReplicaIndex) {
        self.answers.removed(id);
        self.sessions.removed(id);
        self.stored.removed(id);
        self.forgetting.remove(replica);
        self.orphans.remove(replica);
    }

    /// Forgets the next part of what is to be forgotten.
    pub(crate) fn forget_more(&mut self) {
        self.forgetting.forget_more(&mut self.index);
    }

    /// Whether entries are still to be forgotten or evicted.
    pub(crate) fn is_pending(&self) -> bool {
        self.forgetting.is_pending() || self.index.has_excess()
    }
}

/// Memory for sessions, and for answers.
const fn sessions_bytes(limits: IndexLimits) -> usize {
    limits.bytes_max / SESSIONS_SHARE
}

/// Limits of the index over replicas, and of the one over peers.
pub(crate) fn index_limits(limits: IndexLimits, has_peers: bool) -> [IndexLimits; 2] {
    let rest = limits.bytes_max - 2 * sessions_bytes(limits);
    let peers = if has_peers {
        rest / PEER_INDEX_SHARE
    } else {
        0
    };
    let IndexLimits { eviction, .. } = limits;
    let of = |bytes_max| IndexLimits {
        bytes_max,
        eviction,
    };
    [of(rest - peers), of(peers)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Eviction;

    #[test]
    fn sessions_and_answers_take_their_part_of_the_memory_for_indexes() {
        let limits = IndexLimits {
            bytes_max: 1 << 28,
            eviction: Eviction::Lru,
        };
        assert_eq!(sessions_bytes(limits), 1 << 24);
        let [alone, none] = index_limits(limits, false).map(|limits| limits.bytes_max);
        assert_eq!((alone, none), ((1 << 28) - (1 << 25), 0));
        let [prefixes, peers] = index_limits(limits, true).map(|limits| limits.bytes_max);
        assert_eq!((prefixes + peers, prefixes), (alone, 3 * peers));
    }
}
