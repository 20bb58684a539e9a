//! Links: in order and without gaps like TCP, so that a loss is a delay for all that follows; what was sent may arrive
//! after its sender is gone.

use isotherm_regions::{Event, Heartbeat, LinkFailure, Ping, RegionRecord, Session};
use std::collections::VecDeque;

use super::{Due, MS, Nanos, World};

pub type LinkId = u64;

#[derive(Clone, Debug)]
pub enum Message {
    Ping(Ping),
    Heartbeat(Heartbeat),
    Record(RegionRecord),
    /// The callee has died.
    Closed,
}

/// Link from a caller to a callee.
#[derive(Debug)]
pub struct Link {
    pub from: usize,
    pub to: usize,
    /// Incarnations of both ends; `None` for a dropped end.
    pub from_life: Option<u64>,
    pub to_life: Option<u64>,
    pub began: Nanos,
    pub asks: Way,
    pub answers: Way,
}

#[derive(Debug, Default)]
pub struct Way {
    queue: VecDeque<(Nanos, Message)>,
    retries: u32,
}

impl World {
    pub fn send(&mut self, link: LinkId, answers: bool, message: Message) {
        let Some(found) = self.links.get(&link) else {
            return;
        };
        let (a, b) = if answers {
            (found.to, found.from)
        } else {
            (found.from, found.to)
        };
        let mut late = self.delay[a][b] + self.random.below(10) * MS / 2;
        if self.noisy && self.random.chance(2) {
            // Lost, and sent again.
            late += self.random.between(50, 300) * MS;
        }
        let at = self.now + late;
        let Some(found) = self.links.get_mut(&link) else {
            return;
        };
        let way = if answers {
            &mut found.answers
        } else {
            &mut found.asks
        };
        let at = way.queue.back().map_or(at, |(last, _)| at.max(*last));
        way.queue.push_back((at, message));
        self.at(at, Due::Pump { link, answers });
    }

    /// Delivers what has arrived.
    pub fn pump(&mut self, id: LinkId, answers: bool) {
        loop {
            let Some(link) = self.links.get_mut(&id) else {
                return;
            };
            let (a, b, life) = if answers {
                (link.to, link.from, link.from_life)
            } else {
                (link.from, link.to, link.to_life)
            };
            let way = if answers {
                &mut link.answers
            } else {
                &mut link.asks
            };
            match way.queue.front() {
                Some((at, _)) if *at <= self.now => {}
                _ => return,
            }
            let running = self.regions[b].service.as_ref().map(|service| service.life);
            if life.is_none() || running != life {
                way.queue.clear();
                return;
            }
            if self.cut[a][b] > 0 {
                // An acknowledgement that is lost does not matter; what is lost is sent again, ever more slowly.
                way.retries += 1;
                let later = self.now + ((200 * MS) << way.retries.min(4));
                self.at(later, Due::Pump { link: id, answers });
                return;
            }
            if self.regions[b].frozen {
                self.at(self.now + 50 * MS, Due::Pump { link: id, answers });
                return;
            }
            way.retries = 0;
            let Some((_, message)) = way.queue.pop_front() else {
                return;
            };
            self.delivered(id, a, b, message);
        }
    }

    fn delivered(&mut self, id: LinkId, a: usize, b: usize, message: Message) {
        let peer = Self::id(b, a);
        match message {
            Message::Ping(ping) => self.asked(id, b, a, &ping),
            Message::Heartbeat(heartbeat) => {
                if self.random.chance(3) {
                    self.checks.keep(b, a, heartbeat.clone());
                }
                self.call(b, Event::Heartbeat(peer, heartbeat));
                if self.random.chance(3)
                    && let Some(heartbeat) = self.checks.old(b, a, &mut self.random)
                {
                    // One from earlier comes again: later, and perhaps from another link or another life.
                    self.call(b, Event::Heartbeat(peer, heartbeat));
                }
            }
            Message::Record(record) => self.call(b, Event::Record(peer, record)),
            Message::Closed => self.broken(b, a, id, LinkFailure::Unreachable),
        }
    }

    /// The side that dialled finds its link broken.
    pub fn broken(&mut self, from: usize, to: usize, id: LinkId, why: LinkFailure) {
        if self.dials[from][to].up != Some(id) {
            return;
        }
        let began = self.links.get(&id).map_or(self.now, |link| link.began);
        self.drop_link(from, to);
        let began = self.local(from, began);
        let peer = Self::id(from, to);
        self.call(
            from,
            Event::LinkDown {
                peer,
                failure: why,
                dial_started: began,
            },
        );
        self.pause(from, to);
    }

    /// The side that dialled drops its link. What it had sent may arrive all the same.
    pub fn drop_link(&mut self, from: usize, to: usize) {
        let Some(id) = self.dials[from][to].up.take() else {
            return;
        };
        let forget = self.random.chance(50);
        if let Some(link) = self.links.get_mut(&id) {
            link.from_life = None;
            if forget {
                self.links.remove(&id);
            }
        }
    }

    pub fn session(id: LinkId) -> Session {
        Session(id)
    }

    /// All links of a service that died.
    pub fn cut_off(&mut self, dead: usize, says_so: bool) {
        let ids: Vec<LinkId> = self.links.keys().copied().collect();
        for id in ids {
            let Some(link) = self.links.get_mut(&id) else {
                continue;
            };
            if link.from == dead {
                link.from_life = None;
            }
            if link.to == dead && link.to_life.take().is_some() && says_so {
                self.send(id, true, Message::Closed);
            }
        }
    }

    /// Removes links without an end.
    pub fn sweep(&mut self) {
        self.links.retain(|_, link| {
            link.from_life.is_some() || (link.to_life.is_some() && !link.asks.queue.is_empty())
        });
    }
}
