//! When a request would have its first token, if it came now and nothing else did: for an oracle.
//!
//! The scheduler's steps are played forward with the decoding sequences taken together: how many there are, how much context
//! they read, and when each of them ends. Playing a copy of the engine was rejected: a copy of a large pool costs more than
//! the whole forecast, and an oracle asks every replica about every request.
//!
//! Exact as long as memory is not what decides. Where it is, blocks that several sequences hold count as free when the first
//! of them ends, and no sequence is preempted.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use super::blocks::BlockHash;
use super::engine::{Engine, nanos};
use super::request::RequestId;
use super::sequence::Sequence;
use super::timing::Work;

/// A request that may come.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Tokens in its prompt.
    pub prompt_tokens: u32,
    /// Block hashes of the prompt, as in [`super::Request`].
    pub blocks: &'a [BlockHash],
    /// Prompt tokens that others will have computed first, who are not here yet.
    pub ahead_tokens: u64,
}

/// Forecast of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// From now to its first token.
    pub first_token: Duration,
    /// Prompt tokens that it finds in the cache now.
    pub cached_tokens: u32,
}

/// A prompt that is being computed, or waits for it.
#[derive(Debug, Clone, Copy)]
struct Prompt {
    computed: u64,
    left: u64,
    /// Tokens to be generated.
    output: u64,
    /// Blocks that it takes.
    blocks: u64,
    /// Whether the sequence is the forecast request.
    asked: bool,
}

/// The steps to come.
struct Play<'a> {
    engine: &'a Engine,
    at_ns: u64,
    /// Steps played.
    step: u64,
    decoding: u64,
    context: u64,
    /// The decoding sequences by the step that brings their last token: their context less the number of the step, and their
    /// blocks by then.
    ends: BinaryHeap<Reverse<(u64, i64, u64)>>,
    computing: Vec<Prompt>,
    waiting: VecDeque<Prompt>,
    free: u64,
    /// Tokens that decoding added since.
    grown: u64,
}

impl Engine {
    /// When this request would have its first token. `now` must be the time of the last call that passed one.
    /// `uncached` tells of each waiting request how many prompt tokens it will not find.
    pub fn forecast(
        &self,
        now: Duration,
        arrival: &Arrival<'_>,
        uncached: impl Fn(RequestId) -> u32,
    ) -> Forecast {
        let block_tokens = u64::from(self.config.block_tokens);
        let findable =
            (arrival.prompt_tokens.saturating_sub(1) / self.config.block_tokens) as usize;
        let matched = self
            .pool
            .matched(arrival.blocks.get(..findable).unwrap_or(arrival.blocks));
        let cached_tokens = matched.blocks * self.config.block_tokens;
        let mut play = Play::new(self, nanos(now));
        for &slot in &self.waiting {
            if let Some(sequence) = self.sequence(slot) {
                let left = u64::from(uncached(sequence.id)).clamp(1, u64::from(sequence.total()));
                play.waiting
                    .push_back(Prompt::of(sequence, left, block_tokens));
            }
        }
        if arrival.ahead_tokens > 0 {
            play.waiting.push_back(Prompt {
                computed: 0,
                left: arrival.ahead_tokens,
                output: 1,
                blocks: 0,
                asked: false,
            });
        }
        play.waiting.push_back(Prompt {
            computed: u64::from(cached_tokens),
            left: u64::from(arrival.prompt_tokens.saturating_sub(cached_tokens).max(1)),
            output: 1,
            // What is cached and free must be taken out of what is free as well.
            blocks: u64::from(arrival.prompt_tokens).div_ceil(block_tokens)
                - u64::from(matched.blocks)
                + u64::from(matched.free),
            asked: true,
        });
        let first_ns = play.run();
        Forecast {
            first_token: Duration::from_nanos(first_ns).saturating_sub(now),
            cached_tokens,
        }
    }
}

impl<'a> Play<'a> {
    /// The engine's state after the step in progress.
    fn new(engine: &'a Engine, now_ns: u64) -> Self {
        let mut play = Self {
            engine,
            at_ns: engine
                .step
                .as_ref()
                .map_or(now_ns, |step| step.next_end_ns(&engine.config.timing)),
            step: 0,
            decoding: 0,
            context: 0,
            ends: BinaryHeap::with_capacity(engine.running.len()),
            computing: Vec::new(),
            waiting: VecDeque::with_capacity(engine.waiting.len() + 2),
            free: u64::from(engine.pool.free()),
            grown: 0,
        };
        let block_tokens = u64::from(engine.config.block_tokens);
        let scheduled = engine.step.as_ref().map(|step| step.scheduled.as_slice());
        let mut scheduled = scheduled.unwrap_or_default();
        for &slot in &engine.running {
            let Some(sequence) = engine.sequence(slot) else {
                continue;
            };
            // Steps list sequences in the order in which they run.
            let tokens = match scheduled.split_first() {
                Some((&(first, tokens), rest)) if first == slot => {
                    scheduled = rest;
                    u64::from(tokens)
                }
                _ => 0,
            };
            let left = u64::from(sequence.uncomputed()).saturating_sub(tokens);
            let mut prompt = Prompt::of(sequence, left, block_tokens);
            if left > 0 {
                play.free = play.free.saturating_sub(left.div_ceil(block_tokens));
                play.computing.push(prompt);
            } else {
                prompt.output = prompt.output.saturating_sub(1);
                play.decode(&prompt);
            }
        }
        play
    }

    /// Steps until the request that is asked for has its first token; when that is.
    fn run(&mut self) -> u64 {
        loop {
            let (work, asked) = self.schedule();
            if work == Work::default() {
                // Nothing runs and nothing fits: it never will, and the request would be refused.
                return u64::MAX;
            }
            self.at_ns = self
                .at_ns
                .saturating_add(self.engine.config.timing.step_ns(&work));
            self.complete();
            if asked {
                return self.at_ns;
            }
        }
    }

    /// Puts the next step together; whether it brings the token that is asked for.
    fn schedule(&mut self) -> (Work, bool) {
        let config = &self.engine.config;
        let mut budget = u64::from(config.step_tokens_max).saturating_sub(self.decoding);
        let mut work = Work {
            decode_sequences: self.decoding,
            decode_context_tokens: self.context,
            ..Work::default()
        };
        let mut asked = false;
        for prompt in &mut self.computing {
            asked |= prompt.compute(&mut budget, &mut work);
        }
        while budget > 0
            && self.decoding + (self.computing.len() as u64) < u64::from(config.sequences_max)
            && let Some(mut prompt) = self.waiting.front().copied()
        {
            let grown = self.grown / u64::from(config.block_tokens);
            if prompt.blocks > self.free.saturating_sub(grown) {
                break;
            }
            self.free -= prompt.blocks;
            self.waiting.pop_front();
            asked |= prompt.compute(&mut budget, &mut work);
            self.computing.push(prompt);
        }
        (work, asked)
    }

    /// The step is over.
    fn complete(&mut self) {
        self.step += 1;
        self.context += self.decoding;
        self.grown += self.decoding;
        while let Some(Reverse((end, base, blocks))) = self.ends.pop() {
            if end > self.step {
                self.ends.push(Reverse((end, base, blocks)));
                break;
            }
            self.decoding -= 1;
            let context = base.saturating_add_unsigned(self.step);
            self.context = self.context.saturating_sub(context.unsigned_abs());
            self.free += blocks;
        }
        let mut computing = core::mem::take(&mut self.computing);
        computing.retain(|prompt| {
            if prompt.left > 0 {
                return true;
            }
            let mut prompt = *prompt;
            prompt.output = prompt.output.saturating_sub(1);
            self.decode(&prompt);
            false
        });
        self.computing = computing;
    }

    /// A prompt is computed and its first token out.
    fn decode(&mut self, prompt: &Prompt) {
        if prompt.output == 0 {
            self.free += prompt.blocks;
            return;
        }
        self.decoding += 1;
        self.context += prompt.computed;
        let base = i64::try_from(prompt.computed)
            .unwrap_or(i64::MAX)
            .saturating_sub_unsigned(self.step);
        let blocks = prompt.blocks + prompt.output / u64::from(self.engine.config.block_tokens);
        self.ends
            .push(Reverse((self.step + prompt.output, base, blocks)));
    }
}

impl Prompt {
    /// A sequence with `left` tokens to compute.
    fn of(sequence: &Sequence, left: u64, block_tokens: u64) -> Self {
        let total = u64::from(sequence.total());
        Self {
            computed: total.saturating_sub(left),
            left,
            output: u64::from(sequence.output_tokens.saturating_sub(sequence.generated)),
            blocks: total.div_ceil(block_tokens),
            asked: false,
        }
    }

    /// Computes what fits the step; whether it brings the token that is asked for.
    fn compute(&mut self, budget: &mut u64, work: &mut Work) -> bool {
        let tokens = self.left.min(*budget);
        if tokens > 0 {
            work.add_prefill(self.computed, tokens);
            self.computed += tokens;
            self.left -= tokens;
            *budget -= tokens;
        }
        self.asked && self.left == 0
    }
}
