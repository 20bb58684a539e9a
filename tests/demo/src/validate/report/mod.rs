//! What a validation ends with: the figures of both systems, and how far they are apart.

mod show;

use serde::Serialize;

use crate::drive::Measured;
use crate::report::Described;
use crate::stats::{Summary, Times, round};
use isotherm_harness::MedianRange;

/// How far the hit ratios may be from each other.
const HIT_RATIO_APART_MAX: f64 = 0.03;
/// How far the simulator's median time to the first token may be from the real one, as a share of that.
const TTFT_APART_MAX: f64 = 0.20;

/// Both systems on one workload. This is `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was asked, and of what.
    pub workload: Described,
    /// How far the engine model is from measurements of real engines, a line for each preset.
    pub fits: Vec<String>,
    /// One for each policy.
    pub comparisons: Vec<Comparison>,
}

/// Both systems with one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The policy and the mode of pushing.
    pub scheme: String,
    /// Envoy, the service, engines.
    pub real: Figures,
    /// The simulator.
    pub simulated: Simulated,
    /// How far the simulator is from the real system on the same requests.
    pub apart: Apart,
    /// How far it is on what was recorded of them.
    pub recorded_apart: Apart,
    /// Whether all are within their limits, and nothing failed.
    pub holds: bool,
}

/// The simulator on one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Simulated {
    /// The way from the client to an engine and back, as it was given to the simulator.
    pub way: Way,
    /// On the requests that the real system got.
    pub meant: Figures,
    /// On what `isotherm record` recorded of them.
    pub recorded: Figures,
}

/// How far two systems are from each other.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Apart {
    /// Hit ratio of the simulator less the real one.
    pub hit_ratio: f64,
    /// Median time to the first token of the simulator over the real one, less 1.
    pub ttft_p50: f64,
}

impl Apart {
    fn new(real: &Figures, simulated: &Figures) -> Self {
        let ttft = simulated.ttft_ms.p50 / real.ttft_ms.p50.max(0.001);
        Self {
            hit_ratio: round(simulated.hit_ratio - real.hit_ratio),
            ttft_p50: round(ttft - 1.0),
        }
    }

    fn is_small(self) -> bool {
        self.hit_ratio.abs() <= HIT_RATIO_APART_MAX && self.ttft_p50.abs() <= TTFT_APART_MAX
    }
}

/// What a lone request takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Way {
    /// Median time to the first token in the real system, ms.
    pub real_ms: f64,
    /// The same without any way: the engine's own time, ms.
    pub engine_ms: f64,
}

/// The figures of one run, in the time of this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Requests with a complete answer.
    pub completed: usize,
    /// Requests without one.
    pub failed: usize,
    /// Cached tokens over prompt tokens, as the engines count them.
    pub hit_ratio: f64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// Time to the first token.
    pub ttft_ms: Summary,
    /// Time to the end of the answer.
    pub e2e_ms: Summary,
    /// Time in the service's queue.
    pub queue_ms: Summary,
}

impl Way {
    /// There and back, ms.
    #[must_use]
    pub fn ms(&self) -> f64 {
        self.real_ms - self.engine_ms
    }
}

impl Figures {
    /// The figures of a run of the real system.
    #[must_use]
    pub fn of(measured: &Measured) -> Self {
        let usage = measured.usage;
        Self::new(
            measured.completed,
            measured.failed,
            (usage.prompt, usage.cached, usage.output),
            [&measured.ttft, &measured.e2e, &measured.queued],
        )
    }

    /// From counts of requests, of tokens of prompts, in caches and of answers, and from times: first token, end, queue.
    pub(super) fn new(
        completed: usize,
        failed: usize,
        (prompt, cached, output): (u64, u64, u64),
        [ttft, e2e, queue]: [&Times; 3],
    ) -> Self {
        Self {
            completed,
            failed,
            hit_ratio: round(cached as f64 / prompt.max(1) as f64),
            prompt_tokens: prompt,
            output_tokens: output,
            ttft_ms: ttft.summary(),
            e2e_ms: e2e.summary(),
            queue_ms: queue.summary(),
        }
    }
}

impl Comparison {
    pub(super) fn new(scheme: &str, real: Figures, simulated: Simulated) -> Self {
        let apart = Apart::new(&real, &simulated.meant);
        let recorded_apart = Apart::new(&real, &simulated.recorded);
        let failed = real.failed + simulated.meant.failed + simulated.recorded.failed;
        Self {
            scheme: scheme.into(),
            holds: apart.is_small() && recorded_apart.is_small() && failed == 0,
            apart,
            recorded_apart,
            real,
            simulated,
        }
    }
}

impl Report {
    /// Whether the simulator is right about every policy.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.comparisons.iter().all(|comparison| comparison.holds)
    }
}

/// The value in the middle; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    MedianRange::of(values.iter().copied()).map_or(0.0, |spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn figures(cached: u64, ttft_ms: u64, failed: usize) -> Figures {
        let mut times = Times::default();
        times.record(Duration::from_millis(ttft_ms));
        Figures::new(10, failed, (1_000, cached, 5), [&times, &times, &times])
    }

    #[test]
    fn it_holds_within_three_points_and_a_fifth_when_nothing_fails() {
        let way = Way {
            real_ms: 12.0,
            engine_ms: 10.0,
        };
        let real = figures(500, 100, 0);
        let of = |meant, recorded| Simulated {
            way,
            meant,
            recorded,
        };
        let small = figures(500, 100, 0);
        let holds = |meant: Figures| {
            let meant_holds =
                Comparison::new("x", real.clone(), of(meant.clone(), small.clone())).holds;
            let recorded_holds = Comparison::new("x", real.clone(), of(small.clone(), meant)).holds;
            assert_eq!(meant_holds, recorded_holds);
            meant_holds
        };
        assert!(holds(figures(520, 115, 0)));
        assert!(!holds(figures(540, 100, 0)));
        assert!(!holds(figures(500, 75, 0)));
        assert!(!holds(figures(500, 125, 0)));
        assert!(!holds(figures(500, 100, 1)));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[3.0, 1.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }
}
