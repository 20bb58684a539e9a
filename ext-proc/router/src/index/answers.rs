//! Lengths of answers: an engine keeps the blocks of an answer, and the next turn of the conversation repeats it.
//!
//! No fingerprint covers answers, so the index cannot hold them. `docs/design/learning.md` has the expectation.

use core::num::NonZero;

use isotherm_fingerprint::Fingerprint;

use super::process::{Process, Processes};
use super::recent::{RecencyKey, RecencyMap};
use super::table::HashMixer;
use crate::constant::constants;
use crate::{ReplicaId, Request, SessionKey};

/// Share of the expected tokens that is found, before the first measurement.
const HIT_SHARE_START: f64 = 0.5;
constants! {
    LEARNING_RATE: f64 = 0.05;
    /// Weight of a report of counters, of which there are several a second.
    COUNTED_LEARNING_RATE: f64 = 0.01;
}
/// Answers after which the longest one is forgotten, unless another one is as long.
const RECORDS_MAX: usize = 4_096;
constants! {
    /// Smallest length of a prompt's rest, as a share of the remembered tokens, that may repeat them. Below 1, because the
    /// rest's length in tokens is an estimate.
    REPEATED_MIN: f64 = 0.8;
}

/// The prompt of an answer: its last block and its session. A popular opening has many answers, one per session. A first
/// message is often too short for a block. A hash of 0 counts as the largest one, so that a key takes 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerKey {
    block: Option<NonZero<u64>>,
    session: Option<NonZero<u64>>,
}

impl AnswerKey {
    /// The key that a prompt continues whose first `depth` blocks are known.
    pub(crate) fn matched(request: &Request, depth: usize) -> Option<Self> {
        let blocks = request.fingerprint.blocks();
        let block = match depth.checked_sub(1) {
            // A repeated prompt does not continue with its answer.
            Some(last) => Some(blocks.get(last).filter(|_| depth < blocks.len())?.hash),
            None => None,
        };
        Self::new(block, request.session)
    }

    /// The key of a whole prompt.
    pub(crate) fn whole(fingerprint: &Fingerprint, session: Option<SessionKey>) -> Option<Self> {
        let last = fingerprint.blocks().last();
        Self::new(last.map(|block| block.hash), session)
    }

    /// A key needs a block or a session.
    fn new(block: Option<u64>, session: Option<SessionKey>) -> Option<Self> {
        if block.is_none() && session.is_none() {
            return None;
        }
        let non_zero = |hash| NonZero::new(hash).unwrap_or(NonZero::<u64>::MAX);
        Some(Self {
            block: block.map(non_zero),
            session: session.map(|session| non_zero(session.0)),
        })
    }
}

/// Tokens that a process holds behind a prompt.
#[derive(Clone, Copy, Debug)]
struct HeldTokens {
    process: Process,
    tokens: u32,
}

/// The last answer of each recent prompt.
#[derive(Debug)]
pub(crate) struct Answers {
    by_key: RecencyMap<AnswerKey, HeldTokens>,
    processes: Processes,
    /// Share of the remembered tokens that engines find.
    hit_share: f64,
    /// Longest answers, in tokens: of the latest records, and of those before.
    longest: [u32; 2],
    /// Number of the latest records.
    records: usize,
}

impl RecencyKey for AnswerKey {
    fn mixed(&self, mixer: &HashMixer) -> u64 {
        // The block is mixed once more, so that equal numbers of a block and of a session differ.
        let block = self.block.map_or(0, |block| mixer.mix(block.get()));
        let session = self.session.map_or(0, NonZero::get);
        mixer.mix(block ^ session)
    }
}

impl Answers {
    /// No answers, and room for so many bytes of them, about 64 each. The seed decides where entries lie in memory.
    pub(crate) fn new(bytes_max: usize, seed: u64) -> Self {
        Self {
            by_key: RecencyMap::new(bytes_max, seed),
            processes: Processes::default(),
            hit_share: HIT_SHARE_START,
            longest: [0; 2],
            records: 0,
        }
    }

    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.by_key.set_bytes_max(bytes_max);
    }

    /// Records that a replica holds `tokens` behind the key: the prompt's rest and its answer.
    pub(crate) fn record(&mut self, key: AnswerKey, replica: ReplicaId, tokens: u32) {
        if self.records >= RECORDS_MAX {
            let [latest, _] = self.longest;
            self.longest = [0, latest];
            self.records = 0;
        }
        self.records += 1;
        let [latest, _] = &mut self.longest;
        *latest = tokens.max(*latest);
        let process = self.processes.current(replica);
        self.by_key.put(key, HeldTokens { process, tokens });
        if key.block.is_some() {
            // The session has continued the prompt that was too short for a block.
            self.by_key.remove_key(&AnswerKey { block: None, ..key });
        }
    }

    /// Forgets the answers of the ended process of a replica.
    pub(crate) fn on_restart(&mut self, replica: ReplicaId) {
        self.processes.restart(replica);
    }

    /// Forgets a removed replica.
    pub(crate) fn removed(&mut self, replica: ReplicaId) {
        self.processes.remove(replica);
    }

    /// Expected number of cached tokens, of the remembered ones.
    pub(crate) fn expected(&self, remembered: f64) -> f64 {
        remembered * self.hit_share
    }

    /// Tokens that a replica holds for a prompt with `tokens` behind the key.
    pub(crate) fn remembered(&self, key: AnswerKey, replica: ReplicaId, tokens: f64) -> f64 {
        match self.at(key, tokens) {
            Some((at, held)) if at == replica => held,
            Some(_) | None => 0.0,
        }
    }

    /// The replica that holds tokens for a prompt with `tokens` behind the key, and their number.
    pub(crate) fn at(&self, key: AnswerKey, tokens: f64) -> Option<(ReplicaId, f64)> {
        let HeldTokens {
            process,
            tokens: held,
        } = *self.by_key.get(&key)?;
        let at = self.processes.replica_of(process)?;
        let held = f64::from(held.min(self.longest()));
        (tokens >= REPEATED_MIN.get() * held).then(|| (at, held.min(tokens)))
    }

    /// Upper bound of [`Self::expected`] for any prompt with `tokens` behind its match.
    pub(crate) fn expected_at_most(&self, tokens: f64) -> f64 {
        self.expected(f64::from(self.longest()).min(tokens))
    }

    /// Length that no remembered answer exceeds, in tokens. A longer one of long ago counts as no longer than this.
    fn longest(&self) -> u32 {
        let [latest, before] = self.longest;
        latest.max(before)
    }

    /// Takes over the share of the remembered tokens that engines find, as their counters show it.
    pub(crate) fn learn_counted(&mut self, share: f64) {
        self.hit_share += COUNTED_LEARNING_RATE.get() * (share - self.hit_share);
    }

    /// Learns that an engine found so many of the remembered tokens.
    pub(crate) fn learn(&mut self, remembered: f64, found: f64) {
        if remembered > 0.0 {
            let share = (found / remembered).clamp(0.0, 1.0);
            self.hit_share += LEARNING_RATE.get() * (share - self.hit_share);
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
    fn an_answer_is_expected_on_its_replica_by_a_prompt_that_can_repeat_it() {
        let mut answers = Answers::new(1 << 16, 1);
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
        let mut answers = Answers::new(1 << 16, 1);
        let short = key(None, Some(1));
        answers.record(short, REPLICA, 100);
        assert!(answers.remembered(short, REPLICA, 200.0) > 0.0);
        answers.record(key(Some(7), Some(1)), REPLICA, 300);
        assert!(answers.remembered(short, REPLICA, 200.0) <= 0.0);
        assert_eq!(AnswerKey::new(None, None), None);
    }

    #[test]
    fn one_long_answer_does_not_raise_the_bound_for_good() {
        let mut answers = Answers::new(1 << 16, 1);
        answers.record(key(Some(7), None), REPLICA, 100_000);
        let bound = |answers: &Answers| answers.expected_at_most(1e6) / answers.expected(1.0);
        assert!(bound(&answers) > 99_999.0);
        for _ in 0..2 * RECORDS_MAX {
            answers.record(key(Some(8), None), REPLICA, 300);
        }
        assert!(bound(&answers) < 301.0);
        let held = answers.remembered(key(Some(7), None), REPLICA, 1e6);
        assert!(held <= 300.0, "no answer exceeds the bound: {held}");
    }

    #[test]
    fn answers_of_an_ended_process_are_forgotten_and_later_ones_are_kept() {
        let mut answers = Answers::new(1 << 16, 1);
        let (before, after) = (key(Some(7), None), key(Some(8), None));
        answers.record(before, REPLICA, 100);
        answers.record(after, ReplicaId(2), 100);
        answers.on_restart(REPLICA);
        assert_eq!(answers.at(before, 500.0), None);
        assert!(answers.remembered(after, ReplicaId(2), 500.0) > 0.0);
        answers.record(after, REPLICA, 100);
        assert!(answers.remembered(after, REPLICA, 500.0) > 0.0);
    }

    #[test]
    fn the_expectation_follows_the_measured_share() {
        let mut answers = Answers::new(1 << 16, 1);
        for _ in 0..200 {
            answers.learn(100.0, 90.0);
        }
        assert!((answers.expected(100.0) - 90.0).abs() < 1.0);
    }
}
