//! The faults that happened, with their times since the start of the run.

use std::time::Duration;

use super::fault_plan::{FaultKind, Target};

/// A fault that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PastFault {
    pub(super) kind: FaultKind,
    pub(super) target: Target,
    pub(super) began: Duration,
    /// Time at which the fault was healed; `None` while it lasts.
    pub(super) healed: Option<Duration>,
}

/// The faults of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultLog(pub(super) Vec<PastFault>);

impl FaultLog {
    pub(super) fn begin(&mut self, kind: FaultKind, target: Target, now: Duration) {
        self.0.push(PastFault {
            kind,
            target,
            began: now,
            healed: None,
        });
    }

    pub(super) fn heal(&mut self, target: Target, now: Duration) {
        let open = self.0.iter_mut().rev().find(|fault| fault.target == target);
        if let Some(fault) = open {
            fault.healed.get_or_insert(now);
        }
    }

    /// The faults that were active at some time from `from` to `until`.
    pub(super) fn active(
        &self,
        from: Duration,
        until: Duration,
    ) -> impl Iterator<Item = &PastFault> {
        let is_active = move |fault: &&PastFault| {
            fault.began <= until && fault.healed.is_none_or(|healed| healed >= from)
        };
        self.0.iter().filter(is_active)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_fault_is_active_from_its_begin_until_it_is_healed() {
        let mut log = FaultLog::default();
        log.begin(FaultKind::ReplicaSlow, Target::Replica(1), s(10));
        let active = |log: &FaultLog, from, until| log.active(s(from), s(until)).count();
        assert_eq!(active(&log, 0, 9), 0);
        assert_eq!(active(&log, 0, 10), 1);
        assert_eq!(active(&log, 100, 200), 1);
        log.heal(Target::Replica(1), s(20));
        assert_eq!(active(&log, 20, 30), 1);
        assert_eq!(active(&log, 21, 30), 0);
    }
}
