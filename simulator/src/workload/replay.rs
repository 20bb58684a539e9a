//! A trace as a workload: open loop, every request at its own time.

use core::time::Duration;

use super::trace::Trace;
use super::{Session, Workload};
use crate::prompt::{Piece, mix};

/// How a trace is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replay {
    /// How fast.
    pub pace: PlaybackRate,
    /// Number of requests to play, from the start of the trace.
    pub first: Option<usize>,
    /// Longer prompts are cut here, tokens.
    pub input_tokens_max: Option<u32>,
    /// Number of first requests that only warm the caches.
    pub warmup_requests: usize,
}

/// How fast a trace is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlaybackRate {
    /// A multiple of the recorded speed.
    SpeedUp(f64),
    /// Requests a second on average, with the recorded pattern.
    Rate(f64),
}

impl Default for Replay {
    /// The whole trace at its recorded speed.
    fn default() -> Self {
        Self {
            pace: PlaybackRate::SpeedUp(1.0),
            first: None,
            input_tokens_max: None,
            warmup_requests: 0,
        }
    }
}

impl Replay {
    /// DualMap's use of the conversation trace (A.2.1): the first 4,000 requests, 500 of them to warm up, prompts cut at
    /// 20,480 tokens.
    pub fn as_dual_map(requests_per_s: f64) -> Self {
        Self {
            pace: PlaybackRate::Rate(requests_per_s),
            first: Some(4_000),
            input_tokens_max: Some(20_480),
            warmup_requests: 500,
        }
    }

    /// The trace as a workload of this name.
    ///
    /// A trace that was recorded in one instant has no pattern: at a rate, its requests follow each other evenly.
    pub fn workload(&self, name: &str, trace: &Trace) -> Workload {
        let count = self.first.unwrap_or(usize::MAX).min(trace.lines().len());
        let lines = trace.lines().get(..count).unwrap_or_default();
        let start_ms = lines.first().map_or(0.0, |line| line.timestamp);
        let span_s = lines.last().map_or(0.0, |line| line.timestamp - start_ms) / 1_000.0;
        let at_s = |index: usize, ms: f64| {
            let recorded_s = (ms - start_ms) / 1_000.0;
            match self.pace {
                PlaybackRate::SpeedUp(factor) => recorded_s / factor,
                PlaybackRate::Rate(rate) if span_s > 0.0 => {
                    recorded_s * (count as f64 / rate / span_s)
                }
                PlaybackRate::Rate(rate) => index as f64 / rate,
            }
        };
        let regions = trace.regions();
        let tokens_max = self.input_tokens_max.unwrap_or(u32::MAX);
        let sessions = lines
            .iter()
            .zip(trace.sessions())
            .enumerate()
            .map(|(index, (line, session))| {
                let starts = duration(at_s(index, line.timestamp));
                let answer = line.answer.unwrap_or(UNREPEATED ^ index as u64);
                let answer = Piece::new(answer, line.output_length.max(1));
                let region = line.region.as_ref();
                let region = region.and_then(|name| regions.binary_search(name).ok());
                Session {
                    region: region.unwrap_or(0),
                    ..Session::one(mix(0, session), starts, line.prompt(tokens_max), answer)
                }
            })
            .collect();
        Workload {
            name: name.to_owned(),
            sessions,
            warmup_requests: self.warmup_requests,
            sends_until: None,
        }
    }
}

/// Answers that no prompt repeats; ids of traces are below 2^53.
const UNREPEATED: u64 = 1 << 63;

/// Seconds as a duration; what is none is the start.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

/// A number of requests, multiplied by `scale`; at least one.
pub(super) fn scaled(requests: usize, scale: f64) -> usize {
    (requests as f64 * scale).round().max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::trace::TraceLine;

    fn trace(times_ms: &[u32]) -> Trace {
        let line = |ms: &u32| TraceLine {
            timestamp: f64::from(*ms),
            input_length: 600,
            output_length: 3,
            hash_ids: vec![1, 2],
            ..TraceLine::default()
        };
        Trace::new(times_ms.iter().map(line).collect())
    }

    fn times_ms(replay: Replay, trace: &Trace) -> Vec<u128> {
        let workload = replay.workload("x", trace);
        workload
            .sessions
            .iter()
            .map(|session| session.starts.as_millis())
            .collect()
    }

    #[test]
    fn a_trace_is_played_at_the_wanted_rate() {
        let trace = trace(&[1_000, 2_000, 2_000, 5_000]);
        assert_eq!(
            times_ms(Replay::default(), &trace),
            [0, 1_000, 1_000, 4_000]
        );
        let twice = Replay {
            pace: PlaybackRate::SpeedUp(2.0),
            first: Some(3),
            ..Replay::default()
        };
        assert_eq!(times_ms(twice, &trace), [0, 500, 500]);
        let rate = Replay {
            pace: PlaybackRate::Rate(2.0),
            ..Replay::default()
        };
        assert_eq!(
            times_ms(rate, &trace),
            [0, 500, 500, 2_000],
            "4 requests in 2 s"
        );
        assert_eq!(
            times_ms(rate, &super::tests::trace(&[7, 7, 7])),
            [0, 500, 1_000]
        );
    }

    #[test]
    fn long_prompts_are_cut() {
        let replay = Replay {
            input_tokens_max: Some(520),
            ..Replay::default()
        };
        let workload = replay.workload("x", &trace(&[0]));
        assert_eq!(workload.sessions[0].steps[0].prompt.tokens(), 520);
    }
}
