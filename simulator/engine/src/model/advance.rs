//! The effects of steps on the engine: tokens, blocks and events.

use core::time::Duration;

use super::engine::Engine;
use super::request::{Event, EventKind};
use super::step::{BlockBoundary, Step};

/// Action at a [`BlockBoundary`]: the full block becomes findable, and the next step takes another.
enum BoundaryAction {
    Name,
    Hold,
}

impl Engine {
    /// Applies the steps of the current run that are over, so that gauges and caches are right at `now_ns`.
    pub(super) fn advance_run(&mut self, now_ns: u64) {
        let Some(mut step) = self.step.take() else {
            return;
        };
        if step.steps > 1 {
            let over = step.elapsed(&self.config.timing, now_ns);
            if over > 0 {
                let before_ns = step.started_ns;
                step.skip(&self.config.timing, over);
                self.totals.busy_ns += step.started_ns - before_ns;
                self.decode(&step, over);
                self.grow_one(&step);
            }
        }
        self.step = Some(step);
    }

    /// Shortens a run to the step that is under way, because what follows may differ now.
    pub(super) fn cut_run(&mut self) {
        if let Some(step) = &mut self.step {
            step.steps = 1;
        }
    }

    /// The step in progress is over.
    pub(super) fn complete(&mut self, at_ns: u64) {
        let Some(step) = self.step.take() else { return };
        self.totals.busy_ns += at_ns.saturating_sub(step.started_ns);
        if step.work.prefill_tokens == 0 {
            self.decode(&step, step.steps);
        } else {
            self.compute(&step);
        }
        self.report(&step, at_ns);
        self.spare = step.scheduled;
        self.spare.clear();
    }

    /// Gives every sequence of a run `steps` more tokens.
    ///
    /// Blocks are named and taken in the order in which single steps would have: with little memory, or several copies of one
    /// content, that order decides what is forgotten and what is found later.
    fn decode(&mut self, step: &Step, steps: u64) {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        let block_tokens = self.config.block_tokens;
        let mut boundaries = core::mem::take(&mut self.boundaries);
        for (order, &(slot, _)) in (0_u32..).zip(&step.scheduled) {
            let Some(Some(sequence)) = self.sequences.get_mut(slot as usize) else {
                continue;
            };
            let first = block_tokens - sequence.computed % block_tokens;
            boundaries.extend(
                (first..=steps)
                    .step_by(block_tokens as usize)
                    .map(|at| BlockBoundary { at, order, slot }),
            );
            sequence.computed += steps;
            sequence.generated += steps;
            self.totals.generation_tokens += u64::from(steps);
        }
        boundaries.sort_unstable();
        for same in boundaries.chunk_by(|a, b| a.at == b.at) {
            for boundary in same {
                self.cross(boundary, steps, BoundaryAction::Name);
            }
            for boundary in same.iter().filter(|boundary| boundary.at < steps) {
                self.cross(boundary, steps, BoundaryAction::Hold);
            }
        }
        boundaries.clear();
        self.boundaries = boundaries;
    }

    fn cross(&mut self, boundary: &BlockBoundary, steps: u32, action: BoundaryAction) {
        let block_tokens = self.config.block_tokens;
        let Some(Some(sequence)) = self.sequences.get_mut(boundary.slot as usize) else {
            return;
        };
        let tokens = sequence.computed - steps + boundary.at;
        match action {
            BoundaryAction::Name => sequence.name(&mut self.pool, tokens, block_tokens),
            BoundaryAction::Hold => {
                // The run was planned to fit, so this cannot fail.
                let held = sequence.grow(&mut self.pool, tokens + 1, block_tokens);
                debug_assert!(held, "a run outgrew the pool it was planned for");
            }
        }
    }

    /// Holds the blocks for the step of a run that has just begun.
    fn grow_one(&mut self, step: &Step) {
        for &(slot, _) in &step.scheduled {
            let Some(Some(sequence)) = self.sequences.get_mut(slot as usize) else {
                continue;
            };
            let tokens = sequence.computed + 1;
            let grown = sequence.grow(&mut self.pool, tokens, self.config.block_tokens);
            debug_assert!(grown, "a run outgrew the pool it was planned for");
        }
    }

    /// Advances the sequences of a step that prefilled. Their blocks were named when it began.
    fn compute(&mut self, step: &Step) {
        for &(slot, tokens) in &step.scheduled {
            let Some(Some(sequence)) = self.sequences.get_mut(slot as usize) else {
                continue;
            };
            sequence.computed += tokens;
            if sequence.uncomputed() == 0 {
                sequence.generated += 1;
                self.totals.generation_tokens += 1;
            }
        }
        self.head_blocked = false;
    }

    /// Tells what the end of a step brought, and lets go of what is done.
    fn report(&mut self, step: &Step, at_ns: u64) {
        let at = Duration::from_nanos(at_ns);
        let mut finished = false;
        for &(slot, _) in &step.scheduled {
            let Some(Some(sequence)) = self.sequences.get_mut(slot as usize) else {
                continue;
            };
            if sequence.uncomputed() > 1 || sequence.generated == 0 {
                continue;
            }
            let id = sequence.id;
            let mut push = |kind| self.events.push_back(Event { at, id, kind });
            if sequence.take_first() {
                let cached_tokens = sequence.cached_tokens.unwrap_or(0);
                sequence.first_token_ns = at_ns;
                let waited_ns = at_ns.saturating_sub(sequence.arrived_ns);
                self.totals.first_tokens.record(waited_ns);
                self.totals.prompt_tokens += u64::from(sequence.prompt_tokens);
                push(EventKind::FirstToken { cached_tokens });
            } else if sequence.take_chunk() {
                let generated = sequence.generated;
                push(EventKind::Tokens { generated });
            }
            if sequence.generated >= sequence.output_tokens {
                push(EventKind::Finished(sequence.usage()));
                self.totals.record_end(sequence, at_ns);
                self.remove(slot);
                finished = true;
            }
        }
        if finished {
            self.head_blocked = false;
            let sequences = &self.sequences;
            self.running
                .retain(|&slot| sequences.get(slot as usize).is_some_and(Option::is_some));
        }
    }
}
