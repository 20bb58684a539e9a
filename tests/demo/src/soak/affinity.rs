//! The share of prompts that engines find in their caches, before the first fault and after each recovery.

use std::ops::Range;
use std::time::Duration;

use super::record::{RequestEnd, RequestRecord};
use super::violation::{Invariant, Violation};

/// Loss of the share that is not a lack of affinity.
const LOSS_MAX: f64 = 0.15;
/// Turns below which a share says nothing.
const TURNS_MIN: usize = 10;

/// The later turns of conversations that were sent in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Affinity {
    pub(super) turns: usize,
    /// Cached tokens over prompt tokens.
    pub(super) cached_share: f64,
}

impl Affinity {
    pub(super) fn of(records: &[RequestRecord], sent: &Range<Duration>) -> Self {
        let (mut turns, mut cached, mut prompt) = (0, 0.0, 0.0);
        let in_time = |record: &&RequestRecord| sent.contains(&record.sent);
        for record in records.iter().filter(in_time) {
            if let RequestEnd::Answered(tokens) = &record.ending
                && record.is_follow_up
            {
                turns += 1;
                cached += tokens.cached as f64;
                prompt += tokens.prompt as f64;
            }
        }
        Self {
            turns,
            cached_share: if turns > 0 { cached / prompt } else { 0.0 },
        }
    }
}

/// Checks that each recovery reached the share of the warm-up. `recovered` has the times after each round.
pub(super) fn check(
    records: &[RequestRecord],
    warm_up: &Range<Duration>,
    recovered: &[Range<Duration>],
) -> Vec<Violation> {
    let before = Affinity::of(records, warm_up);
    let violation = |time: &Range<Duration>| {
        let after = Affinity::of(records, time);
        let is_low = after.cached_share < before.cached_share - LOSS_MAX;
        let what = if before.turns < TURNS_MIN {
            format!("the warm-up has {} turns only", before.turns)
        } else if after.turns < TURNS_MIN {
            format!("after the recovery come {} turns only", after.turns)
        } else if is_low {
            format!(
                "{:.0} % of {} turns cached, {:.0} % in the warm-up",
                100.0 * after.cached_share,
                after.turns,
                100.0 * before.cached_share
            )
        } else {
            return None;
        };
        Some(Violation {
            invariant: Invariant::Affinity,
            at: time.start,
            what,
        })
    };
    recovered.iter().filter_map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::super::kind::RequestKind;
    use super::super::record::PromptTokens;
    use super::*;

    #[test]
    fn a_recovery_with_fewer_cached_tokens_than_the_warm_up_is_a_violation() {
        let record = |second: u64, cached| RequestRecord {
            id: String::new(),
            kind: RequestKind::Whole,
            envoy: 0,
            sent: Duration::from_secs(second),
            ended: Duration::from_secs(second),
            is_follow_up: true,
            ending: RequestEnd::Answered(PromptTokens {
                prompt: 100,
                cached,
            }),
        };
        let seconds =
            |range: Range<u64>| Duration::from_secs(range.start)..Duration::from_secs(range.end);
        let before = (0..20).map(|_| record(1, 90));
        let after = |cached| -> Vec<_> {
            let after = (0..20).map(|_| record(11, cached));
            before.clone().chain(after).collect()
        };
        let count = |records: &[_]| check(records, &seconds(0..5), &[seconds(10..15)]).len();
        assert_eq!(count(&after(80)), 0);
        assert_eq!(count(&after(70)), 1);
        assert_eq!(count(&[]), 1);
    }
}
