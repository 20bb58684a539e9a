//! Operations, and what each does.

use std::time::Duration;

use isotherm_policies::PolicyName;
use isotherm_router::{
    End, Event, Eviction, ForwardingRule, IndexLimits, PeerReport, Push, QueueLimits, RegionRules,
    ReplicaId, RouterConfig,
};

use super::Naive;
use super::replica::Replica;
use super::tiers::{PoolRules, RequestTags};

/// Shares of the memory in use that probes tell.
const USAGES: [f32; 3] = [0.9, 0.55, 0.3];

/// Scope of a request.
#[derive(Clone, Debug)]
pub enum Reach {
    Home,
    /// Anywhere but to those.
    Regions(Vec<u16>),
    Forwarded,
}

/// Host that is reported to have served.
#[derive(Clone, Copy, Debug)]
pub enum Server {
    Unsaid,
    Member(usize),
    Stranger,
}

/// Outcome of a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportedOutcome {
    pub cached_percent: Option<u32>,
    pub ttft_ms: Option<u64>,
    pub output_tokens: Option<u32>,
}

/// One operation. Numbers choose among what exists at that moment, going round.
#[derive(Clone, Debug)]
pub enum Op {
    Arrive {
        blocks: Vec<u64>,
        session: u64,
        subset: Option<Vec<usize>>,
        reach: Reach,
        standing: RequestTags,
    },
    /// Rules of tiers, of the order of service and of tenants begin to hold.
    SetRules(PoolRules),
    Finish {
        which: usize,
        end: End,
        served: Server,
        cached_percent: Option<u32>,
        ttft_ms: Option<u64>,
        output_tokens: Option<u32>,
    },
    Abort {
        which: usize,
        waiting: bool,
    },
    /// The peer refuses a forwarded request: it comes back.
    /// The response to a request begins.
    Begin(usize),
    Returns(usize),
    FinishAway {
        which: usize,
        end: End,
        elsewhere: bool,
        cached_percent: Option<u32>,
    },
    AbortAway(usize),
    AddPeer(u16),
    RemovePeer(u16),
    LosePeer(u16),
    PeerSays {
        peer: u16,
        report: PeerReport,
        late_ms: u64,
        round_trip_ms: u64,
    },
    /// A sibling places a prompt, of which it knew so many blocks to be there.
    Shared {
        to_peer: bool,
        which: usize,
        blocks: Vec<u64>,
        known: usize,
    },
    Probe {
        which: usize,
        pending: u32,
        tells_all: bool,
        late_ms: u64,
    },
    ProbeAll,
    /// The counters of an engine grow, or it restarts.
    Count {
        which: usize,
        tokens: u32,
        restarts: bool,
    },
    ProbeFails(usize),
    /// A probe finds no metrics.
    AnswersWithoutMetrics(usize),
    /// Whatever is sent to it fails at once.
    Breaks(usize),
    Add,
    Remove(usize),
    Drain(usize),
    Resume(usize),
    Sleep {
        ms: u64,
    },
    Timeout,
    Reconfigure {
        policy: usize,
        push: u32,
        lru: bool,
        bytes_max: usize,
        length_max: usize,
        wait_ms: u64,
        published: bool,
    },
}

impl Naive {
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Arrive {
                blocks,
                session,
                subset,
                reach,
                standing,
            } => self.arrive(blocks, *session, subset.as_deref(), reach, standing),
            Op::SetRules(rules) => {
                self.rules = *rules;
                self.reconfigure();
            }
            Op::Finish {
                which,
                end,
                served,
                cached_percent,
                ttft_ms,
                output_tokens,
            } => {
                let told = ReportedOutcome {
                    cached_percent: *cached_percent,
                    ttft_ms: ttft_ms.filter(|_| self.tells_times),
                    output_tokens: output_tokens.filter(|_| self.tells_times),
                };
                self.finish_one(*which, *end, *served, told);
            }
            Op::Abort { which, waiting } => self.abort(*which, *waiting),
            Op::Begin(which) => self.begin(*which),
            Op::Returns(which) => self.returns(*which),
            Op::FinishAway {
                which,
                end,
                elsewhere,
                cached_percent,
            } => self.finish_away(*which, *end, *elsewhere, *cached_percent),
            Op::AbortAway(which) => {
                if let Some((id, _)) = self.peers.take_away(*which) {
                    self.event(Event::Aborted(id));
                }
            }
            Op::AddPeer(id) => {
                let peer = self.peers.id(*id);
                self.peers.add(peer);
                let name = format!("region-{id}");
                self.event(Event::PeerAdded { peer, name });
            }
            Op::RemovePeer(id) => {
                let peer = self.peers.remove(*id);
                self.event(Event::PeerRemoved(peer));
            }
            Op::LosePeer(id) => {
                let peer = self.peers.id(*id);
                self.peers.lose(peer);
                self.event(Event::PeerLost(peer));
            }
            Op::PeerSays {
                peer,
                report,
                late_ms,
                round_trip_ms,
            } => {
                let peer = self.peers.id(*peer);
                let as_of = self.now.before(Duration::from_millis(*late_ms));
                self.peers.says(peer, *report, as_of);
                self.event(Event::PeerReported {
                    peer,
                    report: *report,
                    as_of,
                    round_trip: Duration::from_millis(*round_trip_ms),
                });
            }
            Op::Shared {
                to_peer,
                which,
                blocks,
                known,
            } => self.shared(*to_peer, *which, blocks, *known),
            Op::Probe {
                which,
                pending,
                tells_all,
                late_ms,
            } => {
                if let Some(replica) = self.replica(*which) {
                    let usage = USAGES[which % USAGES.len()];
                    self.probe(replica, *pending, *tells_all, *late_ms, usage);
                }
            }
            Op::ProbeAll => {
                let all: Vec<ReplicaId> = self.replicas.keys().copied().collect();
                for replica in all {
                    self.probe(replica, 0, true, 0, 0.3);
                }
            }
            Op::Count {
                which,
                tokens,
                restarts,
            } => {
                if let Some(replica) = self.replica(*which) {
                    self.count(replica, *tokens, *restarts);
                }
            }
            Op::ProbeFails(which) => {
                if let Some(replica) = self.replica(*which) {
                    self.replicas.get_mut(&replica).unwrap().failed = true;
                    self.event(Event::ProbeFailed(replica));
                }
            }
            Op::AnswersWithoutMetrics(which) => {
                if let Some(replica) = self.replica(*which) {
                    let sent = self.now;
                    let state = self.replicas.get_mut(&replica).unwrap();
                    state.without_metrics = Some(sent);
                    state.failed = false;
                    self.event(Event::AnsweredWithoutMetrics { replica, sent });
                }
            }
            Op::Breaks(which) => self.breaks(*which),
            Op::Add => {
                let replica = ReplicaId(self.next_replica);
                self.next_replica += 1;
                self.replicas.insert(replica, Replica::default());
                let name = format!("10.0.0.{}:8000", replica.0);
                self.event(Event::Added {
                    replica,
                    name,
                    role: isotherm_router::Role::Both,
                });
            }
            Op::Remove(which) => {
                if let Some(replica) = self.replica(*which) {
                    self.replicas.remove(&replica);
                    self.event(Event::Removed(replica));
                }
            }
            Op::Drain(which) => {
                if let Some(replica) = self.replica(*which) {
                    self.replicas.get_mut(&replica).unwrap().draining = true;
                    for (request, _) in &mut self.waiting {
                        let subset = request.subset.as_deref().unwrap_or_default();
                        let left = subset.iter().filter(|id| **id != replica).copied();
                        request.subset = request.subset.is_some().then(|| left.collect());
                    }
                    self.event(Event::Draining(replica));
                }
            }
            Op::Resume(which) => {
                if let Some(replica) = self.replica(*which) {
                    self.replicas.get_mut(&replica).unwrap().draining = false;
                    self.event(Event::Resumed(replica));
                }
            }
            Op::Sleep { ms } => {
                self.now = self.now.after(Duration::from_millis(*ms));
                self.tick();
                self.router.handle_timeout(self.now);
                self.settle(None);
            }
            Op::Timeout => {
                if let Some(time) = self.router.poll_timeout() {
                    self.now = self.now.max(time);
                    self.tick();
                    self.router.handle_timeout(self.now);
                    self.settle(None);
                }
            }
            Op::Reconfigure {
                policy,
                push,
                lru,
                bytes_max,
                length_max,
                wait_ms,
                published,
            } => {
                let forwarding = match published {
                    true => ForwardingRule::Published,
                    false => ForwardingRule::Cost,
                };
                self.config = RouterConfig {
                    policy: PolicyName::ALL[policy % PolicyName::ALL.len()].into(),
                    push: match push {
                        0 => Push::Blind,
                        1 | 2 => Push::Outstanding { max: *push },
                        _ => Push::Pending,
                    },
                    queue: QueueLimits {
                        length_max: *length_max,
                        wait_max: Duration::from_millis(*wait_ms),
                        ..QueueLimits::default()
                    },
                    index: IndexLimits {
                        bytes_max: *bytes_max,
                        eviction: if *lru { Eviction::Lru } else { Eviction::Fifo },
                    },
                    region: RegionRules {
                        forwarding,
                        ..self.config.region
                    },
                    ..RouterConfig::default()
                };
                self.reconfigure();
            }
        }
    }

    fn reconfigure(&mut self) {
        self.rules.apply(&mut self.config);
        self.tick();
        self.router.reconfigure(self.now, self.config.clone());
        self.settle(None);
    }
}
