//! What replicas answered: an engine keeps the blocks of what it generated, and the next turn of a conversation repeats it.
//!
//! The index cannot hold answers, since no fingerprint was ever made of them. But a prompt that goes on where an earlier one
//! ended goes on with its answer, nearly always; so it is enough to remember how long that was. Without this a chat's
//! next turn looks a quarter less cached on its own replica than it is, and leaves it too easily.
//!
//! Not everybody goes on: a burst of questions about one text has the text in common and no answers. So how much of what
//! was expected behind an edge is really found there is learned, and the expectation is scaled by it.

use lru::LruCache;

use core::num::NonZeroUsize;

use crate::ReplicaId;

/// How many answers are remembered; about 64 bytes each. (That it is not zero is checked when this is compiled.)
const ANSWERS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("is not zero");

/// The share of it that is found, before anything was measured.
const FOUND_START: f64 = 0.5;
/// How much one measurement moves that.
const LEARNING_RATE: f64 = 0.05;

/// The last answer to each of the latest prompts, by the hash of the prompt's last edge.
#[derive(Debug)]
pub(crate) struct Answers {
    behind: LruCache<u64, (ReplicaId, u32)>,
    /// The share of what is remembered that is found.
    found: f64,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            behind: LruCache::new(ANSWERS_MAX),
            found: FOUND_START,
        }
    }
}

impl Answers {
    /// A replica holds so many tokens behind this edge: the prompt's own rest, and its answer.
    pub(crate) fn told(&mut self, edge: u64, replica: ReplicaId, tokens: u32) {
        self.behind.put(edge, (replica, tokens));
    }

    /// How many of so many remembered tokens are expected to be there.
    pub(crate) fn expected(&self, remembered: f64) -> f64 {
        remembered * self.found
    }

    /// How many tokens a replica holds behind this edge, of at most so many, if it is as remembered.
    pub(crate) fn remembered(&self, edge: u64, replica: ReplicaId, at_most: f64) -> f64 {
        match self.behind.peek(&edge) {
            Some((at, tokens)) if *at == replica => f64::from(*tokens).min(at_most),
            Some(_) | None => 0.0,
        }
    }

    /// So many were remembered, and so many found.
    pub(crate) fn learn(&mut self, remembered: f64, found: f64) {
        if remembered > 0.0 {
            let share = (found / remembered).clamp(0.0, 1.0);
            self.found += LEARNING_RATE * (share - self.found);
        }
    }
}
