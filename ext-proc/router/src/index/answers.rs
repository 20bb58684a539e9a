//! What replicas answered: an engine keeps the blocks of what it generated, and the next turn of a conversation repeats it.
//!
//! The index cannot hold answers, since no fingerprint was ever made of them. But a prompt that goes on where an earlier one
//! ended goes on with its answer, nearly always; so it is enough to remember how long that was. Without this a chat's
//! next turn looks a quarter less cached on its own replica than it is, and leaves it too easily.
//!
//! Not everybody goes on: a burst of questions about one text has the text in common and no answers, a user begins a new
//! conversation. What is too short to repeat the answer does not go on. For the others, how much of what was expected is
//! really found is learned, and the expectation is scaled by it.

use isotherm_fingerprint::Fingerprint;

use super::recent::{RecencyKey, RecencyMap};
use super::table::HashMixer;
use crate::{ReplicaId, Request, SessionKey};

/// How many answers are remembered; about 64 bytes each.
const ANSWERS_MAX: usize = 16_384;

/// The share of it that is found, before anything was measured.
const HIT_SHARE_START: f64 = 0.5;
/// How much one measurement moves that.
const LEARNING_RATE: f64 = 0.05;
/// A prompt with less than this share of what is remembered behind what it has in common does not repeat it: its length in
/// tokens is an estimate.
const REPEATED_MIN: f64 = 0.8;

/// What an answer stands behind: the last block of a prompt, of its session. A popular opening has many answers, and each
/// session knows its own; a first message is often too short for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerKey {
    block: Option<u64>,
    session: Option<SessionKey>,
}

impl AnswerKey {
    /// What a prompt would go on from whose first `depth` blocks are known.
    pub(crate) fn matched(request: &Request, depth: usize) -> Option<Self> {
        let blocks = request.fingerprint.blocks();
        let block = match depth.checked_sub(1) {
            // The same prompt again does not go on with its answer.
            Some(last) => Some(blocks.get(last).filter(|_| depth < blocks.len())?.hash),
            None => None,
        };
        Self::new(block, request.session)
    }

    /// Behind a whole prompt.
    pub(crate) fn whole(fingerprint: &Fingerprint, session: Option<SessionKey>) -> Option<Self> {
        let last = fingerprint.blocks().last();
        Self::new(last.map(|block| block.hash), session)
    }

    /// A prompt without either could be anybody's.
    const fn new(block: Option<u64>, session: Option<SessionKey>) -> Option<Self> {
        if block.is_none() && session.is_none() {
            return None;
        }
        Some(Self { block, session })
    }
}

/// The last answer to each of the latest prompts.
#[derive(Debug)]
pub(crate) struct Answers {
    by_key: RecencyMap<AnswerKey, (ReplicaId, u32)>,
    /// The share of what is remembered that is found.
    hit_share: f64,
    /// No answer was longer, in tokens.
    longest: u32,
}

impl RecencyKey for AnswerKey {
    fn mixed(&self, mixer: &HashMixer) -> u64 {
        // The same number as a block and as a session are two keys, since one of them is mixed once more.
        let block = self.block.map_or(0, |block| mixer.mix(block));
        let session = self.session.map_or(0, |session| session.0);
        mixer.mix(block ^ session)
    }
}

impl Answers {
    /// The seed decides where things lie in memory, and nothing else.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            by_key: RecencyMap::new(ANSWERS_MAX, seed),
            hit_share: HIT_SHARE_START,
            longest: 0,
        }
    }

    /// A replica holds so many tokens behind this: the prompt's own rest, and its answer.
    pub(crate) fn record(&mut self, key: AnswerKey, replica: ReplicaId, tokens: u32) {
        self.longest = self.longest.max(tokens);
        self.by_key.put(key, (replica, tokens));
        if key.block.is_some() {
            // The session has gone on from the prompt that was too short for a block.
            self.by_key.remove_key(&AnswerKey { block: None, ..key });
        }
    }

    /// How many of so many remembered tokens are expected to be there.
    pub(crate) fn expected(&self, remembered: f64) -> f64 {
        remembered * self.hit_share
    }

    /// How many tokens a replica holds for a prompt that has so many behind this, if it goes on with them.
    pub(crate) fn remembered(&self, key: AnswerKey, replica: ReplicaId, tokens: f64) -> f64 {
        match self.at(key, tokens) {
            Some((at, held)) if at == replica => held,
            Some(_) | None => 0.0,
        }
    }

    /// The one replica that holds tokens for such a prompt, if any does, and how many.
    pub(crate) fn at(&self, key: AnswerKey, tokens: f64) -> Option<(ReplicaId, f64)> {
        let (at, held) = *self.by_key.get(&key)?;
        let held = f64::from(held);
        (tokens >= REPEATED_MIN * held).then(|| (at, held.min(tokens)))
    }

    /// Of no prompt that has so many tokens behind what is known are more expected to be there, wherever it goes on.
    pub(crate) fn expected_at_most(&self, tokens: f64) -> f64 {
        self.expected(f64::from(self.longest).min(tokens))
    }

    /// So many were remembered, and so many found.
    pub(crate) fn learn(&mut self, remembered: f64, hit_share: f64) {
        if remembered > 0.0 {
            let share = (hit_share / remembered).clamp(0.0, 1.0);
            self.hit_share += LEARNING_RATE * (share - self.hit_share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICA: ReplicaId = ReplicaId(1);

    fn key(block: Option<u64>, session: Option<u64>) -> AnswerKey {
        AnswerKey::new(block, session.map(SessionKey)).unwrap()
    }

    #[test]
    fn an_answer_is_expected_where_it_was_written_by_whoever_can_repeat_it() {
        let mut answers = Answers::new(1);
        let mine = key(Some(7), Some(1));
        answers.record(mine, REPLICA, 100);
        for (who, at, tokens, held) in [
            (mine, REPLICA, 500.0, 100.0),
            (mine, REPLICA, 90.0, 90.0),
            // Too short to repeat it: a new conversation with the same opening.
            (mine, REPLICA, 70.0, 0.0),
            (mine, ReplicaId(2), 500.0, 0.0),
            (key(Some(7), Some(2)), REPLICA, 500.0, 0.0),
            (key(Some(7), None), REPLICA, 500.0, 0.0),
        ] {
            let seen = answers.remembered(who, at, tokens);
            assert!((seen - held).abs() < 1e-9, "{who:?}: {seen}");
        }
    }

    #[test]
    fn a_message_too_short_for_a_block_is_known_by_its_session_until_that_goes_on() {
        let mut answers = Answers::new(1);
        let short = key(None, Some(1));
        answers.record(short, REPLICA, 100);
        assert!(answers.remembered(short, REPLICA, 200.0) > 0.0);
        answers.record(key(Some(7), Some(1)), REPLICA, 300);
        assert!(answers.remembered(short, REPLICA, 200.0) <= 0.0);
        assert_eq!(AnswerKey::new(None, None), None);
    }

    #[test]
    fn what_is_expected_follows_what_is_found() {
        let mut answers = Answers::new(1);
        for _ in 0..200 {
            answers.learn(100.0, 90.0);
        }
        assert!((answers.expected(100.0) - 90.0).abs() < 1.0);
    }
}
