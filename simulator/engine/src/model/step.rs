//! The step that the simulated engine computes at present.
//!
//! An engine computes one batch at a time: prompt chunks and one token for each decoding sequence. A step has a start, its
//! work, and an end that the timing model gives. Equal decode steps in a row are kept as one run, so that a long answer
//! costs the simulation a few events.

use super::sequence::SequenceIndex;
use super::timing::{StepCost, Work};

/// A step, or a run of equal decode steps.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) started_ns: u64,
    pub(super) work: Work,
    /// Decode steps in this run; 1 for a step that prefills.
    pub(super) steps: u64,
    /// The sequences in it and the tokens each gets computed (per step of the run).
    pub(super) scheduled: Vec<(SequenceIndex, u32)>,
    /// End of the step, when the timing changed during it.
    pub(super) fixed_end_ns: Option<u64>,
}

impl Step {
    pub(super) fn ends_ns(&self, timing: &StepCost) -> u64 {
        self.fixed_end_ns.unwrap_or_else(|| {
            self.started_ns
                .saturating_add(self.span_ns(timing, self.steps))
        })
    }

    /// When the next whole step of this run ends: what comes now can be in the one after that.
    pub(super) fn next_end_ns(&self, timing: &StepCost) -> u64 {
        let next = || self.started_ns.saturating_add(self.span_ns(timing, 1));
        self.fixed_end_ns.unwrap_or_else(next)
    }

    /// Pins the end, so that another timing does not move it.
    pub(super) fn fix_end(&mut self, timing: &StepCost) {
        self.fixed_end_ns = Some(self.ends_ns(timing));
    }

    /// The sequence went away; the step still takes as long as it does.
    pub(super) fn forget(&mut self, slot: SequenceIndex) {
        self.scheduled.retain(|&(scheduled, _)| scheduled != slot);
    }

    fn span_ns(&self, timing: &StepCost, steps: u64) -> u64 {
        if self.work.prefill_tokens > 0 {
            timing.step_ns(&self.work)
        } else {
            timing.decode_run_ns(&self.work, steps)
        }
    }

    /// Whole steps of this run that are over at `now_ns`; never the last one.
    pub(super) fn elapsed(&self, timing: &StepCost, now_ns: u64) -> u64 {
        let since = now_ns.saturating_sub(self.started_ns);
        let is_over = |steps| self.span_ns(timing, steps) <= since;
        largest(0, self.steps.saturating_sub(1), is_over)
    }

    pub(super) fn skip(&mut self, timing: &StepCost, steps: u64) {
        self.started_ns += self.span_ns(timing, steps);
        self.work.decode_context_tokens += self.work.decode_sequences * steps;
        self.steps -= steps;
    }
}

/// The largest number from `low` to `high` that satisfies a condition of all smaller ones; `low` satisfies it.
pub(super) fn largest(mut low: u64, mut high: u64, is_met: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = (low + high).div_ceil(2);
        if is_met(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// A sequence fills a block after so many steps of a run. Ordered as single steps would come to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockBoundary {
    pub(super) at: u32,
    pub(super) order: u32,
    pub(super) slot: SequenceIndex,
}
