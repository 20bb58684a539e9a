//! Demand of a pool: the work and the tokens of its clients' requests, summed up for the planner.
//!
//! A region's demand is that of its own clients, wherever they are served: requests that another region forwarded here are part of
//! the other region's demand. A rejected request is demand, too. Sums are kept only while the pool has a section `scaling`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isotherm_fingerprint::outcome::Outcome;
use isotherm_planner::{DemandSums, FinishedRequest, WorkModel};
use isotherm_router::Tier;
use parking_lot::Mutex;

/// Statuses from which on a response took no work worth counting.
const FAILURE_STATUS_MIN: u16 = 400;
/// Weight of one request in the mean request.
const MEAN_WEIGHT: f64 = 0.01;

/// Sums of a pool's demand since they were last taken.
#[derive(Debug, Default)]
pub(crate) struct DemandMeter {
    is_on: AtomicBool,
    state: Mutex<MeterState>,
}

#[derive(Debug, Default)]
struct MeterState {
    sums: DemandParts,
    model: Option<MeterModel>,
    /// The mean request, which stands for a rejected one.
    mean: FinishedRequest,
}

/// Sums of interactive and of non-interactive requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DemandParts {
    pub(crate) interactive: DemandSums,
    pub(crate) batch: DemandSums,
}

/// Learned quantities that turn a request into work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MeterModel {
    pub(crate) work: WorkModel,
    pub(crate) output_tokens: f64,
    pub(crate) ttft_slo: Duration,
}

/// A request, as far as the service knows it before the response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpectedRequest {
    pub(crate) tier: Tier,
    pub(crate) prompt_tokens: u32,
    pub(crate) matched_tokens: u32,
    /// Time in the queue.
    pub(crate) queued_for: Duration,
    /// Whether another region counts the request.
    pub(crate) is_foreign: bool,
    /// Whether the request is of an API whose answers are JSON or events.
    pub(crate) has_api: bool,
}

impl DemandMeter {
    /// Starts, or updates the learned quantities.
    pub(crate) fn set_model(&self, model: MeterModel) {
        self.state.lock().model = Some(model);
        self.is_on.store(true, Ordering::Release);
    }

    /// Stops, and forgets the sums.
    pub(crate) fn stop(&self) {
        if self.is_on.swap(false, Ordering::AcqRel) {
            *self.state.lock() = MeterState::default();
        }
    }

    /// Takes the sums.
    pub(crate) fn take(&self) -> DemandParts {
        std::mem::take(&mut self.state.lock().sums)
    }

    /// Work of the mean request, in seconds of one replica.
    pub(crate) fn mean_work_s(&self) -> f64 {
        let state = self.state.lock();
        state
            .model
            .map_or(0.0, |model| model.work.work_s(&state.mean))
    }

    /// The mean request.
    pub(crate) fn mean(&self) -> FinishedRequest {
        self.state.lock().mean
    }

    /// Counts a request whose response ended.
    pub(crate) fn finished(
        &self,
        expected: &ExpectedRequest,
        duration: Duration,
        outcome: &Outcome,
    ) {
        let has_failed = outcome.status >= FAILURE_STATUS_MIN;
        if expected.is_foreign || has_failed || !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        let Some(model) = state.model else {
            return;
        };
        let prompt_tokens = f64::from(outcome.prompt_tokens.unwrap_or(expected.prompt_tokens));
        let cached = f64::from(outcome.cached_tokens.unwrap_or(expected.matched_tokens));
        let first_token = outcome.first_token_us().map(Duration::from_micros);
        let request = FinishedRequest {
            prompt_tokens,
            uncached_tokens: (prompt_tokens - cached).max(0.0),
            output_tokens: outcome
                .completion_tokens
                .map_or(model.output_tokens, f64::from),
            duration_s: duration.as_secs_f64(),
            is_in_slo: first_token.is_none_or(|time| expected.queued_for + time <= model.ttft_slo),
        };
        state.note(&request);
        state
            .part(expected.tier)
            .add_finished(&model.work, &request);
    }

    /// Counts a request whose client left after it was dispatched: its prefill, since nothing tells how much was written.
    pub(crate) fn aborted(&self, expected: &ExpectedRequest, duration: Duration) {
        let outcome = Outcome {
            completion_tokens: Some(0),
            ..Outcome::default()
        };
        self.finished(expected, duration, &outcome);
    }

    /// Counts a request that was rejected for lack of capacity.
    pub(crate) fn rejected(&self, tier: Tier) {
        if !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        let mean = state.mean;
        if let Some(model) = state.model {
            state.part(tier).add_rejected(&model.work, &mean);
        }
    }
}

impl MeterState {
    fn part(&mut self, tier: Tier) -> &mut DemandSums {
        match tier {
            Tier::NonInteractive => &mut self.sums.batch,
            Tier::InteractiveFast | Tier::InteractiveNormal => &mut self.sums.interactive,
        }
    }

    fn note(&mut self, request: &FinishedRequest) {
        let weight = if self.mean.prompt_tokens > 0.0 {
            MEAN_WEIGHT
        } else {
            1.0
        };
        let toward = |mean: f64, value: f64| mean + (value - mean) * weight;
        self.mean = FinishedRequest {
            prompt_tokens: toward(self.mean.prompt_tokens, request.prompt_tokens),
            uncached_tokens: toward(self.mean.uncached_tokens, request.uncached_tokens),
            output_tokens: toward(self.mean.output_tokens, request.output_tokens),
            duration_s: toward(self.mean.duration_s, request.duration_s),
            is_in_slo: false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter() -> DemandMeter {
        let meter = DemandMeter::default();
        meter.set_model(MeterModel {
            work: WorkModel {
                prefill_s: 0.1,
                prompt_token_s: 0.001,
                decode_step_s: 0.02,
                decode_request_s: 0.001,
                batch: 10.0,
            },
            output_tokens: 50.0,
            ttft_slo: Duration::from_secs(1),
        });
        meter
    }

    #[test]
    fn measured_tokens_count_before_expected_ones_and_cached_ones_cost_nothing() {
        let meter = meter();
        let expected = ExpectedRequest {
            prompt_tokens: 900,
            matched_tokens: 100,
            ..ExpectedRequest::default()
        };
        let outcome = Outcome {
            prompt_tokens: Some(1_000),
            cached_tokens: Some(800),
            completion_tokens: Some(100),
            ..Outcome::default()
        };
        meter.finished(&expected, Duration::from_secs(4), &outcome);
        let sums = meter.take().interactive;
        // 0.1 + 200 x 0.001 + 100 x (0.02 / 10 + 0.001)
        assert!((sums.work_s - 0.6).abs() < 1e-9, "{sums:?}");
        assert!((sums.kv_token_s - 4_200.0).abs() < 1e-9, "{sums:?}");
        assert_eq!(meter.take(), DemandParts::default(), "sums are taken once");
    }

    #[test]
    fn rejected_requests_are_demand_and_foreign_and_failed_ones_are_not() {
        let meter = meter();
        let expected = ExpectedRequest {
            prompt_tokens: 100,
            ..ExpectedRequest::default()
        };
        let failed = Outcome {
            status: 503,
            ..Outcome::default()
        };
        meter.finished(&expected, Duration::from_secs(1), &failed);
        let foreign = ExpectedRequest {
            is_foreign: true,
            ..expected
        };
        meter.finished(&foreign, Duration::from_secs(1), &Outcome::default());
        assert_eq!(meter.take(), DemandParts::default());
        meter.finished(&expected, Duration::from_secs(1), &Outcome::default());
        let one = meter.take().interactive;
        meter.rejected(Tier::NonInteractive);
        let rejected = meter.take().batch;
        assert!(
            (rejected.work_s - one.work_s).abs() < 1e-9 && rejected.requests_in_slo < 0.5,
            "{rejected:?}"
        );
    }
}
