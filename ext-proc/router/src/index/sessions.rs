//! Where sessions were served last: a weak hint at what the index cannot see.
//!
//! A fingerprint has a block every few hundred bytes, an engine a block every 16 tokens. What a user's conversations have in
//! common, a name and a standing instruction, may lie between two blocks. A ring hash on the session profits from that
//! without knowing it. So: how much of what the index calls uncached is found in the cache all the same is learned twice, for
//! requests that record where their session was last and for the others; the difference is what the hint is affinity_share.

use super::recent::{RecencyKey, RecencyMap};
use super::table::HashMixer;
use crate::{ReplicaId, SessionKey};

/// How many sessions are remembered; about 40 bytes each.
const SESSIONS_MAX: usize = 16_384;
/// The share found where the session was last, before anything was measured: enough to be tried.
const HIT_SHARE_START: f64 = 0.2;
/// How much one measurement moves a share.
const LEARNING_RATE: f64 = 0.05;

/// The last replica of each of the latest sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    last: RecencyMap<SessionKey, ReplicaId>,
    hit_share_same: f64,
    hit_share_elsewhere: f64,
}

impl RecencyKey for SessionKey {
    fn mixed(&self, mixer: &HashMixer) -> u64 {
        mixer.mix(self.0)
    }
}

impl Sessions {
    /// The seed decides where things lie in memory, and nothing else.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            last: RecencyMap::new(SESSIONS_MAX, seed),
            hit_share_same: HIT_SHARE_START,
            hit_share_elsewhere: 0.0,
        }
    }

    /// A request of this session record to a replica; says whether its last one did, if there was one.
    pub(crate) fn record(&mut self, session: SessionKey, replica: ReplicaId) -> Option<bool> {
        self.last.put(session, replica).map(|last| last == replica)
    }

    /// Reads where [`Self::last`] begins to look, so that it is there by then.
    pub(crate) fn prefetch(&self, session: SessionKey) {
        self.last.prefetch(&session);
    }

    /// Where the session was last.
    pub(crate) fn last(&self, session: SessionKey) -> Option<ReplicaId> {
        self.last.get(&session).copied()
    }

    /// The share of what the index calls uncached that is found where the session was last, beyond what is found
    /// anywhere.
    pub(crate) const fn affinity_share(&self) -> f64 {
        (self.hit_share_same - self.hit_share_elsewhere).max(0.0)
    }

    /// Of what was called uncached, this share was found.
    pub(crate) fn learn(&mut self, is_same_replica: bool, share: f64) {
        let hit_share = if is_same_replica {
            &mut self.hit_share_same
        } else {
            &mut self.hit_share_elsewhere
        };
        *hit_share += LEARNING_RATE * (share.clamp(0.0, 1.0) - *hit_share);
    }
}
