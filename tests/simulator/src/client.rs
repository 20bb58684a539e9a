//! The clients: which request is sent when.
//!
//! A session's steps form a forest: each waits for one other at most. When a step is answered, or refused, those that wait
//! for it are sent after their think time. A refused step does not end its session: the load that clients offer would
//! otherwise fall wherever a system refuses, and flatter it.

use crate::workload::{Session, Step, Workload};

/// End of a list.
const NONE: u32 = u32::MAX;

/// All clients of a run.
#[derive(Debug)]
pub(crate) struct Clients<'a> {
    workload: &'a Workload,
    /// Sessions in the order of their start.
    order: Vec<u32>,
    started: usize,
    /// Who waits for whom, for sessions that have started.
    waiting: Vec<Waiting>,
}

/// For each step the first that waits for it, and the next one that waits for the same.
#[derive(Clone, Debug, Default)]
struct Waiting {
    first: Vec<u32>,
    next: Vec<u32>,
}

impl Waiting {
    fn of(session: &Session) -> Self {
        let steps = session.steps.len();
        if steps < 2 {
            return Self::default();
        }
        let mut waiting = Self {
            first: vec![NONE; steps],
            next: vec![NONE; steps],
        };
        // From behind, so that each list is in the order of the steps.
        for (index, step) in session.steps.iter().enumerate().rev() {
            let first = step.after.and_then(|after| waiting.first.get_mut(after));
            if let (Some(first), Some(next)) = (first, waiting.next.get_mut(index)) {
                *next = core::mem::replace(first, u32::try_from(index).unwrap_or(NONE));
            }
        }
        waiting
    }
}

impl<'a> Clients<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        let mut order: Vec<u32> = (0..).take(workload.sessions.len()).collect();
        order.sort_by_key(|&session| {
            let session = workload.sessions.get(session as usize);
            session.map(|session| session.starts)
        });
        Self {
            workload,
            order,
            started: 0,
            waiting: vec![Waiting::default(); workload.sessions.len()],
        }
    }

    /// When the next session starts, in nanoseconds; none when all have.
    pub(crate) fn next_start(&self) -> Option<u64> {
        let session = *self.order.get(self.started)?;
        Some(nanos(self.session(session)?.starts))
    }

    /// The next session starts: its number, and its first steps with their think times in nanoseconds.
    pub(crate) fn start(&mut self) -> Option<(u32, Vec<(u32, u64)>)> {
        let number = *self.order.get(self.started)?;
        self.started += 1;
        let session = self.workload.sessions.get(number as usize)?;
        if let Some(waiting) = self.waiting.get_mut(number as usize) {
            *waiting = Waiting::of(session);
        }
        let steps = (0..).zip(&session.steps);
        let first = steps.filter(|(_, step)| step.after.is_none());
        Some((
            number,
            first.map(|(at, step)| (at, nanos(step.think))).collect(),
        ))
    }

    pub(crate) fn session(&self, session: u32) -> Option<&'a Session> {
        self.workload.sessions.get(session as usize)
    }

    pub(crate) fn step(&self, session: u32, step: u32) -> Option<&'a Step> {
        self.session(session)?.steps.get(step as usize)
    }

    /// The first step that waits for this one.
    pub(crate) fn first_after(&self, session: u32, step: u32) -> Option<u32> {
        let first = self.waiting.get(session as usize)?.first.get(step as usize);
        first.copied().filter(|&first| first != NONE)
    }

    /// The next step that waits for the same one as this.
    pub(crate) fn next_beside(&self, session: u32, step: u32) -> Option<u32> {
        let next = self.waiting.get(session as usize)?.next.get(step as usize);
        next.copied().filter(|&next| next != NONE)
    }

    /// Whether a request may still be sent then.
    pub(crate) fn may_send(&self, now: u64) -> bool {
        let until = self.workload.sends_until;
        until.is_none_or(|until| now <= nanos(until))
    }

    /// Whether the request of this number only warms the caches.
    pub(crate) fn is_warmup(&self, number: usize) -> bool {
        number < self.workload.warmup_requests
    }
}

fn nanos(time: core::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
