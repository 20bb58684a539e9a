//! Load of the replicas: the outstanding requests of each, sampled during a run, and their balance.

use std::time::{Duration, Instant};

use isotherm_harness::Service;
use reqwest::Method;
use serde_json::Value;

/// Short enough to show a burst, long enough to cost little.
const INTERVAL: Duration = Duration::from_millis(100);

/// Samples that are kept; every second one is dropped when there are more.
const KEPT_SAMPLES_MAX: usize = 400;

/// The outstanding requests of each replica during a run.
#[derive(Debug)]
pub struct ReplicaLoad {
    started: Instant,
    /// Sum of the maximum over the mean of outstanding requests.
    imbalance_sum: f64,
    /// Samples in that sum.
    imbalance_samples: u32,
    /// Samples for each one that is kept.
    stride: u32,
    /// Samples since the last one that was kept.
    skipped: u32,
    kept: Vec<LoadSample>,
}

/// A sample of the load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadSample {
    /// Time since the start of the run.
    pub at: Duration,
    /// Outstanding requests of each replica, in the order of the service's list.
    pub outstanding: Vec<u64>,
}

impl Default for ReplicaLoad {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            imbalance_sum: 0.0,
            imbalance_samples: 0,
            stride: 1,
            skipped: 0,
            kept: Vec::new(),
        }
    }
}

impl ReplicaLoad {
    /// Samples the service until the future is dropped.
    pub async fn watch(&mut self, service: &Service) {
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            let replicas = service.admin_request(Method::GET, "/api/replicas", None);
            if let Ok(replicas) = replicas.await {
                self.sample(self.started.elapsed(), outstanding(&replicas));
            }
        }
    }

    /// Counts one sample. An idle system has no imbalance, so it does not count for the average.
    pub fn sample(&mut self, at: Duration, outstanding: Vec<u64>) {
        self.count_imbalance(&outstanding);
        self.skipped += 1;
        if self.skipped < self.stride {
            return;
        }
        self.skipped = 0;
        self.kept.push(LoadSample { at, outstanding });
        if self.kept.len() > KEPT_SAMPLES_MAX {
            self.stride *= 2;
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    fn count_imbalance(&mut self, outstanding: &[u64]) {
        let total: u64 = outstanding.iter().sum();
        let Some(max) = outstanding.iter().max().filter(|_| total > 0) else {
            return;
        };
        self.imbalance_sum += *max as f64 * outstanding.len() as f64 / total as f64;
        self.imbalance_samples += 1;
    }

    /// The time average of the maximum over the mean of outstanding requests; 1 is perfectly even, or has no sample.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        if self.imbalance_samples == 0 {
            return 1.0;
        }
        self.imbalance_sum / f64::from(self.imbalance_samples)
    }

    /// The samples that are kept, from the start to the end.
    #[must_use]
    pub fn samples(&self) -> &[LoadSample] {
        &self.kept
    }
}

/// Every `outstanding` number in the response, at any depth.
fn outstanding(value: &Value) -> Vec<u64> {
    match value {
        Value::Array(elements) => elements.iter().flat_map(outstanding).collect(),
        Value::Object(members) => match members.get("outstanding").and_then(Value::as_u64) {
            Some(count) => vec![count],
            None => members.values().flat_map(outstanding).collect(),
        },
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_even_load_has_an_imbalance_of_one_and_a_lone_busy_replica_that_of_their_number() {
        let mut load = ReplicaLoad::default();
        load.sample(Duration::ZERO, vec![3, 3, 3, 3]);
        assert!((load.imbalance() - 1.0).abs() < 1e-9);
        load.sample(Duration::ZERO, vec![0, 0, 0, 0]);
        load.sample(Duration::ZERO, vec![8, 0, 0, 0]);
        assert!((load.imbalance() - 2.5).abs() < 1e-9);
    }

    #[test]
    fn a_long_run_keeps_a_bounded_number_of_even_samples() {
        let mut load = ReplicaLoad::default();
        for tick in 0..10_000 {
            load.sample(INTERVAL * tick, vec![u64::from(tick)]);
        }
        let samples = load.samples();
        assert!(samples.len() <= KEPT_SAMPLES_MAX && samples.len() > KEPT_SAMPLES_MAX / 3);
        let steps = samples.windows(2).map(|pair| pair[1].at - pair[0].at);
        assert!(steps.clone().max().unwrap() <= 2 * steps.min().unwrap());
    }

    #[test]
    fn outstanding_is_found_at_any_depth() {
        let list =
            json!({ "replicas": [{ "address": "a", "outstanding": 1 }, { "outstanding": 2 }] });
        assert_eq!(outstanding(&list), [1, 2]);
    }
}
