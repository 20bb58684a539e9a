//! Whether every place has been returned: no part of an idle system counts a request.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::system::System;

/// Longest time until an idle system counts no request.
const IDLE_MAX: Duration = Duration::from_secs(40);
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Envoy's gauges of requests.
const GAUGES: [&str; 2] = [
    "http.llm.downstream_rq_active",
    "cluster.llama.upstream_rq_active",
];

/// Waits until the system is idle; returns the places that are still taken after a while.
pub(super) async fn wait_until_idle(system: &System) -> anyhow::Result<Vec<String>> {
    let start = Instant::now();
    loop {
        let taken = taken_places(system).await?;
        if taken.is_empty() || start.elapsed() > IDLE_MAX {
            return Ok(taken);
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn taken_places(system: &System) -> anyhow::Result<Vec<String>> {
    let mut taken = Vec::new();
    for (index, service) in system.stack.services().enumerate() {
        let pools = service.get("/api/pools").await?;
        let replicas = service.get("/api/replicas").await?;
        let place = format!("service {index}");
        add(&mut taken, &place, &pools, &["queue_length", "in_flight"]);
        add(
            &mut taken,
            &place,
            &replicas,
            &["outstanding", "pending", "running"],
        );
    }
    for (index, envoy) in system.stack.envoys().enumerate() {
        for gauge in GAUGES {
            let value = envoy.stat(gauge).await?;
            if value > 0 {
                taken.push(format!("Envoy {index}: {gauge} = {value}"));
            }
        }
    }
    let loads = Value::from(system.loads().await?);
    add(&mut taken, "engine", &loads, &["waiting", "running"]);
    Ok(taken)
}

/// Adds each of these members that is not zero in an item of an array.
fn add(taken: &mut Vec<String>, place: &str, items: &Value, members: &[&str]) {
    for (index, item) in items.as_array().into_iter().flatten().enumerate() {
        for member in members {
            let value = item.get(member).and_then(Value::as_u64).unwrap_or(0);
            if value > 0 {
                let name = item.get("address").and_then(Value::as_str);
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                taken.push(format!("{place}, {name}: {member} = {value}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_that_is_not_zero_is_a_taken_place() {
        let replicas =
            json!([{ "address": "a", "outstanding": 0 }, { "address": "b", "outstanding": 2 }]);
        let mut taken = Vec::new();
        add(
            &mut taken,
            "service 0",
            &replicas,
            &["outstanding", "running"],
        );
        assert_eq!(taken, ["service 0, b: outstanding = 2"]);
    }
}
