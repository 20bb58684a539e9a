//! Promotion: lines that a worker sends as interactive requests, so that their batches end in time.
//!
//! Two rules. SageServe's queue manager (section 6.2 of its paper) gives a request priority 0 once it is ten hours old, of
//! the 24 hours that it has: 10/24 of the window here. And a batch is promoted earlier, as far as the work due before a
//! time T does not fit the spare capacity until T: the demand bound of earliest-deadline-first scheduling. Of that
//! excess, only as many lines are promoted as exceed the capacity, so the rest stays on capacity that costs interactive
//! requests nothing.
//!
//! No line is promoted before its batch is [`PROMOTED_AGE_MS_MIN`] old: a short window would turn batch work into interactive
//! work at once. The worker bounds the promoted lines of each owner, too.
//!
//! Work is counted in lines: the lines of a batch are alike, and the batch's own throughput measures the capacity in the same
//! unit. Rejected: tokens, which the worker does not know before the response.

use super::UnixMs;

/// Share of the window after which every line that is left is promoted, as a fraction: SageServe's 10 of 24 hours.
const PROMOTED_AGE: (i64, i64) = (10, 24);
/// Age before which no line of a batch is promoted, in milliseconds.
const PROMOTED_AGE_MS_MIN: i64 = 10 * 60_000;
/// Share of the measured spare capacity that a plan relies on.
const SAFETY: f64 = 0.9;

/// The work that a batch still has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchDemand {
    /// Creation of the batch.
    pub created_at: UnixMs,
    /// Deadline of the batch.
    pub expires_at: UnixMs,
    /// Lines without a result.
    pub remaining: u64,
}

/// The number of lines of each batch to promote, in the order of `batches`. All batches are of one model.
/// `spare_per_s` is the rate at which the gateway serves non-interactive lines, if it is known.
#[must_use]
pub fn promoted_lines(now: UnixMs, batches: &[BatchDemand], spare_per_s: Option<f64>) -> Vec<u64> {
    let may_be_promoted =
        |batch: &BatchDemand| now.saturating_sub(batch.created_at) >= PROMOTED_AGE_MS_MIN;
    let demands = batches.iter().filter(|batch| may_be_promoted(batch));
    let demands: Vec<BatchDemand> = demands.cloned().collect();
    let mut promoted = promote_demands(now, &demands, spare_per_s).into_iter();
    let lines = batches.iter().map(|batch| match may_be_promoted(batch) {
        true => promoted.next().unwrap_or_default(),
        false => 0,
    });
    lines.collect()
}

/// The number of lines to promote of batches that are old enough.
fn promote_demands(now: UnixMs, batches: &[BatchDemand], spare_per_s: Option<f64>) -> Vec<u64> {
    let mut promoted: Vec<u64> = batches
        .iter()
        .map(|batch| {
            if is_old(now, batch) {
                batch.remaining
            } else {
                0
            }
        })
        .collect();
    let Some(spare_per_s) = spare_per_s.filter(|rate| rate.is_finite() && *rate >= 0.0) else {
        return promoted;
    };
    let mut by_deadline: Vec<(&BatchDemand, &mut u64)> =
        batches.iter().zip(&mut promoted).collect();
    by_deadline.sort_by_key(|(batch, _)| (batch.expires_at, batch.created_at));
    let mut demand: u64 = 0;
    for due in 0..by_deadline.len() {
        let Some((batch, lines)) = by_deadline.get(due) else {
            break;
        };
        demand = demand.saturating_add(batch.remaining.saturating_sub(**lines));
        let capacity = capacity(batch.expires_at.saturating_sub(now), spare_per_s);
        let mut excess = demand.saturating_sub(capacity);
        demand -= excess;
        for (batch, lines) in by_deadline.iter_mut().take(due + 1) {
            let more = batch.remaining.saturating_sub(**lines).min(excess);
            **lines += more;
            excess -= more;
        }
    }
    promoted
}

/// Whether a batch has the age at which all its lines are promoted.
fn is_old(now: UnixMs, batch: &BatchDemand) -> bool {
    let window = i128::from(batch.expires_at) - i128::from(batch.created_at);
    let age = i128::from(now) - i128::from(batch.created_at);
    let (numerator, denominator) = PROMOTED_AGE;
    age * i128::from(denominator) >= window * i128::from(numerator)
}

/// Lines that fit the spare capacity of a time.
fn capacity(time_ms: i64, spare_per_s: f64) -> u64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and a window has at most 86,400 s"
    )]
    let lines = (SAFETY * spare_per_s * time_ms.max(0) as f64 / 1_000.0) as u64;
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn batch(created_h: i64, window_h: i64, remaining: u64) -> BatchDemand {
        BatchDemand {
            created_at: created_h * HOUR,
            expires_at: (created_h + window_h) * HOUR,
            remaining,
        }
    }

    #[test]
    fn a_batch_of_ten_hours_is_promoted_as_in_sageserve() {
        let batches = [batch(0, 24, 7), batch(1, 24, 5), batch(6, 4, 3)];
        assert_eq!(promote_demands(10 * HOUR - 1, &batches, None), [0, 0, 3]);
        assert_eq!(promote_demands(10 * HOUR, &batches, None), [7, 0, 3]);
        assert_eq!(promote_demands(11 * HOUR, &batches, None), [7, 5, 3]);
    }

    #[test]
    fn only_what_does_not_fit_is_promoted() {
        // One line a second leaves room for 0.9 * 3,600 in an hour.
        let batches = [batch(0, 24, 1_000), batch(0, 1, 4_000)];
        assert_eq!(promote_demands(0, &batches, Some(1.0)), [0, 760]);
        assert_eq!(promote_demands(0, &batches, Some(2.0)), [0, 0]);
        assert_eq!(promote_demands(0, &batches, Some(0.0)), [1_000, 4_000]);
        assert_eq!(promote_demands(0, &batches, None), [0, 0]);
    }

    #[test]
    fn work_due_later_promotes_the_earliest_deadline_first() {
        let batches = [batch(0, 2, 6_000), batch(0, 1, 3_000)];
        // Due in two hours: 9,000 lines for 6,480.
        assert_eq!(promote_demands(0, &batches, Some(1.0)), [0, 2_520]);
    }

    #[test]
    fn a_short_window_promotes_nothing_before_an_age() {
        for window_ms in [1_000, 4_000, 60_000, 10 * 60_000, HOUR] {
            let batch = BatchDemand {
                created_at: 5,
                expires_at: 5 + window_ms,
                remaining: 7,
            };
            let before = 5 + PROMOTED_AGE_MS_MIN - 1;
            for rate in [None, Some(0.0), Some(5.0)] {
                assert_eq!(
                    promoted_lines(before, std::slice::from_ref(&batch), rate),
                    [0]
                );
            }
            let lines = promoted_lines(before + 1, std::slice::from_ref(&batch), Some(0.0));
            assert_eq!(lines, [7], "{window_ms}");
        }
        let batches = [batch(0, 24, 7), batch(10, 1, 5)];
        assert_eq!(promoted_lines(10 * HOUR, &batches, None), [7, 0]);
    }

    fn demands() -> impl Strategy<Value = Vec<BatchDemand>> {
        let one = (0_i64..50_000, 1_i64..100_000, 0_u64..2_000);
        let one = one.prop_map(|(created_at, window, remaining)| BatchDemand {
            created_at: created_at * 1_000,
            expires_at: (created_at + window) * 1_000,
            remaining,
        });
        prop::collection::vec(one, 0..12)
    }

    proptest! {
        /// The non-interactive rest meets the demand bound at every deadline, and with one promoted line less it would not.
        #[test]
        fn the_demand_bound_holds_with_no_line_to_spare(batches in demands(), now in 0_i64..60_000, rate in 0.0_f64..5.0) {
            let now = now * 1_000;
            let promoted = promote_demands(now, &batches, Some(rate));
            let by_age = promote_demands(now, &batches, None);
            let mut violated_with_one_less = promoted == by_age;
            for at in batches.iter().map(|batch| batch.expires_at) {
                let due: u64 = batches.iter().zip(&promoted)
                    .filter(|(batch, _)| batch.expires_at <= at)
                    .map(|(batch, lines)| batch.remaining - lines)
                    .sum();
                prop_assert!(due <= capacity(at - now, rate));
                let extra: u64 = batches.iter().zip(promoted.iter().zip(&by_age))
                    .filter(|(batch, _)| batch.expires_at <= at)
                    .map(|(_, (lines, old))| lines - old)
                    .sum();
                violated_with_one_less |= extra > 0 && due == capacity(at - now, rate);
            }
            prop_assert!(violated_with_one_less);
            for ((batch, lines), old) in batches.iter().zip(&promoted).zip(&by_age) {
                prop_assert!(*lines <= batch.remaining && lines >= old);
            }
        }

        #[test]
        fn less_capacity_promotes_no_fewer_lines(batches in demands(), rate in 0.0_f64..5.0) {
            let total = |rate| promote_demands(0, &batches, Some(rate)).iter().sum::<u64>();
            prop_assert!(total(rate / 2.0) >= total(rate));
        }

        #[test]
        fn any_number_is_survived(created_at in any::<i64>(), expires_at in any::<i64>(), now in any::<i64>(), rate in any::<f64>()) {
            let batches = [BatchDemand { created_at, expires_at, remaining: u64::MAX }, BatchDemand { created_at, expires_at, remaining: 3 }];
            let _ = promoted_lines(now, &batches, Some(rate));
        }
    }
}
