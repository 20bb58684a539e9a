//! Assembles the lines of a trace from recorded requests.
//!
//! A fingerprint measures in bytes, and a trace in tokens. Bytes per token differ between texts, but a prefix must have the
//! same length in every prompt. The whole recording therefore uses its mean. The sum over all prompts is then what the
//! engines counted, and a single prompt is off as far as its text differs from the mean.
//!
//! The text after the last block of a fingerprint (less than a block) has no hash. Two prompts that agree up to there and
//! have the same length count as equal in it. This is right for requests that a client repeats, and nearly right for all.
//!
//! A prompt that begins with the session's last prompt, and is long enough for its output after it, counts as containing that
//! output: it is the next turn of a conversation. Engines keep the blocks of their output, so a trace without them would
//! show too few cache hits.

use std::collections::HashMap;

use twox_hash::XxHash3_64;

use super::event::RecordedRequest;
use super::salt::short;
use super::trace_line::{BLOCK_TOKENS, TraceLine};

/// Bytes per token in a recording without token counts: about the mean of English text.
const TOKEN_BYTES: f64 = 4.0;
/// Output length in tokens in a recording without output lengths: the median of chats.
const OUTPUT_TOKENS: u32 = 128;
/// Limit of sessions whose last prompt is kept. Each has up to 5 KB.
const SESSIONS_MAX: usize = 16_384;

const TAIL: u64 = 1;
const ANSWER: u64 = 2;
const BLOCK: u64 = 3;

/// Totals over all requests, which every line depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    prompt_bytes: u64,
    prompt_tokens: u64,
    output_tokens: u64,
    outputs: u64,
}

impl Totals {
    /// Adds a request.
    pub fn add(&mut self, recorded: &RecordedRequest) {
        if let Some(tokens) = recorded.prompt_tokens.filter(|_| recorded.bytes > 0) {
            self.prompt_bytes += u64::from(recorded.bytes);
            self.prompt_tokens += u64::from(tokens);
        }
        if let Some(tokens) = recorded.output_tokens {
            self.output_tokens += u64::from(tokens);
            self.outputs += 1;
        }
    }

    /// Mean bytes per prompt token.
    pub fn token_bytes(&self) -> f64 {
        if self.prompt_tokens == 0 || self.prompt_bytes == 0 {
            return TOKEN_BYTES;
        }
        self.prompt_bytes as f64 / self.prompt_tokens as f64
    }

    /// Estimate of an unknown output length in tokens.
    pub fn output_tokens(&self) -> u32 {
        match self.output_tokens.checked_div(self.outputs) {
            Some(mean) => u32::try_from(mean).unwrap_or(u32::MAX).max(1),
            None => OUTPUT_TOKENS,
        }
    }
}

/// Builds the lines of a trace, from requests in the order of their arrival.
#[derive(Debug)]
pub struct TraceBuilder {
    totals: Totals,
    lines: u64,
    sessions: HashMap<u64, SessionTurn>,
}

/// The last prompt of a session.
#[derive(Debug)]
struct SessionTurn {
    last_block: u64,
    pieces: Vec<(u64, u32)>,
    answer: (u64, u32),
}

impl TraceBuilder {
    /// Creates a builder for requests with these totals.
    pub fn new(totals: Totals) -> Self {
        Self {
            totals,
            lines: 0,
            sessions: HashMap::new(),
        }
    }

    /// Builds the line of the next request.
    pub fn line(&mut self, recorded: &RecordedRequest) -> TraceLine {
        self.lines += 1;
        let input_length = self.tokens(recorded.bytes).max(1);
        let pieces = self.pieces(recorded, input_length);
        let guess = self.totals.output_tokens();
        let guess = recorded
            .output_tokens_max
            .map_or(guess, |max| guess.min(max));
        let output_length = recorded.output_tokens.unwrap_or(guess);
        let answer = mix(pieces.last().map_or(0, |(id, _)| *id), ANSWER);
        if let (Some(session), Some((last_block, _))) = (recorded.session, recorded.blocks.last()) {
            if self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(&session) {
                self.sessions.clear();
            }
            let turn = SessionTurn {
                last_block: *last_block,
                pieces: pieces.clone(),
                answer: (answer, output_length),
            };
            self.sessions.insert(session, turn);
        }
        TraceLine {
            timestamp: recorded.at_ms,
            input_length,
            output_length,
            hash_ids: blocks(&pieces),
            pieces,
            answer: Some(answer),
            session: recorded.session,
            region: recorded.region.clone(),
            output_estimated: recorded.output_tokens.is_none(),
        }
    }

    fn pieces(&self, recorded: &RecordedRequest, input_length: u32) -> Vec<(u64, u32)> {
        let mut prompt = PromptPieces::default();
        let blocks = match self.repeated(recorded, input_length) {
            Some((turn, rest)) => {
                turn.pieces
                    .iter()
                    .chain([&turn.answer])
                    .for_each(|(id, tokens)| prompt.push(*id, *tokens));
                rest
            }
            None => &recorded.blocks[..],
        };
        for (id, end_bytes) in blocks {
            prompt.up_to(*id, self.tokens(*end_bytes).min(input_length));
        }
        let tail = match recorded.blocks.last() {
            Some((id, _)) => mix(*id, TAIL ^ (u64::from(recorded.bytes) << 8)),
            // A prompt without a block has unknown text.
            None => mix(self.lines, TAIL),
        };
        prompt.up_to(tail, input_length);
        prompt.pieces
    }

    /// Returns the session's last turn if this prompt begins with it, and the blocks after that turn.
    fn repeated<'a>(
        &self,
        recorded: &'a RecordedRequest,
        input_length: u32,
    ) -> Option<(&SessionTurn, &'a [(u64, u32)])> {
        let turn = self.sessions.get(&recorded.session?)?;
        let blocks = &recorded.blocks;
        let behind = blocks.iter().position(|(id, _)| *id == turn.last_block)? + 1;
        let repeated = turn.pieces.iter().chain([&turn.answer]);
        let length: u64 = repeated.map(|(_, tokens)| u64::from(*tokens)).sum();
        (length <= u64::from(input_length))
            .then(|| (turn, blocks.get(behind..).unwrap_or_default()))
    }

    fn tokens(&self, bytes: u32) -> u32 {
        (f64::from(bytes) / self.totals.token_bytes()).round() as u32
    }
}

#[derive(Debug, Default)]
struct PromptPieces {
    pieces: Vec<(u64, u32)>,
    tokens: u32,
}

impl PromptPieces {
    fn push(&mut self, id: u64, tokens: u32) {
        if tokens > 0 {
            self.pieces.push((id, tokens));
            self.tokens = self.tokens.saturating_add(tokens);
        }
    }

    /// Adds a piece that ends at `end`, unless it is empty.
    fn up_to(&mut self, id: u64, end: u32) {
        self.push(id, end.saturating_sub(self.tokens));
    }
}

/// Returns Mooncake's blocks. The id of a block derives from the piece that it ends in, so it claims no more than is known.
fn blocks(pieces: &[(u64, u32)]) -> Vec<u64> {
    let mut blocks = Vec::new();
    let mut end = 0;
    for (at, (id, tokens)) in pieces.iter().enumerate() {
        end += u64::from(*tokens);
        let is_last = at + 1 == pieces.len();
        loop {
            let number = blocks.len() as u64;
            let block_end = (number + 1) * u64::from(BLOCK_TOKENS);
            let begins_here = number * u64::from(BLOCK_TOKENS) < end;
            if block_end > end && !(is_last && begins_here) {
                break;
            }
            blocks.push(mix(*id, BLOCK ^ (number << 8)));
        }
    }
    blocks
}

/// Derives an id from another one, which is salted already.
fn mix(id: u64, with: u64) -> u64 {
    let mut bytes = [0; 16];
    let (head, tail) = bytes.split_at_mut(8);
    head.copy_from_slice(&id.to_le_bytes());
    tail.copy_from_slice(&with.to_le_bytes());
    short(XxHash3_64::oneshot(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(blocks: &[(u64, u32)], bytes: u32) -> RecordedRequest {
        RecordedRequest {
            blocks: blocks.to_vec(),
            bytes,
            ..RecordedRequest::default()
        }
    }

    fn lines(requests: &[RecordedRequest]) -> Vec<TraceLine> {
        let mut totals = Totals::default();
        requests.iter().for_each(|request| totals.add(request));
        let mut assembler = TraceBuilder::new(totals);
        requests
            .iter()
            .map(|request| assembler.line(request))
            .collect()
    }

    fn shared(a: &TraceLine, b: &TraceLine) -> u32 {
        let pairs = a.pieces.iter().zip(&b.pieces);
        let equal = pairs.take_while(|(a, b)| a == b);
        equal.map(|((_, tokens), _)| tokens).sum()
    }

    #[test]
    fn prompts_share_the_prefix_that_their_blocks_share_and_lengths_add_up() {
        let lines = lines(&[
            prompt(&[(1, 256), (2, 512), (3, 768)], 800),
            prompt(&[(1, 256), (2, 512), (4, 768)], 900),
            prompt(&[(1, 256), (2, 512), (3, 768)], 800),
            prompt(&[(1, 256), (2, 512), (3, 768)], 804),
        ]);
        assert_eq!(shared(&lines[0], &lines[1]), 128);
        assert_eq!(lines[0].pieces, lines[2].pieces);
        assert_eq!(shared(&lines[0], &lines[3]), 192, "another tail");
        for line in &lines {
            let sum: u32 = line.pieces.iter().map(|(_, tokens)| tokens).sum();
            assert_eq!(sum, line.input_length);
            assert_eq!(line.hash_ids.len(), 1);
        }
    }

    #[test]
    fn prompt_lengths_sum_up_to_the_tokens_that_the_engines_counted() {
        let counted = |bytes, tokens| RecordedRequest {
            prompt_tokens: Some(tokens),
            ..prompt(&[], bytes)
        };
        let lines = lines(&[counted(3_000, 900), counted(3_000, 1_100), prompt(&[], 600)]);
        let lengths: Vec<u32> = lines.iter().map(|line| line.input_length).collect();
        assert_eq!(lengths, [1_000, 1_000, 200]);
    }

    #[test]
    fn the_length_determines_the_number_of_blocks() {
        // 700 and 1,500 tokens; the first 600 are the same.
        let lines = lines(&[
            prompt(&[(1, 1_200), (2, 2_400)], 2_800),
            prompt(&[(1, 1_200), (2, 2_400), (5, 5_900)], 6_000),
        ]);
        assert_eq!(lines[0].hash_ids.len(), 2);
        assert_eq!(lines[1].hash_ids.len(), 3);
        assert_eq!(lines[0].hash_ids[0], lines[1].hash_ids[0]);
        assert_ne!(lines[0].hash_ids[1], lines[1].hash_ids[1]);
        let mut ids = lines[1].hash_ids.clone();
        ids.dedup();
        assert_eq!(
            ids.len(),
            3,
            "one piece covers two blocks, which differ all the same"
        );
    }

    #[test]
    fn the_next_turn_contains_the_output_of_the_last() {
        let turn = |blocks: &[(u64, u32)], bytes, output| RecordedRequest {
            session: Some(7),
            output_tokens: Some(output),
            ..prompt(blocks, bytes)
        };
        let lines = lines(&[
            turn(&[(1, 256)], 400, 50),
            turn(&[(1, 256), (2, 512), (3, 768)], 800, 10),
            turn(&[(1, 256), (2, 512), (3, 768), (4, 1_024)], 1_100, 1),
        ]);
        // 100 tokens of prompt, 50 of answer, and what is new.
        assert_eq!(lines[1].pieces[..2], lines[0].pieces[..]);
        assert_eq!(lines[1].pieces[2], (lines[0].answer.unwrap(), 50));
        let count = lines[1].pieces.len();
        assert_eq!(lines[2].pieces[..count], lines[1].pieces[..]);
        assert_eq!(lines[2].pieces[count], (lines[1].answer.unwrap(), 10));
        let sum: u32 = lines[2].pieces.iter().map(|(_, tokens)| tokens).sum();
        assert_eq!(sum, 275);
    }

    #[test]
    fn an_unknown_output_length_is_estimated_within_the_limit_of_the_request() {
        let told = RecordedRequest {
            output_tokens: Some(300),
            ..prompt(&[], 400)
        };
        let short = RecordedRequest {
            output_tokens_max: Some(20),
            ..prompt(&[], 400)
        };
        let lines = lines(&[told, prompt(&[], 400), short]);
        let outputs: Vec<_> = lines
            .iter()
            .map(|line| (line.output_length, line.output_estimated))
            .collect();
        assert_eq!(outputs, [(300, false), (300, true), (20, true)]);
        assert_ne!(lines[0].pieces, lines[1].pieces, "too short to be compared");
    }
}
