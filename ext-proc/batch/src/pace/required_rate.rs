//! The rate of results at which batches end in time.

use super::{BatchDemand, UnixMs};

/// Results per second that the batches need of which more than half of the window has passed; 0 if there are none. Until then a
/// gate may hold a whole batch back, as its tiers want it. Lines with an earlier deadline come first, so they count as well.
#[must_use]
pub fn required_rate(now: UnixMs, mut batches: Vec<BatchDemand>) -> f64 {
    batches.sort_by_key(|batch| batch.expires_at);
    let mut due: u64 = 0;
    batches.iter().fold(0.0, |rate: f64, batch| {
        due = due.saturating_add(batch.remaining);
        let left_ms = batch.expires_at.saturating_sub(now).max(1);
        let is_half_over = now.saturating_sub(batch.created_at) > left_ms;
        #[expect(clippy::cast_precision_loss, reason = "lines and milliseconds")]
        let needed = due as f64 * 1_000.0 / left_ms as f64;
        if is_half_over { rate.max(needed) } else { rate }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    #[test]
    fn only_batches_past_the_half_of_their_window_need_a_rate() {
        let batch = |created_h: i64, expires_h: i64, remaining| BatchDemand {
            created_at: created_h * HOUR_MS,
            expires_at: expires_h * HOUR_MS,
            remaining,
        };
        let young = [batch(0, 12, 1_000_000)];
        let rate = |now_h: i64, batches: &[BatchDemand]| {
            let rate = required_rate(now_h * HOUR_MS, batches.to_vec());
            (rate * 3_600.0).round()
        };
        assert_eq!(rate(5, &young), 0.0);
        assert_eq!(rate(8, &young), 250_000.0);
        // 600 lines are due in three hours, behind 300 with an earlier deadline.
        let late = [batch(0, 8, 600), batch(4, 7, 300), batch(4, 24, 1_000_000)];
        assert_eq!(rate(5, &late), 300.0);
        assert_eq!(rate(5, &late[..1]), 200.0);
    }
}
