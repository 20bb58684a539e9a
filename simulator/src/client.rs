//! The clients: the order and the time of requests.
//!
//! A session's steps form a forest: each waits for at most one other, and is sent its think time after the answer to that step.
//! When a request fails, the steps that wait for it are dropped. A session ends when none of its requests is in flight and
//! none will be sent; the sessions that follow it start then.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::workload::{Session, Step, Workload};

/// All clients of a run.
#[derive(Debug)]
pub(crate) struct Clients<'a> {
    workload: &'a Workload,
    /// Sessions that follow no other, the next one last.
    first: Vec<u32>,
    progress: Vec<SessionState>,
    /// Sessions that follow a session, by its index.
    followers: BTreeMap<usize, Vec<u32>>,
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
struct SessionState {
    /// Steps that are in flight, or will be sent at a known time.
    open: usize,
    /// When its last answer came, in nanoseconds.
    ended: u64,
}

impl<'a> Clients<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        let mut followers: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        let mut first = Vec::new();
        for (number, session) in (0..).zip(&workload.sessions) {
            match session.follows {
                Some(before) => followers.entry(before).or_default().push(number),
                None => first.push((session.starts, number)),
            }
        }
        first.sort();
        Self {
            workload,
            first: first.into_iter().rev().map(|(_, number)| number).collect(),
            progress: vec![SessionState::default(); workload.sessions.len()],
            followers,
        }
    }

    /// When the next session starts that follows no other, in nanoseconds; none when all have.
    pub(crate) fn next_start(&self) -> Option<u64> {
        Some(nanos(self.session(*self.first.last()?)?.starts))
    }

    /// Starts the next session; returns its first requests.
    pub(crate) fn start(&mut self) -> Vec<Due> {
        let mut due = Vec::new();
        if let Some(at) = self.next_start()
            && let Some(number) = self.first.pop()
        {
            self.begin(number, at, &mut due);
        }
        due
    }

    /// Ends a step at `at`, with or without an answer; returns the requests that are sent because of that.
    pub(crate) fn over(&mut self, session: u32, step: u32, at: u64, answered: bool) -> Vec<Due> {
        let mut due = Vec::new();
        if answered {
            self.push_steps(session, Some(step as usize), at, &mut due);
        }
        let Some(progress) = self.progress.get_mut(session as usize) else {
            return due;
        };
        progress.open = (progress.open + due.len()).saturating_sub(1);
        progress.ended = progress.ended.max(at);
        if progress.open == 0 {
            let ended = progress.ended;
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

    pub(crate) fn sends_until(&self) -> Option<Duration> {
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

    /// Adds the steps of a session that wait for a step, or for the session's start.
    fn push_steps(&self, session: u32, after: Option<usize>, at: u64, due: &mut Vec<Due>) {
        let steps = self
            .session(session)
            .map_or(&[][..], |session| &session.steps);
        let next = (0..).zip(steps).filter(|(_, step)| step.after == after);
        due.extend(next.map(|(number, step)| Due {
            session,
            step: number,
            at: at.saturating_add(nanos(step.think)),
        }));
    }

    fn begin(&mut self, number: u32, at: u64, due: &mut Vec<Due>) {
        let before = due.len();
        self.push_steps(number, None, at, due);
        let open = due.len() - before;
        if let Some(progress) = self.progress.get_mut(number as usize) {
            progress.open = open;
        }
        if open == 0 {
            // A session without a request has ended as it began.
            self.begin_followers(number, at, due);
        }
    }

    fn begin_followers(&mut self, number: u32, at: u64, due: &mut Vec<Due>) {
        let followers = self.followers.remove(&(number as usize));
        for follower in followers.unwrap_or_default() {
            // A session that follows itself or a later one would never end: `follows` names an earlier one.
            if follower > number {
                let starts = self.session(follower).map_or(0, |one| nanos(one.starts));
                self.begin(follower, at.saturating_add(starts), due);
            }
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
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
        let steps = after.iter().map(step).collect();
        Session {
            follows,
            ..Session::new(0, Duration::from_nanos(starts_ns), steps)
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
