//! A naive model of the router: lists, searched from end to end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isotherm_router::{
    Availability, Choice, Decision, Effect, End, Event, Eviction, Forwarding, IndexLimits, Load,
    PeerAvailability, PeerId, PeerReport, PeerSpec, PeerStatus, Placement, PolicyName, Push,
    QueueLimits, RejectReason, ReplicaId, ReplicaSpec, Request, RequestId, Router, RouterConfig,
    Scope, Served, Target, Time,
};

use super::peers::{self, Peers, Since};
use super::{prompt, request};

/// Failures in a row after which a replica is left out.
const FAILURES_MAX: u32 = 5;
/// For how long at first, and at most.
const BACK_OFF_MS: (u64, u64) = (1_000, 16_000);
/// How long one trial keeps the next away.
const TRIAL_MS: u64 = 10_000;
/// Enough to break any replica that takes requests.
const BREAKS: u32 = 2 * FAILURES_MAX;

/// How far a request may go.
#[derive(Clone, Debug)]
pub enum Reach {
    Home,
    /// Anywhere but to those.
    Regions(Vec<u16>),
    Guest,
}

/// Who is said to have served.
#[derive(Clone, Copy, Debug)]
pub enum Server {
    Unsaid,
    Member(usize),
    Stranger,
}

/// One operation. Numbers choose among what exists at that moment, going round.
#[derive(Clone, Debug)]
pub enum Op {
    Arrive {
        blocks: Vec<u64>,
        session: u64,
        subset: Option<Vec<usize>>,
        reach: Reach,
    },
    Finish {
        which: usize,
        end: End,
        served: Server,
        cached_percent: Option<u32>,
    },
    Abort {
        which: usize,
        waiting: bool,
    },
    /// The peer refuses a forwarded request: it comes back.
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
    ProbeFails(usize),
    /// Whatever is sent to it fails at once.
    Breaks(usize),
    Add,
    Remove(usize),
    Drain(usize),
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
    },
}

#[derive(Debug, Default)]
struct Replica {
    draining: bool,
    failed: bool,
    /// When its last good probe was sent, and what it said.
    probe: Option<(Time, u32)>,
    outstanding: u32,
    /// When it was pushed a request, and when one left it.
    pushes: Vec<Time>,
    leaves: Vec<Time>,
    /// When the last probe without a pending request was sent, and the largest number pushed between two such.
    clear: Option<Time>,
    largest_round: usize,
    failing: Failing,
    /// The hashes of all prefixes that it was ever sent.
    sent: BTreeSet<u64>,
}

/// How its requests end.
#[derive(Clone, Copy, Debug, Default)]
struct Failing {
    in_a_row: u32,
    /// Since the last change of `left_out` from or to `None`, or of its back-off.
    epoch: u64,
    left_out: Option<LeftOut>,
}

#[derive(Clone, Copy, Debug)]
struct LeftOut {
    back_off_ms: u64,
    until: Time,
    on_trial: bool,
}

/// A request at a replica.
#[derive(Clone, Debug)]
struct Flight {
    replica: ReplicaId,
    request: Request,
    epoch: u64,
    is_trial: bool,
}

/// What the end of a request says of a replica: whether it failed, where it says anything.
type Evidence = Option<bool>;

impl Failing {
    fn count(&mut self, now: Time, failed: Evidence) {
        self.in_a_row = match failed {
            Some(true) => self.in_a_row + 1,
            Some(false) => 0,
            None => self.in_a_row,
        };
        if self.in_a_row >= FAILURES_MAX {
            self.leave_out(now, BACK_OFF_MS.0);
        }
    }

    fn leave_out(&mut self, now: Time, back_off_ms: u64) {
        self.epoch += 1;
        self.left_out = Some(LeftOut {
            back_off_ms,
            until: now.after(Duration::from_millis(back_off_ms)),
            on_trial: false,
        });
    }

    fn ended(&mut self, now: Time, flight: &Flight, failed: Evidence) {
        if flight.epoch != self.epoch {
            return;
        }
        let Some(left_out) = &mut self.left_out else {
            self.count(now, failed);
            return;
        };
        match failed {
            Some(false) => {
                *self = Self {
                    epoch: self.epoch + 1,
                    ..Self::default()
                }
            }
            Some(true) if left_out.on_trial => {
                let twice = (2 * left_out.back_off_ms).min(BACK_OFF_MS.1);
                self.leave_out(now, twice);
            }
            None if left_out.on_trial && flight.is_trial => {
                left_out.on_trial = false;
                left_out.until = now;
            }
            Some(true) | None => {}
        }
    }

    /// Whether a request that it is sent now is a trial.
    fn sent(&mut self, now: Time) -> bool {
        let due = self
            .left_out
            .as_mut()
            .filter(|left_out| left_out.until <= now);
        if let Some(left_out) = due {
            left_out.on_trial = true;
            left_out.until = now.after(Duration::from_millis(TRIAL_MS));
            return true;
        }
        false
    }
}

/// The model, with the router that it watches.
pub struct Naive {
    router: Router,
    config: RouterConfig,
    now: Time,
    replicas: BTreeMap<ReplicaId, Replica>,
    waiting: Vec<(Request, Since)>,
    in_flight: BTreeMap<RequestId, Flight>,
    peers: Peers,
    /// Whether all that are healthy fail.
    all_fail: bool,
    answered: BTreeSet<RequestId>,
    next_request: u64,
    next_replica: u32,
    /// All effects, in order.
    pub log: Vec<Effect>,
}

impl Naive {
    pub fn new() -> Self {
        let mut config = RouterConfig::default();
        config.region.share = true;
        let mut naive = Self {
            router: Router::new(config.clone(), 5),
            config,
            now: Time::ZERO,
            replicas: BTreeMap::new(),
            waiting: Vec::new(),
            in_flight: BTreeMap::new(),
            peers: Peers::default(),
            all_fail: false,
            answered: BTreeSet::new(),
            next_request: 0,
            next_replica: 0,
            log: Vec::new(),
        };
        for _ in 0..3 {
            naive.apply(&Op::Add);
        }
        naive.apply(&Op::ProbeAll);
        naive
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Arrive {
                blocks,
                session,
                subset,
                reach,
            } => self.arrive(blocks, *session, subset.as_deref(), reach),
            Op::Finish {
                which,
                end,
                served,
                cached_percent,
            } => self.finish_one(*which, *end, *served, *cached_percent),
            Op::Abort { which, waiting } => self.abort(*which, *waiting),
            Op::Returns(which) => self.returns(*which),
            Op::FinishAway {
                which,
                end,
                elsewhere,
                cached_percent,
            } => self.finish_away(*which, *end, *elsewhere, *cached_percent),
            Op::AbortAway(which) => {
                if let Some((id, _)) = self.peers.take_away(*which) {
                    self.event(Event::Aborted { id });
                }
            }
            Op::AddPeer(id) => {
                let peer = PeerId(*id);
                self.peers.add(peer);
                let spec = PeerSpec {
                    name: format!("region-{id}"),
                };
                self.event(Event::PeerAdded { peer, spec });
            }
            Op::RemovePeer(id) => {
                let peer = PeerId(*id);
                self.peers.remove(peer);
                self.event(Event::PeerRemoved { peer });
            }
            Op::LosePeer(id) => {
                let peer = PeerId(*id);
                self.peers.lose(peer);
                self.event(Event::PeerLost { peer });
            }
            Op::PeerSays {
                peer,
                report,
                late_ms,
                round_trip_ms,
            } => {
                let peer = PeerId(*peer);
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
                    self.probe(replica, *pending, *tells_all, *late_ms);
                }
            }
            Op::ProbeAll => {
                let all: Vec<ReplicaId> = self.replicas.keys().copied().collect();
                for replica in all {
                    self.probe(replica, 0, true, 0);
                }
            }
            Op::ProbeFails(which) => {
                if let Some(replica) = self.replica(*which) {
                    self.replicas.get_mut(&replica).unwrap().failed = true;
                    self.event(Event::ProbeFailed { replica });
                }
            }
            Op::Breaks(which) => self.breaks(*which),
            Op::Add => {
                let replica = ReplicaId(self.next_replica);
                self.next_replica += 1;
                self.replicas.insert(replica, Replica::default());
                let spec = ReplicaSpec {
                    name: format!("10.0.0.{}:8000", replica.0),
                };
                self.event(Event::Added { replica, spec });
            }
            Op::Remove(which) => {
                if let Some(replica) = self.replica(*which) {
                    self.replicas.remove(&replica);
                    self.event(Event::Removed { replica });
                }
            }
            Op::Drain(which) => {
                if let Some(replica) = self.replica(*which) {
                    self.replicas.get_mut(&replica).unwrap().draining = true;
                    self.event(Event::Draining { replica });
                }
            }
            Op::Sleep { ms } => {
                self.now = self.now.after(Duration::from_millis(*ms));
                self.router.handle_timeout(self.now);
                self.settle(None);
            }
            Op::Timeout => {
                if let Some(time) = self.router.poll_timeout() {
                    self.now = self.now.max(time);
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
            } => {
                self.config = RouterConfig {
                    policy: PolicyName::ALL[policy % PolicyName::ALL.len()],
                    push: match push {
                        0 => Push::Blind,
                        1 | 2 => Push::Outstanding { max: *push },
                        _ => Push::Pending,
                    },
                    queue: QueueLimits {
                        length_max: *length_max,
                        wait_max: Duration::from_millis(*wait_ms),
                    },
                    index: IndexLimits {
                        bytes_max: *bytes_max,
                        eviction: if *lru { Eviction::Lru } else { Eviction::Fifo },
                    },
                    region: self.config.region,
                    ..RouterConfig::default()
                };
                self.router.reconfigure(self.now, self.config.clone());
                self.settle(None);
            }
        }
    }

    /// Nothing more comes: everybody who waits must be answered by the passing of time alone.
    pub fn finish(&mut self) {
        for _ in 0..10_000 {
            if self.waiting.is_empty() {
                break;
            }
            let time = self.router.poll_timeout().expect("a deadline");
            self.now = self.now.max(time);
            self.router.handle_timeout(self.now);
            self.settle(None);
        }
        assert!(self.waiting.is_empty(), "{:?}", self.waiting);
        let answered = u64::try_from(self.answered.len()).unwrap();
        assert!(answered <= self.next_request);
        self.event(Event::Shutdown);
    }

    fn replica(&self, which: usize) -> Option<ReplicaId> {
        let n = self.replicas.len().max(1);
        self.replicas.keys().nth(which % n).copied()
    }

    fn arrive(&mut self, blocks: &[u64], session: u64, subset: Option<&[usize]>, reach: &Reach) {
        let mut request = request(self.next_request, session, blocks);
        self.next_request += 1;
        request.scope = match reach {
            Reach::Home => Scope::Home,
            Reach::Guest => Scope::Guest,
            Reach::Regions(tried) => Scope::Regions {
                tried: tried.iter().copied().map(PeerId).collect(),
            },
        };
        let number = |which: &usize| ReplicaId(u32::try_from(*which).unwrap());
        request.subset = subset.map(|subset| subset.iter().map(number).collect());
        if let Reach::Regions(tried) = reach
            && let Some(last) = tried.last()
        {
            self.peers.came_back(PeerId(*last), self.now);
        }
        let foretold = self.router.explain(self.now, &request);
        let explained: BTreeSet<ReplicaId> =
            foretold.candidates.iter().map(|c| c.replica).collect();
        for replica in self.replicas.keys() {
            let eligible = self.is_eligible(&request, *replica);
            assert!(!eligible || explained.contains(replica));
        }
        // Those of the subset that do not exist (yet) do not count, also when their number is given out later.
        let mut resolved = request.clone();
        resolved.subset = request.subset.as_deref().map(|subset| {
            let known = |replica: &&ReplicaId| self.replicas.contains_key(replica);
            subset.iter().filter(known).copied().collect()
        });
        let mut since = Since {
            place: resolved.id.0,
            arrived: self.now,
        };
        if let Scope::Regions { tried } = &resolved.scope
            && let Some(last) = tried.last()
        {
            since = self.peers.takes_back(*last, &resolved).unwrap_or(since);
        }
        let behind = |(_, other): &(Request, Since)| *other < since;
        let at = self.waiting.partition_point(behind);
        self.waiting.insert(at, (resolved, since));
        self.event_foretold(Event::Arrived(request), Some(foretold.choice));
    }

    fn finish_one(&mut self, which: usize, end: End, server: Server, cached: Option<u32>) {
        let n = self.in_flight.len().max(1);
        if let Some(id) = self.in_flight.keys().nth(which % n).copied() {
            self.finish_this(id, end, server, cached);
        }
    }

    fn breaks(&mut self, which: usize) {
        let Some(replica) = self.replica(which) else {
            return;
        };
        for _ in 0..BREAKS {
            self.arrive(&[], 0, Some(&[replica.0 as usize]), &Reach::Home);
            let at_it = |(_, flight): &(&RequestId, &Flight)| flight.replica == replica;
            let last = self.in_flight.iter().rfind(at_it).map(|(id, _)| *id);
            if let Some(id) = last {
                self.finish_this(id, End::Failed, Server::Unsaid, None);
            }
        }
    }

    fn finish_this(&mut self, id: RequestId, end: End, server: Server, cached: Option<u32>) {
        let member = match server {
            Server::Member(which) => self.replica(which),
            Server::Unsaid | Server::Stranger => None,
        };
        let served = match (server, member) {
            (Server::Stranger, _) => Served::Stranger,
            (_, Some(replica)) => Served::By(replica),
            (_, None) => Served::Unsaid,
        };
        let chosen = self.in_flight[&id].replica;
        let failed = match end {
            End::Answered => Some(false),
            End::Refused => None,
            End::Failed => Some(true),
        };
        let elsewhere = served != Served::Unsaid && served != Served::By(chosen);
        let request = self.leave(id, if elsewhere { Some(true) } else { failed });
        if let Some(other) = member.filter(|_| elsewhere) {
            let failing = &mut self.replicas.get_mut(&other).unwrap().failing;
            if failing.left_out.is_none() {
                failing.count(self.now, failed);
            }
        }
        if let Some(served) = member
            && let Some(request) = request
            && let Some(replica) = self.replicas.get_mut(&served)
        {
            let edges = request.fingerprint.edges();
            replica.sent.extend(edges.iter().map(|edge| edge.hash));
        }
        let prompt_tokens = cached.map(|_| 640);
        self.event(Event::Finished {
            id,
            served,
            end,
            ttft_us: None,
            prompt_tokens,
            cached_tokens: cached.map(|percent| 640 * percent / 100),
            completion_tokens: None,
        });
    }

    fn abort(&mut self, which: usize, waiting: bool) {
        let id = if waiting {
            let n = self.waiting.len().max(1);
            self.waiting.get(which % n).map(|(request, _)| request.id)
        } else {
            let n = self.in_flight.len().max(1);
            self.in_flight.keys().nth(which % n).copied()
        };
        let Some(id) = id else {
            return;
        };
        self.waiting.retain(|(request, _)| request.id != id);
        self.answered.insert(id);
        self.leave(id, None);
        self.event(Event::Aborted { id });
    }

    fn leave(&mut self, id: RequestId, failed: Evidence) -> Option<Request> {
        let flight = self.in_flight.remove(&id)?;
        if let Some(replica) = self.replicas.get_mut(&flight.replica) {
            replica.failing.ended(self.now, &flight, failed);
            replica.outstanding -= 1;
            replica.leaves.push(self.now);
        }
        Some(flight.request)
    }

    fn probe(&mut self, replica: ReplicaId, pending: u32, tells_all: bool, late_ms: u64) {
        let late = self.now.as_nanos().saturating_sub(late_ms * 1_000_000);
        let sent = Time::from_nanos(late);
        let state = self.replicas.get_mut(&replica).unwrap();
        if state.probe.is_none_or(|(last, _)| sent >= last) {
            state.probe = Some((sent, pending));
            state.failed = false;
            if pending == 0 {
                let from = state.clear.unwrap_or(Time::ZERO);
                let round = state.pushes.iter().filter(|at| **at >= from).count();
                state.largest_round = state.largest_round.max(round);
                state.clear = Some(sent);
            }
        }
        let load = Load {
            pending,
            running: tells_all.then_some(state.outstanding.saturating_sub(pending)),
            kv_usage: tells_all.then_some(0.9),
            kv_capacity_tokens: tells_all.then_some(2_000),
        };
        self.event(Event::Probed {
            replica,
            load,
            sent,
        });
    }

    fn event(&mut self, event: Event) {
        self.event_foretold(event, None);
    }

    fn event_foretold(&mut self, event: Event, choice: Option<Choice>) {
        self.router.handle(self.now, event);
        self.settle(choice);
    }

    /// Takes the effects, and checks them and everything else.
    fn settle(&mut self, mut foretold: Option<Choice>) {
        self.look_whether_all_fail();
        let (mut placed, mut left) = (0, false);
        while let Some(effect) = self.router.poll_effect() {
            self.log.push(effect.clone());
            match effect {
                Effect::Dispatch { id, decision } => {
                    let newest = RequestId(self.next_request - 1);
                    if let Some(choice) = foretold.take_if(|_| id == newest) {
                        let (replica, reason) = (decision.replica, decision.reason);
                        assert_eq!(choice, Choice::Dispatch { replica, reason });
                    }
                    placed += 1;
                    self.dispatched(id, &decision);
                }
                Effect::Reject { id, reason, .. } => self.rejected(id, reason),
                Effect::Forward { id, forwarding } => {
                    let newest = RequestId(self.next_request - 1);
                    if let Some(choice) = foretold.take_if(|_| id == newest) {
                        let (peer, reason) = (forwarding.peer, forwarding.reason);
                        assert_eq!(choice, Choice::Forward { peer, reason });
                    }
                    placed += 1;
                    left = true;
                    self.forwarded(id, &forwarding);
                }
            }
        }
        let free = self.router.stats(self.now).available_replicas;
        assert!(!left || free == 0, "{free} replicas were free here");
        let told = std::iter::from_fn(|| self.router.poll_placement()).count();
        assert_eq!(told, placed, "siblings hear of each");
        self.check();
    }

    /// Takes one that waits, after a look at who came before.
    fn take_waiting(
        &mut self,
        id: RequestId,
        could: impl Fn(&Self, &Request) -> bool,
    ) -> (Request, Since) {
        assert!(self.answered.insert(id), "{id:?} was answered twice");
        let at = self
            .waiting
            .iter()
            .position(|(request, _)| request.id == id);
        let at = at.expect("only who waits is sent");
        for (older, _) in &self.waiting[..at] {
            assert!(!could(self, older), "{:?} came first", older.id);
        }
        self.waiting.remove(at)
    }

    fn forwarded(&mut self, id: RequestId, forwarding: &Forwarding) {
        let peer = forwarding.peer;
        let may_go = |request: &Request| peers::may_leave_for(request, peer);
        let (request, since) = self.take_waiting(id, |_, older| may_go(older));
        assert_eq!(forwarding.queued_for, self.now.since(since.arrived));
        assert!(may_go(&request), "{request:?} to {peer:?}");
        let rules = self.config.region;
        self.peers
            .forwarded(request, since, forwarding, self.now, &rules);
    }

    fn returns(&mut self, which: usize) {
        if let Some((peer, request)) = self.peers.to_refuse(which)
            && let Scope::Regions { tried } = &request.scope
        {
            let mut tried: Vec<u16> = tried.iter().map(|peer| peer.0).collect();
            tried.push(peer.0);
            let session = request.session.unwrap().0;
            let blocks = self.peers.blocks_of(&request);
            self.arrive(&blocks, session, None, &Reach::Regions(tried));
        }
    }

    fn finish_away(&mut self, which: usize, end: End, elsewhere: bool, cached: Option<u32>) {
        let Some((id, away)) = self.peers.take_away(which) else {
            return;
        };
        if elsewhere {
            self.peers.ended_elsewhere(&away, self.now);
        }
        self.event(Event::Finished {
            id,
            served: if elsewhere {
                Served::Stranger
            } else {
                Served::Unsaid
            },
            end,
            ttft_us: None,
            prompt_tokens: cached.map(|_| 640),
            cached_tokens: cached.map(|percent| 640 * percent / 100),
            completion_tokens: None,
        });
    }

    fn shared(&mut self, to_peer: bool, which: usize, blocks: &[u64], known: usize) {
        let prompt = prompt(blocks);
        let edges = prompt.edges();
        let known = known.min(edges.len());
        let target = if to_peer {
            let peer = PeerId(u16::try_from(which % 4).unwrap());
            self.peers.sibling_forwarded(peer, edges, self.now);
            Target::Peer(peer)
        } else {
            let Some(id) = self.replica(which) else {
                return;
            };
            let replica = self.replicas.get_mut(&id).unwrap();
            replica.sent.extend(edges.iter().map(|edge| edge.hash));
            replica.pushes.push(self.now);
            Target::Replica(id)
        };
        self.event(Event::Shared(Placement {
            target,
            parent: edges[..known].last().copied(),
            edges: edges[known..].into(),
        }));
    }

    fn dispatched(&mut self, id: RequestId, decision: &Decision) {
        let could = |naive: &Self, older: &Request| naive.is_eligible(older, decision.replica);
        let (request, since) = self.take_waiting(id, could);
        assert_eq!(decision.queued_for, self.now.since(since.arrived));
        assert!(decision.matched_bytes <= request.fingerprint.total_bytes());
        assert!(self.is_eligible(&request, decision.replica));
        assert!(decision.fallbacks.len() <= self.config.fallbacks_max);
        let mut named: Vec<ReplicaId> = decision.fallbacks.to_vec();
        named.push(decision.replica);
        assert!(named.iter().all(|r| self.is_eligible(&request, *r)));
        for fallback in &decision.fallbacks {
            let fails = self.replicas[fallback].failing.left_out.is_some();
            assert!(self.all_fail || !fails, "{fallback:?} fails itself");
        }
        assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len());

        assert!(self.may_be_pushed(decision.replica), "{decision:?}");
        let replica = self.replicas.get_mut(&decision.replica).unwrap();
        let edges = request.fingerprint.edges();
        assert!(
            edges
                .iter()
                .take_while(|edge| edge.end_bytes <= decision.matched_bytes)
                .all(|edge| replica.sent.contains(&edge.hash)),
            "a match with what it was never sent"
        );
        replica.sent.extend(edges.iter().map(|edge| edge.hash));
        replica.outstanding += 1;
        replica.pushes.push(self.now);
        let flight = Flight {
            replica: decision.replica,
            request,
            epoch: replica.failing.epoch,
            is_trial: replica.failing.sent(self.now),
        };
        self.in_flight.insert(id, flight);
    }

    fn rejected(&mut self, id: RequestId, reason: RejectReason) {
        assert!(self.answered.insert(id), "{id:?} was answered twice");
        let at = self
            .waiting
            .iter()
            .position(|(request, _)| request.id == id);
        let (request, since) = self.waiting.remove(at.expect("only who waits is refused"));
        let arrived = since.arrived;
        let staying = || self.replicas.values().filter(|r| !r.draining);
        match reason {
            RejectReason::QueueFull => {
                assert!(self.waiting.len() >= self.config.queue.length_max);
            }
            RejectReason::WaitedTooLong | RejectReason::NoHealthyReplica => {
                assert!(arrived.after(self.config.queue.wait_max) <= self.now);
            }
            RejectReason::EmptySubset => {
                let mut all = self.replicas.keys();
                assert!(!all.any(|replica| self.is_eligible(&request, *replica)));
            }
            RejectReason::NoReplica => assert_eq!(staying().count(), 0),
            RejectReason::RegionFull => {
                assert_eq!(request.scope, Scope::Guest);
                let tau = usize::try_from(self.config.region.queue_max).unwrap();
                assert!(self.waiting.len() > tau);
            }
            RejectReason::ShuttingDown => {}
        }
    }

    /// Whether a replica may serve a request at all.
    fn is_eligible(&self, request: &Request, replica: ReplicaId) -> bool {
        let staying = self.replicas.get(&replica).is_some_and(|r| !r.draining);
        let subset = request.subset.as_deref();
        staying && subset.is_none_or(|subset| subset.contains(&replica))
    }

    fn is_healthy(&self, replica: &Replica) -> bool {
        let stale_after = self.config.probe_stale_after;
        let stale = |(sent, _): (Time, u32)| sent.after(stale_after) <= self.now;
        !replica.draining && !replica.failed && !replica.probe.is_some_and(stale)
    }

    fn look_whether_all_fail(&mut self) {
        let healthy = || self.replicas.values().filter(|r| self.is_healthy(r));
        let one_answers = healthy().any(|r| r.failing.left_out.is_none());
        let all_fail = healthy().count() > 0 && !one_answers;
        let one_is_back = self.all_fail && one_answers;
        self.all_fail = all_fail;
        let left_out = self
            .replicas
            .values_mut()
            .filter_map(|r| r.failing.left_out.as_mut())
            .filter(|left_out| one_is_back && !left_out.on_trial);
        for left_out in left_out {
            left_out.until = left_out.until.min(self.now);
        }
    }

    /// Whether how its requests end allows one more.
    fn may_be_tried(&self, replica: &Replica) -> bool {
        let left_out = replica.failing.left_out;
        self.all_fail || left_out.is_none_or(|left_out| left_out.until <= self.now)
    }

    /// Whether the mode allows one more; for `pending` what must hold at least.
    fn may_be_pushed(&self, id: ReplicaId) -> bool {
        let replica = &self.replicas[&id];
        match self.config.push {
            Push::Blind => {
                let anybody = self.replicas.values().any(|r| self.is_healthy(r));
                !replica.draining
                    && (!anybody || self.is_healthy(replica) && self.may_be_tried(replica))
            }
            Push::Outstanding { max } => {
                self.is_healthy(replica)
                    && self.may_be_tried(replica)
                    && replica.outstanding < max.max(1)
            }
            Push::Pending => {
                let Some((sent, 0)) = replica.probe else {
                    return false;
                };
                let pushed = replica.pushes.iter().filter(|at| **at >= sent).count();
                let left = replica.leaves.iter().filter(|at| **at >= sent).count();
                let window = (2 * replica.largest_round).max(2);
                self.is_healthy(replica) && self.may_be_tried(replica) && pushed < window + left
            }
        }
    }

    fn check(&self) {
        let stats = self.router.stats(self.now);
        assert_eq!(stats.queue_length, self.waiting.len());
        assert_eq!(stats.in_flight, self.in_flight.len());
        let bytes = stats.index.bytes + stats.peer_index.bytes;
        assert!(bytes <= self.config.index.bytes_max, "{stats:?}");
        assert_eq!(stats.forwarded_in_flight, self.peers.away());
        let peers: Vec<PeerStatus> = self.router.peers(self.now).collect();
        self.peers.check(&peers, self.now, &self.config.region);
        let open = |peer: &&PeerStatus| peer.availability == PeerAvailability::Available;
        for peer in peers.iter().filter(open) {
            for (request, _) in &self.waiting {
                let idles = peers::may_leave_for(request, peer.id) && stats.available_replicas == 0;
                assert!(!idles, "{:?} could leave for {peer:?}", request.id);
            }
        }
        assert!(stats.index.entries >= stats.index.nodes);
        let statuses: Vec<_> = self.router.replicas(self.now).collect();
        assert_eq!(statuses.len(), self.replicas.len());
        for status in statuses {
            let replica = &self.replicas[&status.id];
            assert_eq!(status.outstanding, replica.outstanding);
            let available = status.availability == Availability::Available;
            if self.config.push == Push::Pending {
                assert!(!available || self.may_be_pushed(status.id), "{status:?}");
            } else {
                assert_eq!(available, self.may_be_pushed(status.id), "{status:?}");
            }
            for (request, _) in self.waiting.iter().filter(|_| available) {
                let eligible = self.is_eligible(request, status.id);
                assert!(!eligible, "{:?} waits for nothing", request.id);
            }
        }
        for (request, since) in &self.waiting {
            assert!(since.arrived.after(self.config.queue.wait_max) > self.now);
            assert!(!self.answered.contains(&request.id));
        }
    }
}
