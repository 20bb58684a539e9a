//! The last replica of each session: a weak hint at cached text that the index cannot see, between two blocks.
//!
//! Of the tokens that the index takes for uncached, the share that engines find is learned twice: for requests that follow
//! their session, and for the others. The difference is the value of the hint.

use super::process::{Process, Processes};
use super::recent::{RecencyKey, RecencyMap};
use super::table::HashMixer;
use crate::constant::constants;
use crate::{ReplicaId, SessionKey};

/// Share on the session's last replica before the first measurement: enough to be tried.
const HIT_SHARE_START: f64 = 0.2;
constants! {
    LEARNING_RATE: f64 = 0.05;
}

/// The last replica of each of the latest sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    last: RecencyMap<SessionKey, Process>,
    processes: Processes,
    hit_share_same: f64,
    hit_share_elsewhere: f64,
}

impl RecencyKey for SessionKey {
    fn mixed(&self, mixer: &HashMixer) -> u64 {
        mixer.mix(self.0)
    }
}

impl Sessions {
    /// No sessions, and room for so many bytes of them, about 48 each. The seed decides where entries lie in memory.
    pub(crate) fn new(bytes_max: usize, seed: u64) -> Self {
        Self {
            last: RecencyMap::new(bytes_max, seed),
            processes: Processes::default(),
            hit_share_same: HIT_SHARE_START,
            hit_share_elsewhere: 0.0,
        }
    }

    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.last.set_bytes_max(bytes_max);
    }

    /// Records the replica of a session's request. Returns whether the session's last request had the same replica.
    pub(crate) fn record(&mut self, session: SessionKey, replica: ReplicaId) -> Option<bool> {
        let process = self.processes.current(replica);
        let last = self.last.put(session, process)?;
        Some(self.processes.replica_of(last)? == replica)
    }

    /// Forgets which sessions the ended process of a replica served.
    pub(crate) fn on_restart(&mut self, replica: ReplicaId) {
        self.processes.restart(replica);
    }

    /// Forgets a removed replica.
    pub(crate) fn removed(&mut self, replica: ReplicaId) {
        self.processes.remove(replica);
    }

    /// Prefetches what [`Self::last`] reads.
    pub(crate) fn prefetch(&self, session: SessionKey) {
        self.last.prefetch(&session);
    }

    pub(crate) fn last(&self, session: SessionKey) -> Option<ReplicaId> {
        self.processes.replica_of(*self.last.get(&session)?)
    }

    /// Share of "uncached" tokens that engines find on the session's last replica, beyond the share on other replicas.
    pub(crate) const fn affinity_share(&self) -> f64 {
        (self.hit_share_same - self.hit_share_elsewhere).max(0.0)
    }

    /// Learns the share of "uncached" tokens that an engine found.
    pub(crate) fn learn(&mut self, is_same_replica: bool, share: f64) {
        let hit_share = if is_same_replica {
            &mut self.hit_share_same
        } else {
            &mut self.hit_share_elsewhere
        };
        *hit_share += LEARNING_RATE.get() * (share.clamp(0.0, 1.0) - *hit_share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_whose_last_replica_restarted_is_new_until_its_next_request() {
        let (replica, session) = (ReplicaId(1), SessionKey(5));
        let mut sessions = Sessions::new(1 << 16, 1);
        assert_eq!(sessions.record(session, replica), None);
        assert_eq!(sessions.record(session, replica), Some(true));
        sessions.on_restart(replica);
        assert_eq!(sessions.last(session), None);
        assert_eq!(sessions.record(session, replica), None);
        assert_eq!(sessions.last(session), Some(replica));
        assert_eq!(sessions.record(session, ReplicaId(2)), Some(false));
    }
}
