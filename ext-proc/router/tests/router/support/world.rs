//! Several regions in virtual milliseconds: a router each, replicas that take a fixed time, heartbeats and requests that
//! take time on the way, rejected requests that return.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_router::{
    Effect, End, Event, ForwardingRule, PeerId, PeerReport, Push, RegionRules, ReplicaId, Request,
    RequestId, Router, RouterConfig, Scope, ServedBy, Time,
};

use super::pool::ms;
use super::request;

/// One way between any two regions.
pub const WAY_MS: u64 = 75;
/// Between two heartbeats of one peer.
pub const HEARTBEAT_MS: u64 = 200;
/// SkyLB's tau.
pub const TAU: u32 = 4;

/// Description of a region.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub replicas: u32,
    /// Requests that each replica holds at a time.
    pub slots: u32,
    /// Whether it misbehaves: reports free capacity that it does not have, and rejects all requests.
    pub lies: bool,
}

/// A request of a client, on its way through the regions.
#[derive(Clone, Debug)]
struct Journey {
    home: usize,
    blocks: Vec<u64>,
    tried: Vec<PeerId>,
    /// Ids in the origin region that left and returned, or have not ended.
    left_as: Vec<RequestId>,
}

#[derive(Clone, Debug)]
enum WorldEvent {
    Arrives {
        journey: usize,
        at: usize,
    },
    Ends {
        at: usize,
        id: RequestId,
        journey: usize,
    },
    Answered {
        journey: usize,
    },
    Asks {
        asker: usize,
        of: usize,
    },
    Hears {
        asker: usize,
        of: usize,
        report: PeerReport,
        asked_ms: u64,
    },
}

/// Observations of a run, by region.
#[derive(Debug, Default)]
pub struct Outcome {
    pub served: Vec<usize>,
    pub forwarded: Vec<u64>,
    pub returned: Vec<u64>,
    pub rejected_requests: Vec<u64>,
    pub longest_queue: Vec<usize>,
    pub answered: usize,
    pub rejected: usize,
    pub ended_ms: u64,
    /// The most that one client's request went away.
    pub detours_max: usize,
}

/// The regions.
pub struct World {
    routers: Vec<Router>,
    shapes: Vec<Shape>,
    service_ms: u64,
    now_ms: u64,
    agenda: BTreeMap<(u64, u64), WorldEvent>,
    next: u64,
    next_request: u64,
    journeys: Vec<Journey>,
    /// The client's request of a request at a region.
    of: BTreeMap<(usize, RequestId), usize>,
    pub outcome: Outcome,
}

impl World {
    pub fn new(shapes: &[Shape], service_ms: u64) -> Self {
        let regions = shapes.len();
        let mut world = Self {
            routers: Vec::new(),
            shapes: shapes.to_vec(),
            service_ms,
            now_ms: 0,
            agenda: BTreeMap::new(),
            next: 0,
            next_request: 0,
            journeys: Vec::new(),
            of: BTreeMap::new(),
            outcome: Outcome {
                served: vec![0; regions],
                longest_queue: vec![0; regions],
                ..Outcome::default()
            },
        };
        for (here, shape) in shapes.iter().enumerate() {
            let config = RouterConfig {
                push: Push::Outstanding { max: shape.slots },
                region: RegionRules {
                    forwarding: ForwardingRule::Cost,
                    queue_max: TAU,
                    stale_after: Duration::from_millis(3 * HEARTBEAT_MS),
                    ..RouterConfig::default().region
                },
                ..RouterConfig::default()
            };
            let mut router = Router::new(config, here as u64);
            for id in 0..shape.replicas {
                let replica = ReplicaId(id);
                let name = format!("10.{here}.0.{id}:8000");
                router.handle(
                    Time::ZERO,
                    Event::Added {
                        replica,
                        name,
                        role: isotherm_router::Role::Both,
                    },
                );
            }
            for of in (0..regions).filter(|of| *of != here) {
                let name = format!("region-{of}");
                let peer = peer(of);
                router.handle(Time::ZERO, Event::PeerAdded { peer, name });
                let phase = 37 * (here + 3 * of) as u64 % HEARTBEAT_MS;
                world.at(phase, WorldEvent::Asks { asker: here, of });
            }
            world.routers.push(router);
        }
        world
    }

    /// A client of this region sends a request then.
    pub fn client(&mut self, at_ms: u64, home: usize, blocks: &[u64]) {
        let journey = self.journeys.len();
        self.journeys.push(Journey {
            home,
            blocks: blocks.to_vec(),
            tried: Vec::new(),
            left_as: Vec::new(),
        });
        self.at(at_ms, WorldEvent::Arrives { journey, at: home });
    }

    /// Runs until every client has an answer.
    pub fn run(mut self) -> Outcome {
        while self.outcome.answered + self.outcome.rejected < self.journeys.len() {
            let ((at_ms, _), what) = self.agenda.pop_first().unwrap();
            assert!(at_ms < 3_600_000, "it does not end: {:?}", self.outcome);
            self.now_ms = at_ms;
            self.happens(what);
            for here in 0..self.routers.len() {
                self.routers[here].handle_timeout(ms(self.now_ms));
                self.take_effects(here);
                let queue = self.routers[here].stats(ms(self.now_ms)).queue_length;
                let longest = &mut self.outcome.longest_queue[here];
                *longest = (*longest).max(queue);
            }
        }
        for router in &self.routers {
            let stats = router.stats(ms(self.now_ms));
            self.outcome.forwarded.push(stats.counters.forwarded);
            self.outcome.returned.push(stats.counters.returned);
            let refused = stats.counters.forwarded_in_rejected;
            self.outcome.rejected_requests.push(refused);
        }
        self.outcome.ended_ms = self.now_ms;
        self.outcome
    }

    fn at(&mut self, at_ms: u64, what: WorldEvent) {
        self.agenda.insert((at_ms, self.next), what);
        self.next += 1;
    }

    fn happens(&mut self, what: WorldEvent) {
        let now = ms(self.now_ms);
        match what {
            WorldEvent::Arrives { journey, at } => self.arrives(journey, at),
            WorldEvent::Ends { at, id, journey } => {
                self.routers[at].handle(now, finished(id, ServedBy::Unreported));
                self.outcome.served[at] += 1;
                let way = if at == self.journeys[journey].home {
                    0
                } else {
                    WAY_MS
                };
                self.at(self.now_ms + way, WorldEvent::Answered { journey });
            }
            WorldEvent::Answered { journey } => {
                let Journey { home, left_as, .. } = self.journeys[journey].clone();
                let returned = self.journeys[journey].tried.len();
                for (i, id) in left_as.into_iter().enumerate() {
                    let served = if i < returned {
                        ServedBy::UnknownHost
                    } else {
                        ServedBy::Unreported
                    };
                    self.routers[home].handle(now, finished(id, served));
                }
                self.outcome.answered += 1;
                self.outcome.detours_max = self.outcome.detours_max.max(returned);
            }
            WorldEvent::Asks { asker, of } => {
                let report = if self.shapes[of].lies {
                    PeerReport {
                        available: 10,
                        replicas: 10,
                        free_capacity: 1_000,
                        queue: 0,
                        drain_per_s: 1_000.0,
                        ..PeerReport::default()
                    }
                } else {
                    self.routers[of].report()
                };
                let asked_ms = self.now_ms;
                // The answer is made half way; nothing that happens there meanwhile is in it.
                let hears = WorldEvent::Hears {
                    asker,
                    of,
                    report,
                    asked_ms,
                };
                self.at(asked_ms + 2 * WAY_MS, hears);
                self.at(asked_ms + HEARTBEAT_MS, WorldEvent::Asks { asker, of });
            }
            WorldEvent::Hears {
                asker,
                of,
                report,
                asked_ms,
            } => {
                let event = Event::PeerReported {
                    peer: peer(of),
                    report,
                    as_of: ms(asked_ms),
                    round_trip: Duration::from_millis(2 * WAY_MS),
                };
                self.routers[asker].handle(now, event);
            }
        }
    }

    fn arrives(&mut self, journey: usize, at: usize) {
        let Journey {
            home,
            blocks,
            tried,
            ..
        } = self.journeys[journey].clone();
        if at != home && self.shapes[at].lies {
            self.comes_back(journey, at);
            return;
        }
        let scope = if at == home {
            Scope::Regions {
                tried: tried.into(),
            }
        } else {
            Scope::Forwarded
        };
        let id = self.next_request;
        self.next_request += 1;
        self.of.insert((at, RequestId(id)), journey);
        let request = Request {
            scope,
            ..request(id, journey as u64, &blocks)
        };
        self.routers[at].handle(ms(self.now_ms), Event::Arrived(request));
    }

    fn comes_back(&mut self, journey: usize, from: usize) {
        let travels = &mut self.journeys[journey];
        let from = peer(from);
        assert!(!travels.tried.contains(&from), "twice to the same region");
        travels.tried.push(from);
        let at = travels.home;
        self.at(self.now_ms + WAY_MS, WorldEvent::Arrives { journey, at });
    }

    fn take_effects(&mut self, here: usize) {
        while let Some(effect) = self.routers[here].poll_effect() {
            match effect {
                Effect::Dispatch(id, _) => {
                    let journey = self.of[&(here, id)];
                    let ends = WorldEvent::Ends {
                        at: here,
                        id,
                        journey,
                    };
                    self.at(self.now_ms + self.service_ms, ends);
                }
                Effect::Forward(id, forwarding) => {
                    let journey = self.of[&(here, id)];
                    let travels = &mut self.journeys[journey];
                    assert_eq!(
                        travels.home, here,
                        "a forwarded request is never forwarded again"
                    );
                    travels.left_as.push(id);
                    let at = usize::from(forwarding.peer.0);
                    self.at(self.now_ms + WAY_MS, WorldEvent::Arrives { journey, at });
                }
                Effect::Reject { id, .. } => {
                    let journey = self.of[&(here, id)];
                    if self.journeys[journey].home == here {
                        self.outcome.rejected += 1;
                    } else {
                        self.comes_back(journey, here);
                    }
                }
                Effect::Hung { .. } => {}
            }
        }
    }
}

fn peer(region: usize) -> PeerId {
    PeerId(u16::try_from(region).unwrap())
}

fn finished(id: RequestId, served_by: ServedBy) -> Event {
    Event::Finished {
        id,
        served_by,
        end: End::Answered,
        ttft_us: None,
        prompt_tokens: None,
        cached_tokens: None,
        completion_tokens: None,
    }
}
