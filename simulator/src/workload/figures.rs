//! Figures of a trace, as papers give them, for tests and for the command line.

use std::collections::HashSet;

use super::trace::{BLOCK_TOKENS, Trace};

/// Figures of a trace. Shares are of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceFigures {
    /// Requests a second, on average.
    pub requests_per_s: f64,
    /// Mean length of a prompt, tokens.
    pub input_mean: f64,
    /// Half the prompts are shorter, tokens.
    pub input_median: f64,
    /// 90 % are shorter, tokens.
    pub input_p90: f64,
    /// Mean length of an answer, tokens.
    pub output_mean: f64,
    /// Half the answers are shorter, tokens.
    pub output_median: f64,
    /// Prompt tokens in blocks that an earlier request had: the hit ratio of one cache without bounds.
    pub seen_share: f64,
    /// Requests of whose prompt at least half was in an earlier one.
    pub half_seen: f64,
    /// Requests that share more than their first block with an earlier one.
    pub continued: f64,
}

impl TraceFigures {
    /// The figures of a trace; its prompts are taken by their blocks.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let lines = trace.lines();
        let count = lines.len().max(1) as f64;
        let mut known: HashSet<u64> = HashSet::new();
        let (mut seen_tokens, mut half, mut continued) = (0_u64, 0_u32, 0_u32);
        for line in lines {
            let blocks = line
                .hash_ids
                .iter()
                .take_while(|id| known.contains(id))
                .count();
            let seen = (blocks as u64 * u64::from(BLOCK_TOKENS)).min(u64::from(line.input_length));
            known.extend(&line.hash_ids);
            seen_tokens += seen;
            half += u32::from(seen * 2 >= u64::from(line.input_length));
            continued += u32::from(blocks > 1);
        }
        let inputs = sorted(lines.iter().map(|line| line.input_length));
        let outputs = sorted(lines.iter().map(|line| line.output_length));
        let first = lines.first().map_or(0.0, |line| line.timestamp);
        let last = lines.last().map_or(0.0, |line| line.timestamp);
        let total: u64 = inputs.iter().map(|tokens| u64::from(*tokens)).sum();
        Self {
            requests_per_s: count / ((last - first) / 1_000.0).max(1e-3),
            input_mean: total as f64 / count,
            input_median: quantile(&inputs, 0.5),
            input_p90: quantile(&inputs, 0.9),
            output_mean: outputs.iter().map(|tokens| f64::from(*tokens)).sum::<f64>() / count,
            output_median: quantile(&outputs, 0.5),
            seen_share: seen_tokens as f64 / (total as f64).max(1.0),
            half_seen: f64::from(half) / count,
            continued: f64::from(continued) / count,
        }
    }
}

fn sorted(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values
}

/// The value below which this share of the sorted ones lies.
pub(super) fn quantile(sorted: &[u32], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .map_or(0.0, |value| f64::from(*value))
}
