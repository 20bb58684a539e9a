//! Figures of the load on the replicas during a run: they explain why a system did better than another.

use std::collections::BTreeMap;

use isotherm_simulator::record::{ReplicaSample, Sample};
use isotherm_simulator::{Outcome, RequestRecord};

/// - `outstanding_mean`: requests in an engine;
/// - `outstanding_most_over_mean`: the busiest replica's over that, mean over time;
/// - `engine_waiting_mean`: of those in an engine, the ones outside its batch;
/// - `stranded_share`: of the moments of a replica, those in which a request waits in its engine while another engine has
///   none that waits: SkyLB's waste (section 3.3);
/// - `router_waiting_mean`: requests that wait in routers;
/// - `busy_share`: of the replicas' time in the pool (as the samples have it, draining included), what they computed in;
/// - `preemptions`: requests that lost their memory to another.
pub(crate) fn figures(outcome: &Outcome) -> BTreeMap<&'static str, f64> {
    // How a fleet runs dry at the end says nothing of a policy.
    let last_sent = outcome.requests.last().map(|request| request.sent);
    let samples = outcome.samples.iter();
    let samples = samples.filter(|one| Some(one.at) <= last_sent && !one.replicas.is_empty());
    let samples: Vec<&Sample> = samples.collect();
    let each = || samples.iter().flat_map(|sample| &sample.replicas);
    let mean = |of: fn(&ReplicaSample) -> u32| average(each().map(|one| f64::from(of(one))));
    let replicas = outcome.replicas.iter();
    let busy: f64 = replicas
        .clone()
        .map(|replica| replica.busy.as_secs_f64())
        .sum();
    let time = outcome.ended.as_secs_f64() * outcome.replicas.len() as f64 * in_pool(outcome);
    let preemptions: u64 = replicas.map(|replica| replica.preemptions).sum();
    let over = |of: fn(&Sample) -> f64| average(samples.iter().map(|sample| of(sample)));
    let most_over_mean = average(samples.iter().filter_map(|sample| most_over_mean(sample)));
    BTreeMap::from([
        ("outstanding_mean", mean(|one| one.outstanding)),
        ("outstanding_most_over_mean", most_over_mean),
        ("engine_waiting_mean", mean(|one| one.waiting)),
        ("stranded_share", over(waiting_beside_idle)),
        (
            "router_waiting_mean",
            over(|sample| f64::from(sample.queued)),
        ),
        ("busy_share", if time > 0.0 { busy / time } else { 0.0 }),
        ("preemptions", preemptions as f64),
    ])
}

/// Time to the first token of a request in seconds; infinite without one.
pub(crate) fn ttft_s(request: &RequestRecord) -> f64 {
    let ttft = request.ttft();
    ttft.map_or(f64::INFINITY, |ttft| ttft.as_secs_f64())
}

/// The value below which `part` of `of` equal parts of the values lie; `NaN` without a value.
pub(crate) fn quantile(values: impl Iterator<Item = f64>, (part, of): (usize, usize)) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let value = values.get(values.len() * part / of);
    value.copied().unwrap_or(f64::NAN)
}

/// Share of replica time in the pool: 1, unless replicas join or leave.
fn in_pool(outcome: &Outcome) -> f64 {
    let there = outcome.samples.iter().map(|sample| sample.replicas.len());
    let all = outcome.samples.len() * outcome.replicas.len();
    if all > 0 {
        there.sum::<usize>() as f64 / all as f64
    } else {
        1.0
    }
}

fn most_over_mean(sample: &Sample) -> Option<f64> {
    let most = sample.replicas.iter().map(|one| one.outstanding).max()?;
    let mean = average(sample.replicas.iter().map(|one| f64::from(one.outstanding)));
    (mean > 0.0).then(|| f64::from(most) / mean)
}

/// The share of replicas in which requests wait while another has none that waits.
fn waiting_beside_idle(sample: &Sample) -> f64 {
    let waiting = sample.replicas.iter().filter(|one| one.waiting > 0).count();
    if waiting == sample.replicas.len() {
        0.0
    } else {
        waiting as f64 / sample.replicas.len() as f64
    }
}

fn average(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    if count > 0.0 { sum / count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use isotherm_simulator::record::ReplicaTotals;

    fn sample(seconds: u64, loads: &[(u32, u32)]) -> Sample {
        Sample {
            at: Duration::from_secs(seconds),
            queued: 2,
            replicas: loads
                .iter()
                .zip(0..)
                .map(|(&(outstanding, waiting), replica)| ReplicaSample {
                    replica,
                    outstanding,
                    waiting,
                    pending_prefill_tokens: 0,
                    blocks_held: 0,
                })
                .collect(),
        }
    }

    #[test]
    fn requests_that_wait_beside_an_idle_engine_are_counted() {
        let sent = RequestRecord {
            sent: Duration::from_secs(2),
            ..RequestRecord::default()
        };
        let mut outcome = Outcome {
            requests: vec![sent],
            replicas: vec![
                ReplicaTotals {
                    busy: Duration::from_secs(4),
                    ..ReplicaTotals::default()
                },
                ReplicaTotals::default(),
            ],
            samples: vec![
                sample(1, &[(6, 2), (2, 0)]),
                sample(2, &[(4, 1), (4, 3)]),
                sample(3, &[(9, 9), (0, 0)]), // after the last request was sent
            ],
            ended: Duration::from_secs(4),
            ..Outcome::default()
        };
        let figures = figures(&outcome);
        assert_eq!(figures["stranded_share"], 0.25);
        assert_eq!(figures["outstanding_mean"], 4.0);
        assert_eq!(figures["outstanding_most_over_mean"], 1.25);
        assert_eq!(figures["engine_waiting_mean"], 1.5);
        assert_eq!(
            (figures["router_waiting_mean"], figures["busy_share"]),
            (2.0, 0.5)
        );
        // A third replica joins in the last third of the time: it could not have computed before.
        outcome.replicas.push(ReplicaTotals::default());
        outcome.samples[2] = sample(3, &[(9, 9), (0, 0), (0, 0)]);
        let busy_share = super::figures(&outcome)["busy_share"];
        assert!(
            (busy_share - 4.0 / (4.0 * 7.0 / 3.0)).abs() < 1e-9,
            "{busy_share}"
        );
    }
}
