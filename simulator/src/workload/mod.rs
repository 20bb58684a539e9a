//! Workloads: the requests of the clients, and their times.
//!
//! A [`Session`] is a client's program: steps, each sent some time after another one has its answer. A trace is many sessions of
//! a single step (open loop); a chat is a chain of steps with think time (closed loop); a tree of thoughts branches.
//!
//! - [`trace`] and [`replay`]: recorded traffic; [`conversation`]: the twin of a public trace
//! - [`chat`], [`tree_of_thoughts`], [`tools`], [`bursty`], [`diurnal`]: generated traffic, with the figures of papers
//! - [`content`], [`reasoning`], [`adapters`]: bytes per token, lengths of answers and adapters as people have them
//! - [`shared_prefix`], [`agents`], [`drift`]: the loads of 2026
//! - [`lengths`], [`rng`]: lengths and distributions
//! - [`generator`]: generators of every kind; [`catalogue`]: all workloads by name
//! - [`standard()`]: the workloads that judge policies, with their fleets; [`adverse`], [`yardstick`]: workloads, pools and
//!   fleets that are harder

pub mod adapters;
pub mod adverse;
pub mod agents;
pub mod bursty;
pub mod catalogue;
pub mod chat;
pub mod content;
pub mod conversation;
pub mod diurnal;
pub mod drift;
pub mod generator;
pub mod lengths;
pub mod reasoning;
pub mod replay;
pub mod rng;
pub mod shared_prefix;
pub mod standard;
pub mod tools;
pub mod trace;
pub mod tree_of_thoughts;
pub mod yardstick;

pub use catalogue::by_name;
pub use generator::{Generator, NAMES};
pub use standard::{Standard, standard};

use core::time::Duration;

use isotherm_router::Tier;

use crate::prompt::{Piece, Prompt};

/// All clients of one run.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Name of the workload, as on the command line.
    pub name: String,
    /// The programs, in order of their start.
    pub sessions: Vec<Session>,
    /// Number of first requests that only warm the caches and are left out of the figures.
    pub warmup_requests: usize,
    /// End of sending: closed loops are cut here, so that every system is measured over the same time.
    pub sends_until: Option<Duration>,
}

/// Program of a client.
#[derive(Clone, Debug)]
pub struct Session {
    /// The client's region, from 0.
    pub region: usize,
    /// Session key, which a consistent hash uses.
    pub key: u64,
    /// The session before it, if one client runs several in a row; an earlier one of the list. That one has ended when
    /// none of its requests is in flight or will be sent: when a step's request fails, the steps that wait for it are dropped, and
    /// the client goes on to the next session all the same.
    pub follows: Option<usize>,
    /// When its first steps may be sent: from the start of the run, or from the end of the session that it follows.
    pub starts: Duration,
    /// Adapter that its requests name, by number.
    pub adapter: Option<u32>,
    /// Tier, tenant and deadlines of its requests.
    pub class: RequestClass,
    /// Requests of the session. A step comes after the step that it waits for.
    pub steps: Vec<Step>,
}

/// Urgency and sender of a session's requests. A router without tiers and without bounds of tenants ignores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestClass {
    /// Workload tier.
    pub tier: Tier,
    /// Budget for the first token; none: that of the tier.
    pub ttft_slo: Option<Duration>,
    /// Time from sending until a batch request is to be served.
    pub deadline: Option<Duration>,
    /// Tenant of the session; 0 is the common one.
    pub tenant: u64,
}

/// A request of a session.
#[derive(Clone, Debug)]
pub struct Step {
    /// The step whose answer it waits for; none: the session's start.
    pub after: Option<usize>,
    /// Time between the awaited response and this request.
    pub think: Duration,
    /// Prompt of the request.
    pub prompt: Prompt,
    /// Length of the response in tokens.
    pub output_tokens: u32,
    /// Identity of the response's text ([`Step::answer`]).
    pub answer_id: u64,
}

/// Requests that come at a rate, whenever answers come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenLoop {
    /// Number of requests.
    pub requests: usize,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Number of first requests that only warm the caches.
    pub warmup_requests: usize,
}

impl OpenLoop {
    /// The workload of these sessions.
    fn workload(&self, name: &str, sessions: Vec<Session>) -> Workload {
        Workload {
            name: name.to_owned(),
            sessions,
            warmup_requests: self.warmup_requests,
            sends_until: None,
        }
    }
}

impl Session {
    /// A client's program in the first region, behind no other.
    pub fn new(key: u64, starts: Duration, steps: Vec<Step>) -> Self {
        Self {
            region: 0,
            key,
            follows: None,
            starts,
            adapter: None,
            class: RequestClass::default(),
            steps,
        }
    }

    /// A single request from the first region that waits for no response.
    pub fn one(key: u64, starts: Duration, prompt: Prompt, answer: Piece) -> Self {
        let step = Step {
            after: None,
            think: Duration::ZERO,
            prompt,
            output_tokens: answer.tokens,
            answer_id: answer.id,
        };
        Self::new(key, starts, vec![step])
    }

    /// The session with this class of requests.
    pub fn with_class(mut self, class: RequestClass) -> Self {
        self.class = class;
        self
    }
}

impl Step {
    /// The answer as the piece that later prompts repeat behind this one's: engines keep the blocks of what they generated.
    pub fn answer(&self) -> Piece {
        Piece::new(self.answer_id, self.output_tokens)
    }
}

impl Workload {
    /// Number of requests, if none is cut.
    pub fn requests(&self) -> usize {
        self.sessions
            .iter()
            .map(|session| session.steps.len())
            .sum()
    }
}
