//! The driver's dials: a failed attempt is followed by a growing backoff, and a redial starts at once.

use isotherm_regions::{Event, LinkFailure};

use super::links::{Link, LinkId, Way};
use super::{Due, MS, Nanos, World};

/// Longest duration of an attempt.
const ATTEMPT_MAX: Nanos = 2_000 * MS;
/// Time after which an unacknowledged connection is tried again within one attempt.
const AGAIN_AFTER: Nanos = 1_000 * MS;
const PAUSE_MIN: Nanos = 400 * MS;
pub const PAUSE_MAX: Nanos = 2_000 * MS;

#[derive(Clone, Debug, Default)]
pub struct Dialler {
    pub up: Option<LinkId>,
    attempt: u64,
    began: Nanos,
    dialling: bool,
    pause: Nanos,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The first packet reaches the other side, or not.
    Connect { again: bool },
    /// The handshake ends.
    Shake,
    /// The host refuses the connection.
    Refused,
    /// The attempt has lasted too long.
    Timeout,
    /// The pause ends.
    Paused,
}

impl World {
    pub fn dial(&mut self, from: usize, to: usize) {
        let dialler = &mut self.dials[from][to];
        dialler.attempt += 1;
        dialler.began = self.now;
        dialler.dialling = true;
        self.step(
            from,
            to,
            self.delay[from][to],
            Step::Connect { again: false },
        );
        self.step(from, to, ATTEMPT_MAX, Step::Timeout);
    }

    /// Drops the link or the attempt in progress, and dials.
    pub fn redial(&mut self, from: usize, to: usize) {
        self.drop_link(from, to);
        self.dials[from][to].pause = PAUSE_MIN;
        self.dial(from, to);
    }

    pub fn stop_dialling(&mut self, from: usize) {
        for to in 0..self.regions.len() {
            self.dials[from][to].attempt += 1;
            self.dials[from][to].up = None;
            self.dials[from][to].dialling = false;
            self.dials[from][to].pause = PAUSE_MIN;
        }
    }

    pub fn pause(&mut self, from: usize, to: usize) {
        let dialler = &mut self.dials[from][to];
        dialler.attempt += 1;
        dialler.dialling = false;
        let pause = dialler.pause.clamp(PAUSE_MIN, PAUSE_MAX);
        dialler.pause = (pause * 2).min(PAUSE_MAX);
        let pause = pause * self.random.between(50, 100) / 100;
        self.step(from, to, pause, Step::Paused);
    }

    fn step(&mut self, from: usize, to: usize, after: Nanos, step: Step) {
        let attempt = self.dials[from][to].attempt;
        let due = Due::Dial {
            from,
            to,
            attempt,
            step,
        };
        self.at(self.now + after, due);
    }

    pub fn dial_step(&mut self, from: usize, to: usize, attempt: u64, step: Step) {
        if self.dials[from][to].attempt != attempt || self.regions[from].service.is_none() {
            return;
        }
        if self.regions[from].frozen {
            let due = Due::Dial {
                from,
                to,
                attempt,
                step,
            };
            self.at(self.now + 50 * MS, due);
            return;
        }
        let open = self.open(from, to);
        let runs = self.regions[to].service.is_some() && !self.regions[to].filtered;
        match step {
            Step::Paused => self.dial(from, to),
            Step::Timeout => {
                if self.dials[from][to].dialling {
                    self.failed(from, to, LinkFailure::Unreachable);
                }
            }
            Step::Connect { again } => {
                if open && runs {
                    let shake = 3 * self.delay[from][to];
                    self.step(from, to, shake, Step::Shake);
                } else if open && self.regions[to].host {
                    self.step(from, to, self.delay[to][from], Step::Refused);
                } else if !again {
                    self.step(from, to, AGAIN_AFTER, Step::Connect { again: true });
                }
            }
            Step::Refused => self.failed(from, to, LinkFailure::Unreachable),
            Step::Shake => {
                if !open || !self.runs(to) {
                    // A packet of the handshake is lost, or the other side stands still: tried again.
                    self.step(from, to, 300 * MS, Step::Shake);
                } else if !(self.regions[from].trusted && self.regions[to].trusted) {
                    self.failed(from, to, LinkFailure::Refused);
                } else {
                    self.connected(from, to);
                }
            }
        }
    }

    fn failed(&mut self, from: usize, to: usize, why: LinkFailure) {
        let began = self.local(from, self.dials[from][to].began);
        let peer = Self::id(from, to);
        self.call(
            from,
            Event::LinkDown {
                peer,
                failure: why,
                dial_started: began,
            },
        );
        if self.regions[from].service.is_some() && self.dials[from][to].dialling {
            self.pause(from, to);
        }
    }

    fn connected(&mut self, from: usize, to: usize) {
        self.next += 1;
        let id = self.next;
        let life = |at: &super::Region| at.service.as_ref().map(|service| service.life);
        let link = Link {
            from,
            to,
            from_life: life(&self.regions[from]),
            to_life: life(&self.regions[to]),
            began: self.dials[from][to].began,
            asks: Way::default(),
            answers: Way::default(),
        };
        self.links.insert(id, link);
        self.sweep();
        let dialler = &mut self.dials[from][to];
        dialler.attempt += 1;
        dialler.dialling = false;
        dialler.pause = PAUSE_MIN;
        dialler.up = Some(id);
        let (peer, session) = (Self::id(from, to), Self::session(id));
        self.call(from, Event::LinkUp(peer, session));
    }
}
