//! Duration of a step of the engine.
//!
//! A step prefills some prompt tokens and gives each decoding sequence one token, in one pass over the weights. The
//! coefficients are fitted to published measurements (`presets.rs`). Interpolation in measured tables would have no value for a
//! chunk of a long prompt mixed with forty decodes, the usual step of a busy engine. The time:
//!
//! - prefill: at least a floor (the step reads all weights), then linear in the tokens of the step, steeper past a knee
//!   (activations no longer fit the fast memories), plus a term for the attention of each token to all before it (`pairs`);
//! - decode: a base for reading the weights, a term for each sequence, a steeper one past a knee, and a term for each token
//!   of context whose keys and values are read;
//! - together: the weights are read once, so a mixed step costs the larger of the two bases plus both variable parts.
//!
//! All numbers are integers, so that a run is the same on every machine. The decode coefficients are whole nanoseconds, so the
//! time of `k` equal steps has an exact closed form: the model jumps over hundreds of decode steps at once.

/// Sequences in a step from which each costs more, on every measured engine.
pub const DECODE_KNEE_SEQUENCES: u64 = 32;

/// Coefficients of the time of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepCost {
    /// The least time of a step that prefills anything, ns.
    pub prefill_floor_ns: u64,
    /// Constant part of a prefill step, ns.
    pub prefill_fixed_ns: u64,
    /// Per prompt token computed, ps.
    pub prefill_token_ps: u64,
    /// Tokens in one step from which each costs more.
    pub prefill_knee_tokens: u64,
    /// Added per token past the knee, ps.
    pub prefill_past_knee_token_ps: u64,
    /// Per pair of a computed token and one it attends to, fs.
    pub prefill_pair_fs: u64,
    /// Time of a decode step apart from what its sequences add, ns.
    pub decode_base_ns: u64,
    /// Per sequence in the step, ns.
    pub decode_sequence_ns: u64,
    /// Added per sequence past [`DECODE_KNEE_SEQUENCES`], ns.
    pub decode_past_knee_sequence_ns: u64,
    /// Per token of context read, over all sequences, ns.
    pub decode_context_token_ns: u64,
}

/// The work of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Prompt tokens to compute.
    pub prefill_tokens: u64,
    /// Pairs of such a token and one that it attends to.
    pub prefill_pairs: u64,
    /// Sequences that get one more token.
    pub decode_sequences: u64,
    /// Tokens of context of those sequences.
    pub decode_context_tokens: u64,
    /// Time to load adapters first, ns.
    pub load_ns: u64,
}

impl Work {
    /// Adds a chunk of `tokens` whose prefix of `before` tokens is computed already.
    pub fn add_prefill(&mut self, before: u64, tokens: u64) {
        self.prefill_tokens += tokens;
        self.prefill_pairs += tokens * before + tokens * (tokens + 1) / 2;
    }

    /// Adds one sequence that decodes with `context` tokens before it.
    pub fn add_decode(&mut self, context: u64) {
        self.decode_sequences += 1;
        self.decode_context_tokens += context;
    }
}

impl StepCost {
    /// The time of one step, ns.
    pub fn step_ns(&self, work: &Work) -> u64 {
        let has_decode = work.decode_sequences > 0;
        let decode_base = self.decode_base_ns * u64::from(has_decode);
        work.load_ns + decode_base.max(self.prefill_ns(work)) + self.decode_added_ns(work)
    }

    /// The time of `steps` pure decode steps in a row over the same sequences, each of which grows by one token a step, ns.
    /// Equal to the sum of [`StepCost::step_ns`] over them.
    pub fn decode_run_ns(&self, work: &Work, steps: u64) -> u64 {
        let first = self.decode_base_ns + self.decode_added_ns(work);
        let growth = self.decode_context_token_ns * work.decode_sequences;
        let triangle = steps * steps.saturating_sub(1) / 2;
        steps * first + growth * triangle
    }

    /// The timing of an engine that is `factor` times slower.
    pub fn slowed(&self, factor: f64) -> Self {
        let scale = |value: u64| scale(value, factor);
        Self {
            prefill_floor_ns: scale(self.prefill_floor_ns),
            prefill_fixed_ns: scale(self.prefill_fixed_ns),
            prefill_token_ps: scale(self.prefill_token_ps),
            prefill_knee_tokens: self.prefill_knee_tokens,
            prefill_past_knee_token_ps: scale(self.prefill_past_knee_token_ps),
            prefill_pair_fs: scale(self.prefill_pair_fs),
            decode_base_ns: scale(self.decode_base_ns),
            decode_sequence_ns: scale(self.decode_sequence_ns),
            decode_past_knee_sequence_ns: scale(self.decode_past_knee_sequence_ns),
            decode_context_token_ns: scale(self.decode_context_token_ns),
        }
    }

    fn prefill_ns(&self, work: &Work) -> u64 {
        if work.prefill_tokens == 0 {
            return 0;
        }
        let linear = self.prefill_fixed_ns + self.prefill_token_ps * work.prefill_tokens / 1_000;
        let past = work.prefill_tokens.saturating_sub(self.prefill_knee_tokens);
        let steep = self.prefill_past_knee_token_ps * past / 1_000;
        let attention = self.prefill_pair_fs * work.prefill_pairs / 1_000_000;
        linear.max(self.prefill_floor_ns) + steep + attention
    }

    fn decode_added_ns(&self, work: &Work) -> u64 {
        let past = work.decode_sequences.saturating_sub(DECODE_KNEE_SEQUENCES);
        self.decode_sequence_ns * work.decode_sequences
            + self.decode_past_knee_sequence_ns * past
            + self.decode_context_token_ns * work.decode_context_tokens
    }
}

fn scale(value: u64, factor: f64) -> u64 {
    (value as f64 * factor.clamp(0.001, 1_000.0)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: StepCost = StepCost {
        prefill_floor_ns: 50_000_000,
        prefill_fixed_ns: 10_000_000,
        prefill_token_ps: 100_000_000,
        prefill_knee_tokens: 2_048,
        prefill_past_knee_token_ps: 50_000_000,
        prefill_pair_fs: 1_000_000,
        decode_base_ns: 40_000_000,
        decode_sequence_ns: 100_000,
        decode_past_knee_sequence_ns: 200_000,
        decode_context_token_ns: 500,
    };

    #[test]
    fn a_run_of_decode_steps_takes_as_long_as_its_steps() {
        let mut work = Work {
            decode_sequences: 40,
            decode_context_tokens: 12_345,
            ..Work::default()
        };
        let run = TIMING.decode_run_ns(&work, 100);
        let mut sum = 0;
        for _ in 0..100 {
            sum += TIMING.step_ns(&work);
            work.decode_context_tokens += work.decode_sequences;
        }
        assert_eq!(run, sum);
    }

    #[test]
    fn a_mixed_step_reads_the_weights_once() {
        let mut prefill = Work::default();
        prefill.add_prefill(0, 1_000);
        let mut decode = Work::default();
        decode.add_decode(100);
        let mixed = Work {
            decode_sequences: 1,
            decode_context_tokens: 100,
            ..prefill
        };
        let apart = TIMING.step_ns(&prefill) + TIMING.step_ns(&decode);
        assert!(TIMING.step_ns(&mixed) < apart);
        assert!(TIMING.step_ns(&mixed) > TIMING.step_ns(&prefill));
    }

    #[test]
    fn a_prompt_in_chunks_attends_to_as_many_pairs_as_whole() {
        let (mut whole, mut chunks) = (Work::default(), Work::default());
        whole.add_prefill(0, 1_000);
        chunks.add_prefill(0, 300);
        chunks.add_prefill(300, 700);
        assert_eq!(whole, chunks);
    }

    #[test]
    fn slowing_down_scales_a_step() {
        let work = Work {
            decode_sequences: 3,
            decode_context_tokens: 30,
            ..Work::default()
        };
        assert_eq!(TIMING.slowed(2.0).step_ns(&work), 2 * TIMING.step_ns(&work));
    }
}
