//! Balance of the load: the outstanding requests of each replica, sampled during a run.

use std::time::Duration;

use isotherm_harness::Service;
use reqwest::Method;
use serde_json::Value;

/// Short enough to show a burst, long enough to cost little.
const INTERVAL: Duration = Duration::from_millis(100);

/// The time average of the maximum over the mean of outstanding requests; 1 is perfectly even.
#[derive(Debug, Default)]
pub struct LoadImbalance {
    sum: f64,
    samples: u32,
}

impl LoadImbalance {
    /// Samples the service until the future is dropped.
    pub async fn watch(&mut self, service: &Service) {
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            let replicas = service.admin_request(Method::GET, "/api/replicas", None);
            if let Ok(replicas) = replicas.await {
                self.sample(&outstanding(&replicas));
            }
        }
    }

    /// Counts one sample. An idle system has no imbalance and does not count.
    pub fn sample(&mut self, outstanding: &[u64]) {
        let total: u64 = outstanding.iter().sum();
        let Some(max) = outstanding.iter().max().filter(|_| total > 0) else {
            return;
        };
        self.sum += *max as f64 * outstanding.len() as f64 / total as f64;
        self.samples += 1;
    }

    /// The average so far; 1 without a sample.
    #[must_use]
    pub fn average(&self) -> f64 {
        if self.samples == 0 {
            return 1.0;
        }
        self.sum / f64::from(self.samples)
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
        let mut imbalance = LoadImbalance::default();
        imbalance.sample(&[3, 3, 3, 3]);
        assert!((imbalance.average() - 1.0).abs() < 1e-9);
        imbalance.sample(&[0, 0, 0, 0]);
        imbalance.sample(&[8, 0, 0, 0]);
        assert!((imbalance.average() - 2.5).abs() < 1e-9);
    }

    #[test]
    fn outstanding_is_found_at_any_depth() {
        let list =
            json!({ "replicas": [{ "address": "a", "outstanding": 1 }, { "outstanding": 2 }] });
        assert_eq!(outstanding(&list), [1, 2]);
    }
}
