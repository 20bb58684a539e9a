//! Series of adapters that the metrics page has shown, each with the time of its last change.

use std::sync::{Mutex, PoisonError};

use super::wall_clock::unix_ms;

/// Series that stay on the page; vLLM forgets none.
const SERIES_MAX: usize = 64;

/// Labels of a series, and its value: seconds since 1970.
pub type Series = (String, f64);

/// A bounded log of series, oldest first.
#[derive(Debug, Default)]
pub struct AdapterSeries(Mutex<Vec<Series>>);

impl AdapterSeries {
    /// Adds the series of this moment, and returns all of them. They stand in the order of their labels, as a client library
    /// of Prometheus has no order of time.
    pub fn record(&self, labels: String) -> Vec<Series> {
        let now = unix_ms() as f64 / 1e3;
        // The list has no half-done state.
        let mut series = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        series.retain(|(known, _)| *known != labels);
        series.push((labels, now));
        if series.len() > SERIES_MAX {
            series.remove(0);
        }
        let mut sorted = series.clone();
        drop(series);
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        sorted
    }
}
