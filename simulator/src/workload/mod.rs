//! Workloads: what the clients ask, and when.
//!
//! One form holds them all. A [`Session`] is one client's program: steps, each of which is sent some time after another
//! one has been answered. A trace is many sessions of one step (open loop); a chat is a chain of steps with think time
//! (closed loop); a tree of thoughts branches.
//!
//! - [`trace`] and [`replay`]: recorded traffic; [`conversation`]: the twin of a public trace; [`figures`]: what a trace is like
//! - [`chat`], [`tree_of_thoughts`], [`tools`], [`bursty`], [`diurnal`]: generated traffic, with the figures that papers give
//! - [`lengths`], [`similarity`], [`draw`]: what they are made of and measured with
//! - [`generator`]: all of them by name; [`standard()`]: those on which policies are judged, with their fleets

pub mod bursty;
pub mod chat;
pub mod conversation;
pub mod diurnal;
pub mod draw;
pub mod figures;
pub mod generator;
pub mod lengths;
pub mod replay;
pub mod similarity;
pub mod standard;
pub mod tools;
pub mod trace;
pub mod tree_of_thoughts;

pub use generator::{Generator, NAMES, by_name};
pub use standard::{Standard, standard};

use core::time::Duration;

use crate::prompt::{Piece, Prompt};

/// All clients of one run.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Its name, as on the command line.
    pub name: String,
    /// The programs, in order of their start.
    pub sessions: Vec<Session>,
    /// So many requests, the first to be sent, only warm the caches: they are left out of the figures.
    pub warmup_requests: usize,
    /// Nothing is sent after this: closed loops are cut here, so that every system is measured over the same time.
    pub sends_until: Option<Duration>,
}

/// One client's program.
#[derive(Clone, Debug)]
pub struct Session {
    /// The client's region, from 0.
    pub region: usize,
    /// Its session key: what a consistent hash goes by.
    pub key: u64,
    /// The session before it, if one client runs several in a row; an earlier one of the list. That one has ended when
    /// nothing of it is under way or will be sent any more: a step whose request fails takes those that wait for it along,
    /// the client goes on to the next session all the same.
    pub follows: Option<usize>,
    /// When its first steps may be sent: from the start of the run, or from the end of the session that it follows.
    pub starts: Duration,
    /// What it sends. A step comes behind the one that it waits for.
    pub steps: Vec<Step>,
}

/// One request of a program.
#[derive(Clone, Debug)]
pub struct Step {
    /// The step whose answer it waits for; none: the session's start.
    pub after: Option<usize>,
    /// How long after that it is sent.
    pub think: Duration,
    /// What it asks.
    pub prompt: Prompt,
    /// How long the answer is.
    pub output_tokens: u32,
    /// What the answer says ([`Step::answer`]).
    pub answer_id: u64,
}

impl Session {
    /// One request from the first region, which waits for nobody's answer.
    #[must_use]
    pub fn one(key: u64, starts: Duration, prompt: Prompt, answer: Piece) -> Self {
        Self {
            region: 0,
            key,
            follows: None,
            starts,
            steps: vec![Step {
                after: None,
                think: Duration::ZERO,
                prompt,
                output_tokens: answer.tokens,
                answer_id: answer.id,
            }],
        }
    }
}

impl Step {
    /// The answer as the piece that later prompts repeat behind this one's: engines keep the blocks of what they generated.
    #[must_use]
    pub fn answer(&self) -> Piece {
        Piece {
            id: self.answer_id,
            tokens: self.output_tokens,
        }
    }
}

impl Workload {
    /// How many requests there are, if none is cut.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.sessions
            .iter()
            .map(|session| session.steps.len())
            .sum()
    }
}
