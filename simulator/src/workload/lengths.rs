//! Lengths of prompts and answers as in Azure's conversation trace of 2023: 19,366 requests, mean 1,155 and 211 tokens.
//!
//! A mixture of ten pairs of log-normals, fitted by expectation maximisation on the logarithms: the trace has several
//! applications in it. Greatest distance of the cumulative distributions (Kolmogorov and Smirnov): prompts 0.033, answers
//! 0.022 (a single log-normal: 0.16 and 0.18); means within 0.2 %. Within a part the two lengths are independent: their
//! correlation in the trace, -0.11, is that of the parts (fit: -0.12).

use core::time::Duration;

use super::Session;
use super::rng::{LogNormal, SeededRng, within};
use crate::prompt::Prompt;

/// Lengths of a request, tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Prompt length in tokens.
    pub prompt: u32,
    /// Output length in tokens.
    pub answer: u32,
}

const PROMPT: (u32, u32) = (2, 14_050);
const ANSWER: (u32, u32) = (7, 1_000);

/// Median of a length and deviation of its logarithm.
type LengthFit = (f64, f64);
/// Weight, prompt, answer.
const PARTS: [(f64, LengthFit, LengthFit); 10] = [
    (0.242, (399.0, 0.041), (94.0, 0.247)),
    (0.166, (1_636.0, 0.549), (84.0, 0.407)),
    (0.153, (1_062.0, 0.049), (400.0, 0.038)),
    (0.126, (1_087.0, 0.088), (412.0, 0.054)),
    (0.089, (197.0, 0.08), (152.0, 0.351)),
    (0.076, (4_086.0, 0.03), (57.0, 0.501)),
    (0.053, (1_081.0, 0.064), (522.0, 0.185)),
    (0.039, (224.0, 0.499), (36.0, 0.988)),
    (0.034, (1_319.0, 0.03), (177.0, 0.201)),
    (0.021, (34.0, 1.003), (143.0, 0.286)),
];

/// Lengths of one request.
pub fn sample(rng: &mut SeededRng) -> Lengths {
    let part = rng.weighted(&PARTS, |(weight, ..)| *weight);
    let lengths = part.map(|(_, prompt, answer)| [*prompt, *answer]);
    let mut tokens = |(median, sigma)| LogNormal::new(median, sigma).sample(rng);
    let [prompt, answer] = lengths.map_or([1.0; 2], |lengths| lengths.map(&mut tokens));
    Lengths {
        prompt: within(prompt, PROMPT),
        answer: within(answer, ANSWER),
    }
}

/// A request of such lengths whose prompt occurs nowhere else.
pub fn request(starts: Duration, rng: &mut SeededRng) -> Session {
    let lengths = sample(rng);
    let prompt = Prompt::new([rng.text(lengths.prompt)]);
    let key = rng.key();
    let answer = rng.text(lengths.answer.max(1));
    Session::one(key, starts, prompt, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quantiles of the trace's lengths.
    const PROMPTS: [(f64, f64); 5] = [
        (0.10, 207.0),
        (0.25, 396.0),
        (0.5, 1_020.0),
        (0.75, 1_189.0),
        (0.95, 4_083.0),
    ];
    const ANSWERS: [(f64, f64); 5] = [
        (0.10, 54.0),
        (0.25, 85.0),
        (0.5, 129.0),
        (0.75, 395.0),
        (0.95, 451.0),
    ];

    #[test]
    fn lengths_are_distributed_as_in_the_trace() {
        let mut random = SeededRng::new(1);
        let drawn: Vec<Lengths> = (0..40_000).map(|_| sample(&mut random)).collect();
        let sorted = |of: fn(&Lengths) -> u32| {
            let mut values: Vec<u32> = drawn.iter().map(of).collect();
            values.sort_unstable();
            values
        };
        for (name, values, quantiles, mean) in [
            (
                "prompts",
                sorted(|lengths| lengths.prompt),
                PROMPTS,
                1_154.7,
            ),
            ("answers", sorted(|lengths| lengths.answer), ANSWERS, 211.1),
        ] {
            let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
            assert!(
                (sum / 40_000.0 / mean - 1.0).abs() < 0.03,
                "{name}: mean {}",
                sum / 40_000.0
            );
            for (share, wanted) in quantiles {
                // In distribution rather than in value: where the trace has a step, the quantile jumps.
                let below =
                    values.partition_point(|value| f64::from(*value) <= wanted) as f64 / 40_000.0;
                let under = values.partition_point(|value| f64::from(*value) < wanted * 0.95)
                    as f64
                    / 40_000.0;
                assert!(
                    under - 0.04 <= share && share <= below + 0.04,
                    "{name}: {share} should be at {wanted}, {under} to {below} are"
                );
            }
        }
    }
}
