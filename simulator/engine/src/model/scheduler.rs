//! The scheduler of vLLM v1: chooses the tokens that the next step computes.
//!
//! Every step has a budget of tokens. Running requests come first, in the order in which they started: one token each
//! while they decode, a chunk of their prompt before that. What is left of the budget goes to waiting requests, first come
//! first served; the last of them may get only a chunk. A running request that needs a block when none is free takes those
//! of the request that started last, which goes back to the head of the queue and will be computed again (its blocks may
//! still be cached by then). No request starts in a step that had to preempt.
//!
//! A waiting request starts only when its whole prompt fits the free blocks, as vLLM does by default, or long prompts
//! would start only to be preempted half way. A request
//! without a slot for its adapter is skipped. One that does not fit is looked at again when something ended, was aborted or
//! preempted, or more prompt was computed; not after mere decode steps, which only take blocks. (vLLM looks every time. The
//! difference would be a request that waits for the very text another is generating.)

use super::engine::Engine;
use super::sequence::SequenceIndex;
use super::step::{Step, largest};
use super::timing::Work;

/// A step that is being put together.
struct Plan {
    work: Work,
    budget: u32,
    scheduled: Vec<(SequenceIndex, u32)>,
    /// Something is left over that the next step may start, so this one must not stand for several.
    unfinished: bool,
}

impl Engine {
    /// Begins the next step at `now_ns`, if there is anything to do.
    pub(super) fn schedule(&mut self, now_ns: u64) {
        debug_assert!(self.step.is_none(), "one step at a time");
        self.starts_ns = None;
        let mut plan = Plan {
            work: Work::default(),
            budget: self.config.step_tokens_max,
            scheduled: core::mem::take(&mut self.spare),
            unfinished: false,
        };
        let preempted = self.schedule_running(&mut plan);
        if !preempted || self.running.is_empty() {
            self.schedule_waiting(&mut plan, now_ns);
        }
        self.mark_seen();
        if plan.scheduled.is_empty() {
            self.spare = plan.scheduled;
            return;
        }
        plan.unfinished |= preempted;
        let steps = if plan.unfinished || plan.work.prefill_tokens > 0 {
            1
        } else {
            self.run_length(&plan)
        };
        self.step = Some(Step {
            started_ns: now_ns,
            work: plan.work,
            steps,
            scheduled: plan.scheduled,
            fixed_end_ns: None,
        });
    }

    /// Gives running requests their tokens. True if one had to be preempted.
    fn schedule_running(&mut self, plan: &mut Plan) -> bool {
        let mut preempted = false;
        let mut index = 0;
        while let Some(&slot) = self.running.get(index) {
            let Some(sequence) = self.sequence(slot) else {
                break;
            };
            let tokens = sequence.uncomputed().min(plan.budget);
            if tokens == 0 {
                plan.unfinished = true;
                break;
            }
            while !self.hold(slot, tokens) {
                preempted = true;
                if self.preempt_last() == Some(slot) {
                    return true;
                }
            }
            self.add(plan, slot, tokens);
            index += 1;
        }
        preempted
    }

    /// Starts waiting requests while there is room.
    fn schedule_waiting(&mut self, plan: &mut Plan, now_ns: u64) {
        let mut at = 0;
        while let Some(&slot) = self.waiting.get(at) {
            if self.running.len() >= self.config.sequences_max as usize || self.head_blocked {
                return;
            }
            if plan.budget == 0 {
                plan.unfinished = true;
                return;
            }
            if !self.has_adapter_slot(slot) {
                at += 1;
                continue;
            }
            if !self.start(slot, now_ns) {
                self.head_blocked = true;
                return;
            }
            plan.work.load_ns += self.load_adapter(slot);
            self.waiting.remove(at);
            self.running.push(slot);
            let Some(sequence) = self.sequence(slot) else {
                return;
            };
            let tokens = sequence.uncomputed().min(plan.budget);
            let held = self.hold(slot, tokens);
            debug_assert!(held, "the whole prompt was found to fit");
            self.add(plan, slot, tokens);
        }
    }

    /// Finds what of a waiting request is cached and holds it, if all the rest of it fits the pool.
    fn start(&mut self, slot: SequenceIndex, now_ns: u64) -> bool {
        let block_tokens = self.config.block_tokens;
        let Some(Some(sequence)) = self.sequences.get_mut(slot as usize) else {
            return false;
        };
        let matched = self.pool.matched(sequence.findable(block_tokens));
        let needed = sequence.total().div_ceil(block_tokens) - matched.blocks;
        if needed > self.pool.free() - matched.free {
            return false;
        }
        sequence.hold_prefix(&mut self.pool, matched.blocks, block_tokens);
        if sequence.cached_tokens.is_none() {
            sequence.cached_tokens = Some(sequence.computed);
            sequence.started_ns = now_ns;
            self.totals.prefix_query_tokens += u64::from(sequence.prompt_tokens);
            self.totals.prefix_hit_tokens += u64::from(sequence.computed);
        }
        true
    }

    /// Holds the blocks for the next `tokens` of a sequence.
    fn hold(&mut self, slot: SequenceIndex, tokens: u32) -> bool {
        let Some(Some(sequence)) = self.sequences.get_mut(slot as usize) else {
            return true;
        };
        let tokens = sequence.computed + tokens;
        sequence.grow(&mut self.pool, tokens, self.config.block_tokens)
    }

    fn add(&mut self, plan: &mut Plan, slot: SequenceIndex, tokens: u32) {
        let Some(Some(sequence)) = self.sequences.get_mut(slot as usize) else {
            return;
        };
        let computed = sequence.computed;
        if sequence.decodes() {
            plan.work.add_decode(u64::from(computed));
        } else {
            plan.work.add_prefill(computed.into(), tokens.into());
            // A block is findable from the moment it is scheduled, so requests that start in the same step with the same
            // prefix compute it once.
            sequence.name(&mut self.pool, computed + tokens, self.config.block_tokens);
        }
        plan.budget -= tokens;
        plan.scheduled.push((slot, tokens));
    }

    pub(super) fn preempt_last(&mut self) -> Option<SequenceIndex> {
        let slot = self.running.pop()?;
        if let Some(Some(sequence)) = self.sequences.get_mut(slot as usize) {
            sequence.preempt(&mut self.pool);
        }
        self.waiting.push_front(slot);
        self.totals.preemptions += 1;
        self.head_blocked = false;
        Some(slot)
    }

    fn mark_seen(&mut self) {
        let unseen = core::mem::take(&mut self.unseen);
        let waiting = self.waiting.iter().rev().take(unseen);
        for &slot in waiting.chain(self.running.iter().rev().take(unseen)) {
            if let Some(Some(sequence)) = self.sequences.get_mut(slot as usize) {
                sequence.unseen = false;
            }
        }
    }

    /// Number of equal decode steps that may pass as one: until a sequence emits an event, or the pool would run out.
    fn run_length(&self, plan: &Plan) -> u64 {
        let planned = || {
            plan.scheduled
                .iter()
                .filter_map(|&(slot, _)| self.sequence(slot))
        };
        let steps_max = planned()
            .map(|sequence| sequence.tokens_to_event())
            .min()
            .map_or(1, |tokens| u64::from(tokens.max(1)));
        let block_tokens = self.config.block_tokens;
        let fits = |steps: u64| {
            let steps = u32::try_from(steps).unwrap_or(u32::MAX);
            let missing = planned()
                .map(|sequence| sequence.missing(sequence.computed + steps, block_tokens))
                .map(u64::from);
            missing.sum::<u64>() <= u64::from(self.pool.free())
        };
        if fits(steps_max) {
            return steps_max;
        }
        largest(1, steps_max - 1, fits)
    }
}
