//! Processes of replicas: what a replica holds is lost when its process ends.
//!
//! The tables of sessions, answers and stored responses have one entry for each of hundreds of thousands of keys, and most may be of one
//! replica. An entry names the process that holds it. A restart then changes one number, and the entries of the ended
//! process are ignored until others replace them.

use std::collections::BTreeMap;

use crate::ReplicaId;

/// A process of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    replica: ReplicaId,
    /// Restarts of the replica before this process.
    restarts: u32,
}

/// The current process of each replica.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Restarts of the replicas that have restarted.
    restarts: BTreeMap<ReplicaId, u32>,
}

impl Processes {
    /// The current process of a replica.
    pub(super) fn current(&self, replica: ReplicaId) -> Process {
        let restarts = self.restarts.get(&replica).copied().unwrap_or_default();
        Process { replica, restarts }
    }

    /// The replica of a process; `None` once the process has ended.
    pub(super) fn replica_of(&self, process: Process) -> Option<ReplicaId> {
        (self.current(process.replica) == process).then_some(process.replica)
    }

    /// Registers that another process has taken the place of a replica's current one.
    pub(super) fn restart(&mut self, replica: ReplicaId) {
        let restarts = self.restarts.entry(replica).or_default();
        *restarts = restarts.wrapping_add(1);
    }

    /// Forgets a removed replica, whose identity no other replica gets.
    pub(super) fn remove(&mut self, replica: ReplicaId) {
        self.restarts.remove(&replica);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_process_stands_for_no_replica() {
        let mut processes = Processes::default();
        let first = processes.current(ReplicaId(7));
        let other = processes.current(ReplicaId(8));
        processes.restart(ReplicaId(7));
        let second = processes.current(ReplicaId(7));
        assert_eq!(processes.replica_of(first), None);
        assert_eq!(processes.replica_of(second), Some(ReplicaId(7)));
        assert_eq!(processes.replica_of(other), Some(ReplicaId(8)));
        processes.restart(ReplicaId(7));
        assert_eq!(processes.replica_of(second), None);
    }
}
