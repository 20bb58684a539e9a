//! Forecasts by level: the last peak, and the season at the level of the last hour.

use super::{Buckets, Horizon, Path, known_peak};
use crate::history::DAY_BUCKETS;

/// Lags of the season, in buckets: a day and a week.
const LAGS: [u64; 2] = [DAY_BUCKETS, 7 * DAY_BUCKETS];
/// Buckets of an hour, whose level scales the season.
const HOUR_BUCKETS: u64 = 12;
/// Bounds of the ratio between the level now and a season ago: beyond them the season tells nothing.
const RATIO_MIN: f64 = 1.0 / 3.0;
const RATIO_MAX: f64 = 3.0;

/// Peak of the past window, for every bucket.
pub(super) fn last_peak(buckets: &Buckets, horizon: &Horizon) -> Option<Path> {
    let from = horizon.issued.saturating_sub(horizon.window());
    let peak = known_peak(buckets, from, horizon.issued)?;
    Some(flat(horizon, peak))
}

fn flat(horizon: &Horizon, value: f64) -> Path {
    Path {
        first: horizon.issued,
        values: (horizon.issued..horizon.to).map(|_| value).collect(),
    }
}

/// Demand a day and a week ago, each at the ratio of the last hour to the same hour then. Their mean, where both are known.
pub(super) fn seasonal(buckets: &Buckets, horizon: &Horizon) -> Option<Path> {
    let lagged: Vec<Path> = LAGS
        .iter()
        .filter_map(|lag| lagged(buckets, horizon, *lag))
        .collect();
    let count = lagged.len() as f64;
    let first = lagged.first()?;
    let values = (0..first.values.len()).map(|at| {
        let values = lagged.iter().filter_map(|path| path.values.get(at));
        values.sum::<f64>() / count
    });
    Some(Path {
        first: horizon.issued,
        values: values.collect(),
    })
}

fn lagged(buckets: &Buckets, horizon: &Horizon, lag: u64) -> Option<Path> {
    let (from, to) = (
        horizon.issued.checked_sub(lag)?,
        horizon.to.checked_sub(lag)?,
    );
    if to > horizon.issued {
        return None;
    }
    let peak = known_peak(buckets, from, to)?;
    let ratio = level(buckets, horizon.issued)? / level(buckets, from)?.max(f64::MIN_POSITIVE);
    let ratio = ratio.clamp(RATIO_MIN, RATIO_MAX);
    // A missing bucket counts as the peak: the window must not look quiet because nothing was recorded.
    let values = (from..to).map(|bucket| buckets.get(&bucket).copied().unwrap_or(peak) * ratio);
    Some(Path {
        first: horizon.issued,
        values: values.collect(),
    })
}

/// Mean demand of the hour before a bucket; `None` if less than half of it is known.
fn level(buckets: &Buckets, before: u64) -> Option<f64> {
    let known: Vec<f64> = buckets
        .range(before.saturating_sub(HOUR_BUCKETS)..before)
        .map(|(_, value)| *value)
        .collect();
    (known.len() as u64 * 2 >= HOUR_BUCKETS).then(|| known.iter().sum::<f64>() / known.len() as f64)
}
