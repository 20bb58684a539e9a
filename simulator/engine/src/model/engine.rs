//! The engine as its caller sees it: requests go in, time passes, events come out.
//!
//! Time is the caller's: a [`Duration`] since the start of the run. A server scales its own clock, a simulator jumps from
//! one [`Engine::poll_timeout`] to the next. The engine keeps one step in progress; a step that only decodes stands for as
//! many equal ones as nothing can change in (a *run*), and is cut short when something arrives. Cutting is exact: the
//! outcome does not depend on how often the engine is polled.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use super::blocks::{BlockHash, BlockPool};
use super::config::Config;
use super::request::{AdapterId, Event, EventKind, Rejection, Request, RequestId};
use super::sequence::{Sequence, SequenceIndex};
use super::stats::{Stats, Totals};
use super::step::{BlockBoundary, Step};
use super::timing::StepCost;

/// A simulated inference engine.
#[derive(Debug)]
pub struct Engine {
    pub(super) config: Config,
    pub(super) pool: BlockPool,
    pub(super) sequences: Vec<Option<Sequence>>,
    vacant: Vec<SequenceIndex>,
    by_id: HashMap<RequestId, SequenceIndex>,
    pub(super) waiting: VecDeque<SequenceIndex>,
    pub(super) running: Vec<SequenceIndex>,
    /// Loaded adapters, least recently used first.
    pub(super) loaded: Vec<AdapterId>,
    /// The step in progress.
    pub(super) step: Option<Step>,
    /// Buffer of the last step, kept for its allocation.
    pub(super) spare: Vec<(SequenceIndex, u32)>,
    /// Buffer of block boundaries within a run.
    pub(super) boundaries: Vec<BlockBoundary>,
    /// The head of `waiting` did not fit, and nothing has changed since that could let it in.
    pub(super) head_blocked: bool,
    pub(super) unseen: usize,
    /// When an idle engine begins its next step.
    pub(super) starts_ns: Option<u64>,
    pub(super) events: VecDeque<Event>,
    pub(super) totals: Totals,
}

impl Engine {
    /// An idle engine with an empty cache.
    pub fn new(config: Config) -> Self {
        let config = config.usable();
        Self {
            pool: BlockPool::new(config.blocks),
            config,
            sequences: Vec::new(),
            vacant: Vec::new(),
            by_id: HashMap::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            loaded: Vec::new(),
            step: None,
            spare: Vec::new(),
            boundaries: Vec::new(),
            head_blocked: false,
            unseen: 0,
            starts_ns: None,
            events: VecDeque::new(),
            totals: Totals::default(),
        }
    }

    /// Takes a request. Whether it was accepted comes out as an event: nothing at first, or [`EventKind::Rejected`]. An idle
    /// engine starts it at the next [`Engine::handle_timeout`], so that all that come at one instant share the first step.
    pub fn submit(&mut self, now: Duration, request: Request) {
        let now_ns = nanos(now);
        self.advance_to(now_ns, Until::Before);
        if let Some(rejection) = self.refusal(&request) {
            self.totals.rejected += 1;
            self.events.push_back(Event {
                at: now,
                id: request.id,
                kind: EventKind::Rejected(rejection),
            });
            return;
        }
        let id = request.id;
        let sequence = Sequence::new(request, now_ns);
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.sequences.push(None);
            u32::try_from(self.sequences.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(place) = self.sequences.get_mut(slot as usize) {
            *place = Some(sequence);
        }
        self.by_id.insert(id, slot);
        self.waiting.push_back(slot);
        self.unseen += 1;
        self.cut_run();
        if self.step.is_none() {
            self.starts_ns.get_or_insert(now_ns);
        }
    }

    /// Restarts the engine: its cache, its adapters and its counters are lost, and the requests in it start anew, as a proxy in
    /// front of it retries them. A first token that is out is not told again.
    pub fn restart(&mut self, now: Duration) {
        self.handle_timeout(now);
        self.step = None;
        while self.preempt_last().is_some() {}
        self.pool = BlockPool::new(self.config.blocks);
        self.loaded.clear();
        self.totals = Totals::default();
        if !self.waiting.is_empty() {
            self.starts_ns = Some(nanos(now));
        }
    }

    /// Removes a request wherever it is; its blocks are free at once, and no event follows. False if it is not here.
    pub fn abort(&mut self, now: Duration, id: RequestId) -> bool {
        self.advance_to(nanos(now), Until::Before);
        let Some(&slot) = self.by_id.get(&id) else {
            return false;
        };
        if let Some(position) = self.running.iter().position(|&running| running == slot) {
            self.running.remove(position);
            if let Some(step) = &mut self.step {
                step.forget(slot);
            }
        } else if let Some(position) = self.waiting.iter().position(|&waiting| waiting == slot) {
            self.waiting.remove(position);
        }
        self.remove(slot);
        self.totals.aborted += 1;
        self.head_blocked = false;
        self.cut_run();
        true
    }

    /// When [`Engine::handle_timeout`] has something to do next; `None` while idle.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let ends_ns = self
            .step
            .as_ref()
            .map(|step| step.ends_ns(&self.config.timing));
        ends_ns.or(self.starts_ns).map(Duration::from_nanos)
    }

    /// Lets time pass: every step that is over by `now` takes effect, and the next one begins where it ended. May be called
    /// at any time, as often as one likes.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.advance_to(nanos(now), Until::Through);
    }

    /// The next event, in the order of their times.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Gauges and counters as of the last call that passed a time.
    pub fn stats(&self) -> Stats {
        Stats {
            waiting: self.waiting.len().saturating_sub(self.unseen),
            arrived: self.unseen,
            running: self.running.len(),
            blocks_held: self.pool.count() - self.pool.free(),
            blocks: self.pool.count(),
            totals: self.totals,
        }
    }

    /// The size of this engine.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Prompt tokens that a request with these block hashes would find now. For an oracle, and for tests.
    pub fn cached_tokens(&self, blocks: &[BlockHash]) -> u32 {
        self.pool.matched(blocks).blocks * self.config.block_tokens
    }

    /// Tokens still to be computed before each request that is here has its first token. For an oracle.
    pub fn backlog_tokens(&self) -> u64 {
        let slots = self.running.iter().chain(&self.waiting);
        slots
            .filter_map(|&slot| self.sequence(slot))
            .filter(|sequence| !sequence.decodes())
            .map(|sequence| u64::from(sequence.uncomputed()))
            .sum()
    }

    /// Makes steps that begin from now on take other times: a slow replica.
    pub fn set_timing(&mut self, now: Duration, timing: StepCost) {
        self.handle_timeout(now);
        self.cut_run();
        if let Some(step) = &mut self.step {
            step.fix_end(&self.config.timing);
        }
        self.config.timing = timing;
        self.config = self.config.usable();
    }

    /// Forgets everything cached and every request, as a restart does. No events follow for what was here.
    pub fn reset(&mut self) {
        *self = Self::new(self.config);
    }

    pub(super) fn sequence(&self, slot: SequenceIndex) -> Option<&Sequence> {
        self.sequences.get(slot as usize)?.as_ref()
    }

    /// Takes a sequence out of the table and its blocks back.
    pub(super) fn remove(&mut self, slot: SequenceIndex) {
        let Some(mut sequence) = self.sequences.get_mut(slot as usize).and_then(Option::take)
        else {
            return;
        };
        self.pool.release(&mut sequence.blocks);
        if sequence.unseen {
            self.unseen -= 1;
        }
        self.by_id.remove(&sequence.id);
        self.vacant.push(slot);
    }

    fn advance_to(&mut self, now_ns: u64, until: Until) {
        loop {
            if let Some(step) = &self.step {
                let ends_ns = step.ends_ns(&self.config.timing);
                if ends_ns > now_ns {
                    return self.advance_run(now_ns);
                }
                self.complete(ends_ns);
                self.schedule(ends_ns);
            } else {
                let is_due = |starts_ns: &u64| match until {
                    Until::Before => *starts_ns < now_ns,
                    Until::Through => *starts_ns <= now_ns,
                };
                let Some(starts_ns) = self.starts_ns.filter(is_due) else {
                    return;
                };
                self.schedule(starts_ns);
            }
        }
    }

    fn refusal(&self, request: &Request) -> Option<Rejection> {
        let tokens = u64::from(request.prompt_tokens) + u64::from(request.output_tokens);
        let tokens_max = self.config.request_tokens_max();
        if request.prompt_tokens == 0 || request.output_tokens == 0 {
            Some(Rejection::Empty)
        } else if tokens > u64::from(tokens_max) {
            Some(Rejection::TooLong { tokens, tokens_max })
        } else if self.waiting.len() >= self.config.waiting_max {
            Some(Rejection::QueueFull {
                requests_max: self.config.waiting_max,
            })
        } else if self.by_id.contains_key(&request.id) {
            Some(Rejection::Duplicate)
        } else {
            None
        }
    }
}

/// Whether time passes up to an instant at which more may come, or beyond it.
#[derive(Clone, Copy)]
enum Until {
    Before,
    Through,
}

/// Nanoseconds of a virtual time; saturates after 584 years.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
