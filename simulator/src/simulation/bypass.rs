//! Requests that another router serves on the same engines: it sends them to the replicas in turn.

use super::Simulation;
use super::replica::State;
use crate::prompt::mix;

/// Keeps the choice of the sessions apart from other hashes.
const BYPASS: u64 = 0x6279_7061_7373_0001;

impl Simulation<'_> {
    /// Whether another router serves a session.
    pub(super) fn is_bypass(&self, session_key: u64) -> bool {
        let part = (mix(BYPASS, session_key) >> 11) as f64 / (1_u64 << 53) as f64;
        part < self.setup.bypass_share
    }

    /// The replica of a region whose turn it is.
    pub(super) fn next_in_turn(&mut self, region: usize) -> Option<u32> {
        let is_member = |number: &u32| {
            let replica = &self.replicas[*number];
            replica.region == region && replica.state == State::Member
        };
        let members: Vec<u32> = self.replicas.numbers().filter(is_member).collect();
        let at = self.bypass_turn.checked_rem(members.len())?;
        self.bypass_turn = self.bypass_turn.wrapping_add(1);
        members.get(at).copied()
    }
}
