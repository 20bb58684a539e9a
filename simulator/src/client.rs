//! The clients: which request is sent when.
//!
//! A session's steps form a forest: each waits for one other at most, and is sent its think time after that one's answer.
//! When a step's request fails, the steps that wait for it are dropped. A session has ended when none of its requests is in flight and
//! none will be sent; the sessions that follow it start then.

use crate::workload::{Session, Step, Workload};

/// End of a list.
const NONE: u32 = u32::MAX;

/// All clients of a run.
#[derive(Debug)]
pub(crate) struct Clients<'a> {
    workload: &'a Workload,
    /// Sessions that follow no other, in the order of their start.
    order: Vec<u32>,
    started: usize,
    sessions: Vec<State>,
    followers: Lists,
}

/// A step that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) session: u32,
    pub(crate) step: u32,
    /// When, in nanoseconds.
    pub(crate) at: u64,
}

/// Progress of a session.
#[derive(Clone, Debug, Default)]
struct State {
    /// Steps that are under way, or will be sent at a time that is known.
    open: u32,
    /// When its last answer came, in nanoseconds.
    ended: u64,
    /// Steps that wait for a step, while the session runs.
    waiting: Lists,
}

/// Linked lists: for each element, the first element that waits for it, and the next that waits for the same.
#[derive(Clone, Debug, Default)]
struct Lists {
    first: Vec<u32>,
    next: Vec<u32>,
}

impl Lists {
    /// Builds the lists from the element that each element waits for.
    fn new(parents: impl ExactSizeIterator<Item = Option<usize>> + DoubleEndedIterator) -> Self {
        let mut lists = Self {
            first: vec![NONE; parents.len()],
            next: vec![NONE; parents.len()],
        };
        // From behind, so that each list is in order.
        for (index, parent) in parents.enumerate().rev() {
            let first = parent.and_then(|parent| lists.first.get_mut(parent));
            if let (Some(first), Some(next)) = (first, lists.next.get_mut(index)) {
                *next = core::mem::replace(first, u32::try_from(index).unwrap_or(NONE));
            }
        }
        lists
    }

    fn of(&self, element: u32) -> impl Iterator<Item = u32> {
        let there = |&index: &u32| (index != NONE).then_some(index);
        let first = self.first.get(element as usize).and_then(there);
        core::iter::successors(first, move |&index| {
            self.next.get(index as usize).and_then(there)
        })
    }
}

impl<'a> Clients<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        let sessions = &workload.sessions;
        let mut order: Vec<u32> = (0..)
            .zip(sessions)
            .filter(|(_, session)| session.follows.is_none())
            .map(|(number, _)| number)
            .collect();
        order.sort_by_key(|&number| sessions.get(number as usize).map(|session| session.starts));
        Self {
            workload,
            order,
            started: 0,
            sessions: vec![State::default(); sessions.len()],
            followers: Lists::new(sessions.iter().map(|session| session.follows)),
        }
    }

    /// When the next session starts that follows no other, in nanoseconds; none when all have.
    pub(crate) fn next_start(&self) -> Option<u64> {
        let number = *self.order.get(self.started)?;
        Some(nanos(self.session(number)?.starts))
    }

    /// Starts the next session; returns its first requests.
    pub(crate) fn start(&mut self) -> Vec<Due> {
        let mut due = Vec::new();
        if let Some(&number) = self.order.get(self.started) {
            self.started += 1;
            let at = self.session(number).map_or(0, |one| nanos(one.starts));
            self.begin(number, at, &mut due);
        }
        due
    }

    /// A step has its answer at `at`, or has failed, or is not sent after all: what is sent because of that.
    pub(crate) fn over(&mut self, session: u32, step: u32, at: u64, answered: bool) -> Vec<Due> {
        let mut due = Vec::new();
        let Some(of) = self.workload.sessions.get(session as usize) else {
            return due;
        };
        let Some(state) = self.sessions.get_mut(session as usize) else {
            return due;
        };
        if answered {
            let steps = state.waiting.of(step).filter_map(|step| {
                let think = nanos(of.steps.get(step as usize)?.think);
                Some(Due {
                    session,
                    step,
                    at: at.saturating_add(think),
                })
            });
            due.extend(steps);
        }
        state.open += u32::try_from(due.len()).unwrap_or(u32::MAX);
        state.open = state.open.saturating_sub(1);
        state.ended = state.ended.max(at);
        if state.open == 0 {
            state.waiting = Lists::default();
            let ended = state.ended;
            self.begin_followers(session, ended, &mut due);
        }
        due
    }

    pub(crate) fn session(&self, session: u32) -> Option<&'a Session> {
        self.workload.sessions.get(session as usize)
    }

    pub(crate) fn step(&self, session: u32, step: u32) -> Option<&'a Step> {
        self.session(session)?.steps.get(step as usize)
    }

    pub(crate) fn sends_until(&self) -> Option<core::time::Duration> {
        self.workload.sends_until
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

    fn begin(&mut self, number: u32, at: u64, due: &mut Vec<Due>) {
        let Some(session) = self.session(number) else {
            return;
        };
        let before = due.len();
        let first = (0..).zip(&session.steps);
        let first = first.filter(|(_, step)| step.after.is_none());
        due.extend(first.map(|(index, step)| Due {
            session: number,
            step: index,
            at: at.saturating_add(nanos(step.think)),
        }));
        let open = u32::try_from(due.len() - before).unwrap_or(u32::MAX);
        if let Some(state) = self.sessions.get_mut(number as usize) {
            state.open = open;
            if session.steps.len() > 1 {
                state.waiting = Lists::new(session.steps.iter().map(|step| step.after));
            }
        }
        if open == 0 {
            // It has nothing to send: it has ended as it began.
            self.begin_followers(number, at, due);
        }
    }

    fn begin_followers(&mut self, number: u32, at: u64, due: &mut Vec<Due>) {
        let followers: Vec<u32> = self.followers.of(number).collect();
        for follower in followers {
            // One that is named by itself, or by a later one, would never end: the list says that it is an earlier one.
            if follower > number {
                let starts = self.session(follower).map_or(0, |one| nanos(one.starts));
                self.begin(follower, at.saturating_add(starts), due);
            }
        }
    }
}

fn nanos(time: core::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::prompt::Prompt;

    fn session(follows: Option<usize>, starts_ns: u64, after: &[Option<usize>]) -> Session {
        let step = |after: &Option<usize>| Step {
            after: *after,
            think: Duration::from_nanos(10),
            prompt: Prompt::default(),
            output_tokens: 1,
            answer_id: 0,
        };
        Session {
            region: 0,
            key: 0,
            follows,
            starts: Duration::from_nanos(starts_ns),
            steps: after.iter().map(step).collect(),
        }
    }

    fn due(session: u32, step: u32, at: u64) -> Due {
        Due { session, step, at }
    }

    fn workload(sessions: Vec<Session>) -> Workload {
        Workload {
            sessions,
            ..Workload::default()
        }
    }

    #[test]
    fn steps_wait_for_their_answer_and_sessions_for_their_start() {
        let tree = session(None, 100, &[None, Some(0), Some(0), Some(1)]);
        let workload = workload(vec![tree, session(None, 50, &[None])]);
        let mut clients = Clients::new(&workload);
        assert_eq!(clients.next_start(), Some(50));
        assert_eq!(clients.start(), [due(1, 0, 60)]);
        assert_eq!(clients.start(), [due(0, 0, 110)]);
        assert_eq!(clients.next_start(), None);
        let branches = clients.over(0, 0, 200, true);
        assert_eq!(branches, [due(0, 1, 210), due(0, 2, 210)]);
        assert_eq!(clients.over(0, 1, 300, true), [due(0, 3, 310)]);
        assert_eq!(clients.over(0, 2, 300, true), []);
    }

    #[test]
    fn a_session_follows_when_the_session_before_has_ended() {
        let first = session(None, 0, &[None, Some(0), Some(1), None]);
        let workload = workload(vec![
            first,
            session(Some(0), 5, &[]),
            session(Some(1), 7, &[None]),
        ]);
        let mut clients = Clients::new(&workload);
        assert_eq!(clients.start().len(), 2);
        assert_eq!(clients.over(0, 3, 400, true), []);
        // What fails takes the two along that wait for it.
        assert_eq!(
            clients.over(0, 0, 300, false),
            [due(2, 0, 400 + 5 + 7 + 10)]
        );
    }
}
