//! Samples for the planner: what a pool's router knows, in the planner's terms.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use isotherm_planner::{ReplicaSample, ReplicaState, ReplicasSample, WorkModel};
use isotherm_router::{Availability, ReplicaId, ReplicaStatus, Role};

use crate::pool::{MeterModel, Pool};

/// Time between two surveys of the prefix index.
const SURVEY_INTERVAL: Duration = Duration::from_secs(60);
/// Surveys that are kept: prefixes that were used in so many minutes count as warm.
const SURVEYS_MAX: usize = 10;
/// Requests in a replica's batch, before the service has seen a full replica.
const BATCH_PRESUMED: f64 = 16.0;

/// Surveys of one pool's prefix index.
#[derive(Debug, Default)]
pub(super) struct WarmthSurvey {
    /// Positions of the index in its own time, oldest first.
    positions: VecDeque<u64>,
    warmth: BTreeMap<ReplicaId, f64>,
    since_survey: Option<Duration>,
}

impl WarmthSurvey {
    /// Lets time pass, and surveys the index again when it is due.
    fn advance(&mut self, pool: &Pool, elapsed: Duration) {
        let waited = self.since_survey.map(|waited| waited + elapsed);
        if waited.is_some_and(|waited| waited < SURVEY_INTERVAL) {
            self.since_survey = waited;
            return;
        }
        self.since_survey = Some(Duration::ZERO);
        let since = self.positions.front().copied().unwrap_or_default();
        let (position, warmth) = pool.warmth(since);
        self.warmth = warmth;
        if self.positions.len() >= SURVEYS_MAX {
            self.positions.pop_front();
        }
        self.positions.push_back(position);
    }
}

/// State of a pool's replicas. Updates the meter of the pool's demand on the way.
pub(super) fn replicas_sample(
    pool: &Pool,
    survey: &mut WarmthSurvey,
    elapsed: Duration,
    utilisation_up: f64,
) -> ReplicasSample {
    survey.advance(pool, elapsed);
    let statuses: Vec<ReplicaStatus> = pool
        .replicas()
        .into_iter()
        .filter(|status| status.role != Role::Prefill)
        .collect();
    pool.demand()
        .set_model(meter_model(pool, &statuses, utilisation_up));
    let stats = pool.stats();
    let replicas = statuses.iter().map(|status| ReplicaSample {
        name: status.name.clone(),
        state: state_of(status),
        warmth_s: survey.warmth.get(&status.id).copied().unwrap_or_default(),
        outstanding: status.outstanding.saturating_add(status.of_others),
    });
    ReplicasSample {
        replicas: replicas.collect(),
        utilisation: utilisation(&statuses),
        waiting_s: stats.queue_length as f64 * pool.demand().mean_work_s(),
        waiting: u32::try_from(stats.queue_length).unwrap_or(u32::MAX),
        kv_tokens: kv_tokens(&statuses),
    }
}

fn state_of(status: &ReplicaStatus) -> ReplicaState {
    match status.availability {
        _ if status.draining => ReplicaState::Draining,
        Availability::NeverProbed | Availability::ProbeFailed | Availability::Stale => {
            ReplicaState::Starting
        }
        Availability::Draining => ReplicaState::Draining,
        Availability::Available
        | Availability::Failing
        | Availability::Hung
        | Availability::Pending
        | Availability::NoHeadroom
        | Availability::Full => ReplicaState::Ready,
    }
}

/// Effective memory utilisation: the used share of the KV caches of the replicas that serve. Where capacities are unknown, each
/// replica counts the same.
fn utilisation(statuses: &[ReplicaStatus]) -> Option<f64> {
    let serving = statuses
        .iter()
        .filter(|status| state_of(status) == ReplicaState::Ready);
    let mut used = 0.0;
    let mut total = 0.0;
    for load in serving.filter_map(|status| status.load) {
        let Some(share) = load.kv_usage else {
            continue;
        };
        let capacity = load.kv_capacity_tokens.map_or(1.0, |tokens| tokens as f64);
        used += f64::from(share) * capacity;
        total += capacity;
    }
    (total > 0.0).then(|| used / total)
}

/// Mean capacity of a KV cache, in tokens.
fn kv_tokens(statuses: &[ReplicaStatus]) -> Option<f64> {
    let known: Vec<f64> = statuses
        .iter()
        .filter_map(|status| Some(status.load?.kv_capacity_tokens? as f64))
        .collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// Learned quantities that turn a request into work.
fn meter_model(pool: &Pool, statuses: &[ReplicaStatus], utilisation_up: f64) -> MeterModel {
    let estimates = pool.estimates();
    MeterModel {
        work: WorkModel {
            prefill_s: estimates.first_token_s,
            prompt_token_s: estimates.prompt_token_s,
            decode_step_s: estimates.decode_step_s,
            decode_request_s: estimates.decode_request_s,
            batch: batch(pool, statuses) * utilisation_up,
        },
        output_tokens: estimates.output_tokens,
        ttft_slo: pool.config().borrow().router.ttft_slo,
    }
}

/// Requests that a full replica runs: as its last probe shows it, or as its KV cache holds of the mean request.
fn batch(pool: &Pool, statuses: &[ReplicaStatus]) -> f64 {
    let loads = statuses.iter().filter_map(|status| status.load);
    let full = loads.filter(|load| load.pending > 0);
    let mut seen: Vec<u32> = full.filter_map(|load| load.running).collect();
    seen.sort_unstable();
    if let Some(median) = seen.get(seen.len() / 2) {
        return f64::from(*median).max(1.0);
    }
    let mean = pool.demand().mean();
    let tokens = mean.prompt_tokens + mean.output_tokens / 2.0;
    match kv_tokens(statuses) {
        Some(capacity) if tokens >= 1.0 => (capacity / tokens).clamp(1.0, 1_024.0),
        _ => BATCH_PRESUMED,
    }
}
