//! Replicas that fail: since when, and why, for operators.
//!
//! The router knows that a replica fails and not why, and the log has long turned over when an operator looks. The log of
//! failures keeps one entry for each failing replica of the pool.

use std::collections::BTreeMap;
use std::fmt::Display;

use isotherm_router::{Availability, ReplicaId, ReplicaStatus};
use parking_lot::Mutex;

use crate::decision_log::unix_ms;

/// Most characters of a reason.
const REASON_CHARS_MAX: usize = 200;

/// The failing replicas of a pool.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<BTreeMap<ReplicaId, Failure>>);

/// The failure of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Start of the failure, in milliseconds since 1970.
    pub(crate) since_unix_ms: u64,
    /// Why a probe failed; `None` where requests show the failure.
    probe_error: Option<String>,
}

impl Failure {
    fn now() -> Self {
        Self {
            since_unix_ms: unix_ms(),
            probe_error: None,
        }
    }

    /// Says why a replica of this availability fails.
    pub(crate) fn reason(&self, availability: Availability) -> String {
        match (availability, &self.probe_error) {
            (Availability::Failing, _) => "its last requests failed".to_owned(),
            (Availability::Hung, _) => "it accepts requests, and no response comes back".to_owned(),
            (_, Some(error)) => error.clone(),
            (Availability::Stale, None) => "no probe has ended in time".to_owned(),
            _ => "its last probe failed".to_owned(),
        }
    }
}

impl FailureLog {
    /// Records a failed probe. A failure that goes on keeps its start.
    pub(crate) fn probe_failed(&self, id: ReplicaId, error: &dyn Display) {
        let mut text = error.to_string();
        let end = text.char_indices().nth(REASON_CHARS_MAX);
        text.truncate(end.map_or(text.len(), |(index, _)| index));
        let mut failures = self.0.lock();
        failures.entry(id).or_insert_with(Failure::now).probe_error = Some(text);
    }

    /// Records a good probe. It ends the failure of probes, and none that requests show.
    pub(crate) fn probe_succeeded(&self, id: ReplicaId) {
        let mut failures = self.0.lock();
        if failures
            .get(&id)
            .is_some_and(|failure| failure.probe_error.is_some())
        {
            failures.remove(&id);
        }
    }

    /// The failing replicas among all replicas of the pool. Forgets the others.
    pub(crate) fn look(&self, replicas: &[ReplicaStatus]) -> BTreeMap<ReplicaId, Failure> {
        let mut failures = self.0.lock();
        let failing = replicas
            .iter()
            .filter(|status| is_failure(status.availability));
        let mut found = BTreeMap::new();
        for status in failing {
            let failure = failures.remove(&status.id).unwrap_or_else(Failure::now);
            found.insert(status.id, failure);
        }
        failures.clone_from(&found);
        found
    }
}

/// Whether the availability is a failure, and not a full or a draining replica.
pub(crate) const fn is_failure(availability: Availability) -> bool {
    match availability {
        Availability::ProbeFailed
        | Availability::Stale
        | Availability::Failing
        | Availability::Hung => true,
        Availability::Available
        | Availability::Draining
        | Availability::NeverProbed
        | Availability::Pending
        | Availability::NoHeadroom
        | Availability::Full => false,
    }
}

#[cfg(test)]
mod tests {
    use isotherm_router::Role;

    use super::*;

    fn status(id: u32, availability: Availability) -> ReplicaStatus {
        ReplicaStatus {
            id: ReplicaId(id),
            name: format!("10.0.0.{id}:8000"),
            role: Role::Both,
            outstanding: 0,
            of_others: 0,
            load: None,
            probed: None,
            has_metrics: true,
            has_several_processes: false,
            headroom: None,
            prefix_bytes: 0,
            availability,
            draining: false,
            adapters: None,
        }
    }

    #[test]
    fn a_failure_keeps_its_start_and_tells_the_last_reason() {
        let log = FailureLog::default();
        let replicas = [
            status(1, Availability::ProbeFailed),
            status(2, Availability::Full),
        ];
        let first = log.look(&replicas)[&ReplicaId(1)].clone();
        assert_eq!(
            first.reason(Availability::ProbeFailed),
            "its last probe failed"
        );
        log.probe_failed(ReplicaId(1), &"connection refused");
        let again = log.look(&replicas);
        assert_eq!(again.len(), 1);
        let again = &again[&ReplicaId(1)];
        assert_eq!(again.since_unix_ms, first.since_unix_ms);
        assert_eq!(
            again.reason(Availability::ProbeFailed),
            "connection refused"
        );
    }

    #[test]
    fn a_good_probe_ends_a_failure_of_probes_and_none_of_requests() {
        let log = FailureLog::default();
        log.probe_failed(ReplicaId(1), &"gone");
        log.probe_succeeded(ReplicaId(1));
        assert!(log.0.lock().is_empty());
        let hung = [status(1, Availability::Hung)];
        let reason = log.look(&hung)[&ReplicaId(1)].reason(Availability::Hung);
        assert!(reason.contains("no response comes back"), "{reason}");
        log.probe_succeeded(ReplicaId(1));
        assert_eq!(log.0.lock().len(), 1);
    }

    #[test]
    fn replicas_that_left_or_recovered_are_forgotten() {
        let log = FailureLog::default();
        log.look(&[
            status(1, Availability::Failing),
            status(2, Availability::Failing),
        ]);
        assert!(log.look(&[status(1, Availability::Available)]).is_empty());
        assert!(log.0.lock().is_empty());
    }

    #[test]
    fn a_long_error_is_cut() {
        let log = FailureLog::default();
        log.probe_failed(ReplicaId(1), &"ü".repeat(5_000));
        let failures = log.look(&[status(1, Availability::ProbeFailed)]);
        let reason = failures[&ReplicaId(1)].reason(Availability::ProbeFailed);
        assert_eq!(reason.chars().count(), REASON_CHARS_MAX);
    }
}
