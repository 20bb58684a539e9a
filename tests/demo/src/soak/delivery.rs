//! Invariants over the requests: each has an end that the faults explain, and none reaches engines more often than retries explain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::explanation::objection;
use super::fault_log::FaultLog;
use super::record::{RequestEnd, RequestRecord};
use super::violation::{Invariant, Violation};

/// Engines that get a request at most: Envoy retries once.
const ATTEMPTS_MAX: u32 = 2;

/// Checks how each request ended.
pub(super) fn check_endings(records: &[RequestRecord], faults: &FaultLog) -> Vec<Violation> {
    let violation = |record: &RequestRecord| {
        let what = objection(record, faults)?;
        let invariant = match record.ending {
            RequestEnd::Wrong(_) => Invariant::AnsweredOnce,
            _ => Invariant::Answered,
        };
        Some(Violation {
            invariant,
            at: record.ended,
            what,
        })
    };
    records.iter().filter_map(violation).collect()
}

/// Checks how often requests reached engines that have not been killed since: `received` has the counts of each engine.
pub(super) fn check_attempts(
    records: &[RequestRecord],
    received: &[BTreeMap<String, u32>],
    now: Duration,
) -> Vec<Violation> {
    let mut attempts: BTreeMap<&str, u32> = BTreeMap::new();
    for (id, count) in received.iter().flatten() {
        *attempts.entry(id).or_default() += count;
    }
    let sent: BTreeSet<&str> = records.iter().map(|record| record.id.as_str()).collect();
    let violation = |(id, count): (&str, u32)| {
        let what = match (sent.contains(id), count > ATTEMPTS_MAX) {
            (true, false) => return None,
            (true, true) => format!("{id} reached engines {count} times"),
            (false, _) => format!("engines got {id}, which no client sent"),
        };
        Some(Violation {
            invariant: Invariant::AnsweredOnce,
            at: now,
            what,
        })
    };
    attempts.into_iter().filter_map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::super::kind::RequestKind;
    use super::*;

    #[test]
    fn a_request_reaches_two_engines_at_most() {
        let record = RequestRecord {
            id: "a".into(),
            kind: RequestKind::Whole,
            envoy: 0,
            sent: Duration::ZERO,
            ended: Duration::ZERO,
            is_follow_up: false,
            ending: RequestEnd::Aborted,
        };
        let received = |counts: &[u32]| -> Vec<_> {
            let counts = counts.iter();
            counts
                .map(|count| BTreeMap::from([("a".to_owned(), *count)]))
                .collect()
        };
        let records = [record];
        let violations = |counts| check_attempts(&records, &received(counts), Duration::ZERO).len();
        assert_eq!(violations(&[1, 1]), 0);
        assert_eq!(violations(&[2, 1]), 1);
        assert_eq!(
            check_attempts(&[], &received(&[1]), Duration::ZERO).len(),
            1
        );
    }
}
