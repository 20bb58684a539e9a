//! A synthetic twin of Mooncake's conversation trace, for use without the file: 12,031 chat requests of one hour.
//!
//! Fitted to the trace (expectation maximisation on the logarithms; KS is the greatest distance of the two distributions):
//!
//! | what | fit | KS |
//! | --- | --- | --- |
//! | length of a first prompt, less 888 | four log-normals | 0.01 |
//! | length of an answer | three | 0.01 |
//! | pause between two requests of a conversation | two; median 123 s | 0.02 |
//! | growth beyond the answer, where there is any (88 %) | three | 0.02 |
//!
//! All prompts share their first block. Of 4,658 requests that share more, 85 % continue their predecessor to its end, the
//! others keep only its first blocks (median 6). After the k-th request (from 0) a conversation goes on with a probability of
//! 1 - 1 / (1.6 + 0.3 k), unless it was one of the very short ones, of which 1.7 % go on. Timestamps are multiples of 3 s, as
//! in the trace. Conversations are under way when the hour begins. Shares and weights were then set so that the whole has the
//! figures of the trace, which the test checks: requests a second, lengths, share of blocks that were seen before.

use core::ops::Range;

use super::rng::{LogNormal, SeededRng, within};
use super::trace::{BLOCK_TOKENS, Trace, TraceLine};

/// Length of the recorded trace in seconds.
pub const HOUR_S: f64 = 3_540.0;
/// Conversations that begin each second.
const CONVERSATIONS_PER_S: f64 = 2.0;
const PROMPT: (u32, u32) = (891, 126_195);
const ANSWER: (u32, u32) = (1, 2_000);
const PAUSE_S_MAX: f64 = 3_500.0;
/// The trace's clock.
const TICK_S: f64 = 3.0;
/// Conversations of so long before are under way at the start.
const BEFORE_S: f64 = 1_800.0;
const TURNS_MAX: usize = 60;
/// Length of the beginning that all prompts share, and of the rest of the shortest prompt.
const COMMON_TOKENS: f64 = 888.0;
/// Length below which a prompt counts as very short.
const SHORT_TOKENS: u32 = 1_000;
const SHORT_GOES_ON: f64 = 0.017;
/// Continuations that keep only the first blocks.
const PARTIAL: f64 = 0.22;
const KEPT_BLOCKS: LogNormal = LogNormal::new(6.0, 1.1);
const PARTIAL_GROWTH: LogNormal = LogNormal::new(1.0, 0.25);
/// Continuations that add nothing but the answer.
const NO_GROWTH: f64 = 0.117;

const FIRST: [(f64, LogNormal); 4] = [
    (0.281, LogNormal::new(483.0, 1.67)),
    (0.502, LogNormal::new(11_400.0, 0.85)),
    (0.118, LogNormal::new(10.9, 0.51)),
    (0.099, LogNormal::new(4_085.4, 0.25)),
];
const ANSWERS: [(f64, LogNormal); 3] = [
    (0.313, LogNormal::new(320.1, 0.62)),
    (0.439, LogNormal::new(430.9, 0.26)),
    (0.248, LogNormal::new(33.2, 1.51)),
];
const PAUSE_S: [(f64, LogNormal); 2] = [
    (0.116, LogNormal::new(70.3, 0.29)),
    (0.884, LogNormal::new(142.7, 1.01)),
];
const GROWTH: [(f64, LogNormal); 3] = [
    (0.44, LogNormal::new(12.9, 0.59)),
    (0.43, LogNormal::new(115.6, 1.69)),
    (0.13, LogNormal::new(5_331.3, 0.67)),
];

/// The trace of a seed, of a length in seconds.
pub fn generate(duration_s: f64, seed: u64) -> Trace {
    let mut rng = SeededRng::new(seed);
    let common = rng.id();
    let mut lines = Vec::new();
    let mut at = -BEFORE_S;
    loop {
        at += rng.exponential(1.0 / CONVERSATIONS_PER_S);
        if at >= duration_s {
            return Trace::new(lines);
        }
        add_conversation(at..duration_s, common, &mut rng, &mut lines);
    }
}

/// Adds the requests of a conversation, up to the end of the trace.
fn add_conversation(
    time_s: Range<f64>,
    common: u64,
    rng: &mut SeededRng,
    lines: &mut Vec<TraceLine>,
) {
    let session = rng.id();
    let mut at = time_s.start;
    let mut tokens = within(COMMON_TOKENS + rng.mixed(&FIRST), PROMPT);
    let mut blocks = vec![common];
    for turn in 0..TURNS_MAX {
        let count = tokens.div_ceil(BLOCK_TOKENS) as usize;
        while blocks.len() < count {
            blocks.push(rng.id());
        }
        let answer = within(rng.mixed(&ANSWERS), ANSWER);
        if at >= 0.0 {
            lines.push(TraceLine {
                timestamp: (at / TICK_S).floor() * TICK_S * 1_000.0,
                input_length: tokens,
                output_length: answer,
                hash_ids: blocks.clone(),
                session: Some(session),
                ..TraceLine::default()
            });
        }
        let goes_on = if tokens < SHORT_TOKENS {
            SHORT_GOES_ON
        } else {
            1.0 - 1.0 / (0.3 * turn as f64 + 1.6)
        };
        at += rng.mixed(&PAUSE_S).min(PAUSE_S_MAX);
        if !rng.chance(goes_on) || at >= time_s.end {
            return;
        }
        let (next, kept) = grown(tokens, answer, rng);
        tokens = next;
        let count = tokens.div_ceil(BLOCK_TOKENS) as usize;
        blocks.truncate(kept.min(count));
    }
}

/// The length of the next prompt, and how many blocks it shares with this one.
fn grown(tokens: u32, answer: u32, rng: &mut SeededRng) -> (u32, usize) {
    let (next, kept) = if rng.chance(PARTIAL) {
        let kept = KEPT_BLOCKS.sample(rng).round().max(2.0) as usize;
        (f64::from(tokens) * PARTIAL_GROWTH.sample(rng), kept)
    } else {
        let growth = if rng.chance(NO_GROWTH) {
            0.0
        } else {
            rng.mixed(&GROWTH)
        };
        let kept = (tokens / BLOCK_TOKENS) as usize;
        (f64::from(tokens) + f64::from(answer) + growth, kept)
    };
    (within(next, PROMPT), kept.max(1))
}
