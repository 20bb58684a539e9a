//! A router with a full index, and the load that continues to fill it.
//!
//! Prompts are turns of conversations of about 64 KB (some 100 blocks) that share 16 system prompts; each turn adds
//! eight blocks. Four requests of five go on with a conversation, one starts a new one.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use isotherm_fingerprint::{BlockHash, Fingerprint};
use isotherm_policies::PolicyName;
use isotherm_router::{
    AdapterKey, Effect, End, Event, IndexLimits, PeerId, PeerReport, PolicyFactory, Push,
    QueueLimits, RegionRules, ReplicaId, Request, RequestId, Router, RouterConfig, Scope, ServedBy,
    SessionKey, TenantId, TenantLimits, Tier, TierRules, Time,
};

use crate::numbers::{Numbers, mix};

const SYSTEM_BLOCKS: u32 = 16;
const FIRST_BLOCKS: u32 = 92;
const TURN_BLOCKS: u32 = 8;
/// Bound on the length of a conversation, after which another one begins.
const BLOCKS_MAX: u32 = 300;
/// Bytes and tokens between two blocks.
const BLOCK_BYTES: u32 = 600;
const BLOCK_TOKENS: u32 = 150;
/// Nanoseconds between two requests.
const STEP_NS: u64 = 1_000_000;
/// Concurrent requests.
const CONCURRENT: usize = 8;
/// Longer than any bench.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Another turn of a conversation: most of it is known.
    Turn,
    /// A new conversation: known up to its system prompt.
    New,
    /// Four turns to one new conversation.
    Mixed,
}

#[derive(Clone, Copy, Debug)]
struct Conversation {
    id: u64,
    /// Length of its last prompt, in blocks.
    blocks: u32,
}

/// A router, and the state of its clients.
#[derive(Debug)]
pub struct Load {
    pub(crate) policy: PolicyFactory,
    pub(crate) router: Router,
    numbers: Numbers,
    pub(crate) now: u64,
    pub(crate) next_request: u64,
    conversations: Vec<Conversation>,
    next_conversation: u64,
    pub(crate) scope: Scope,
    pub(crate) adapter: Option<AdapterKey>,
    /// Tenants that conversations belong to; 0 for the common tenant and its tier.
    tenants: u64,
    pub(crate) running: VecDeque<RequestId>,
}

impl Load {
    /// A pool with this many replicas, and an index that is filled to this many nodes, or to its bound.
    #[must_use]
    pub fn new(config: RouterConfig, replicas: u32, nodes: usize) -> Self {
        let mut load = Self {
            policy: config.policy.clone(),
            router: Router::new(config, 1),
            numbers: Numbers::new(1),
            now: 1,
            next_request: 0,
            conversations: Vec::new(),
            next_conversation: 0,
            scope: Scope::Local,
            adapter: None,
            tenants: 0,
            running: VecDeque::new(),
        };
        for id in 0..replicas {
            let replica = ReplicaId(id);
            let name = format!("10.0.{}.{}:8000", id / 256, id % 256);
            load.event(Event::Added {
                replica,
                name,
                role: isotherm_router::Role::Both,
            });
        }
        for id in 0..replicas {
            load.event(Event::Probed {
                replica: ReplicaId(id),
                load: isotherm_router::Load::default(),
                sent: Time::from_nanos(load.now),
            });
        }
        while load.index_nodes() < nodes {
            let before = load.stats().index.evicted;
            for _ in 0..100 {
                let request = load.request(Kind::Mixed);
                load.decide(request);
                load.settle(End::Answered);
            }
            if load.stats().index.evicted > before {
                break;
            }
        }
        load
    }

    /// A full pool in one of several regions, whose peers all have free capacity, and an index over peers with this many nodes.
    ///
    /// # Panics
    /// When a request is not forwarded although it must be: the bench would measure something else.
    #[must_use]
    #[expect(
        clippy::panic,
        reason = "a bench that measures something else must not go on"
    )]
    pub fn full(policy: PolicyName, replicas: u32, peers: u16, nodes: usize) -> Self {
        let config = RouterConfig {
            push: Push::Outstanding { max: 1 },
            region: RegionRules {
                stale_after: FOR_EVER,
                ..RouterConfig::default().region
            },
            ..config(policy, 1 << 30)
        };
        let mut load = Self::new(config, replicas, 0);
        for _ in 0..replicas {
            let request = load.request(Kind::Mixed);
            load.decide(request);
        }
        load.running.clear(); // these requests do not end
        load.scope = Scope::Regions {
            tried: smallvec::SmallVec::new(),
        };
        for id in 0..peers {
            let name = format!("region-{id}");
            let peer = PeerId(id);
            load.event(Event::PeerAdded { peer, name });
            load.heartbeat(id);
        }
        while load.stats().peer_index.nodes < nodes {
            let request = load.request(Kind::Mixed);
            let effect = load.decide(request);
            if !matches!(effect, Some(Effect::Forward(..))) {
                panic!("not forwarded: {effect:?}");
            }
            load.settle(End::Answered);
            load.heartbeat((load.next_request % u64::from(peers)) as u16);
        }
        load
    }

    /// A pool of replicas that take one request each, and this many waiting requests.
    #[must_use]
    pub fn waiting(policy: PolicyName, replicas: u32, requests: usize) -> Self {
        let mut config = config(policy, 64 << 20);
        config.push = Push::Outstanding { max: 1 };
        let mut load = Self::new(config, replicas, 0);
        for _ in 0..requests + replicas as usize {
            let request = load.request(Kind::Mixed);
            load.decide(request);
        }
        load
    }

    /// The pool of [`Self::waiting`], with tiers, and with a bound on the share of so many tenants.
    #[must_use]
    pub fn waiting_in_tiers(
        policy: PolicyName,
        replicas: u32,
        requests: usize,
        tenants: u64,
    ) -> Self {
        let mut config = with_tiers(config(policy, 64 << 20), tenants);
        config.push = Push::Outstanding { max: 1 };
        let mut load = Self::new(config, replicas, 0);
        load.tenants = tenants;
        for _ in 0..requests + replicas as usize {
            let request = load.request(Kind::Mixed);
            load.decide(request);
        }
        load
    }

    /// A pool as by [`Self::new`], with tiers, and with a bound on the share of so many tenants.
    #[must_use]
    pub fn in_tiers(config: RouterConfig, replicas: u32, nodes: usize, tenants: u64) -> Self {
        let mut load = Self::new(with_tiers(config, tenants), replicas, nodes);
        load.tenants = tenants;
        load
    }

    /// A peer region reports its load.
    pub fn heartbeat(&mut self, id: u16) {
        let event = self.heartbeat_event(id);
        self.event(event);
    }

    pub(crate) fn heartbeat_event(&mut self, id: u16) -> Event {
        let draw = self.numbers.draw();
        Event::PeerReported {
            peer: PeerId(id),
            report: PeerReport {
                available: 10,
                replicas: 100,
                free_capacity: 1_000_000,
                queue: (draw % 3) as u32,
                drain_per_s: 50.0,
                ..PeerReport::default()
            },
            as_of: Time::from_nanos(self.now),
            round_trip: Duration::from_micros(50_000 + draw % 100_000),
        }
    }

    /// Advances the clock.
    pub fn pass(&mut self, nanoseconds: u64) {
        self.now += nanoseconds;
    }

    /// The next request, which extends its conversation.
    pub fn request(&mut self, kind: Kind) -> Request {
        let (at, conversation) = self.draw(kind);
        match self.conversations.get_mut(at) {
            Some(known) => *known = conversation,
            None => self.conversations.push(conversation),
        }
        self.ask(conversation)
    }

    /// A request like the next one that extends no conversation. With [`End::Refused`] the size of the index stays the same,
    /// unless two concurrent requests extend the same conversation.
    pub fn passing_request(&mut self, kind: Kind) -> Request {
        let (_, conversation) = self.draw(kind);
        self.ask(conversation)
    }

    /// Selects the conversation of the next request and its new length.
    fn draw(&mut self, kind: Kind) -> (usize, Conversation) {
        let draw = self.numbers.draw();
        let known = self.conversations.len();
        let new = match kind {
            Kind::Turn => false,
            Kind::New => true,
            Kind::Mixed => draw.is_multiple_of(5),
        };
        let at = if known == 0 || new {
            known
        } else {
            (draw / 5) as usize % known
        };
        let known = self.conversations.get(at).copied();
        let continued = known.filter(|conversation| conversation.blocks < BLOCKS_MAX);
        let mut conversation = continued.unwrap_or_else(|| {
            self.next_conversation += 1;
            Conversation {
                id: self.next_conversation,
                blocks: SYSTEM_BLOCKS + FIRST_BLOCKS,
            }
        });
        conversation.blocks += TURN_BLOCKS;
        (at, conversation)
    }

    fn ask(&mut self, conversation: Conversation) -> Request {
        let Conversation { id, blocks } = conversation;
        self.asks(id, chain(id, blocks), blocks * BLOCK_TOKENS)
    }

    /// A request with this prompt.
    pub fn asks(&mut self, session: u64, prompt: Fingerprint, tokens: u32) -> Request {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let (tenant, tier) = self.sender(session);
        Request {
            id,
            fingerprint: Arc::new(prompt),
            session: Some(SessionKey(session)),
            tier,
            ttft_slo: None,
            deadline: None,
            prompt_tokens: tokens,
            output_tokens_max: None,
            previous_response: None,
            subset: None,
            adapter: self.adapter,
            scope: self.scope.clone(),
            tenant,
            tells_start: true,
            api: None,
            wants_stream: true,
        }
    }

    /// The tenant and the tier of a conversation.
    fn sender(&self, conversation: u64) -> (TenantId, Tier) {
        if self.tenants == 0 {
            return (TenantId::default(), Tier::default());
        }
        let tier = if conversation.is_multiple_of(3) {
            Tier::InteractiveFast
        } else {
            Tier::InteractiveNormal
        };
        (TenantId(1 + mix(conversation) % self.tenants), tier)
    }

    /// The measured work: lookup, selection, fallbacks and insertion.
    pub fn decide(&mut self, request: Request) -> Option<Effect> {
        self.event(Event::Arrived(request));
        let effect = self.router.poll_effect();
        if let Some(Effect::Dispatch(id, _) | Effect::Forward(id, _)) = &effect {
            self.running.push_back(*id);
        }
        effect
    }

    /// Lets time pass. Once several requests run, the oldest one ends as `end`; the index forgets a refused request.
    pub fn settle(&mut self, end: End) {
        if self.running.len() >= CONCURRENT {
            self.finish(end);
        } else {
            self.now += STEP_NS;
        }
    }

    /// Ends the oldest request, and applies all effects.
    pub fn finish(&mut self, end: End) {
        self.now += STEP_NS;
        let Some(id) = self.running.pop_front() else {
            return;
        };
        self.event(Event::Finished {
            id,
            served_by: ServedBy::Unreported,
            end,
            ttft_us: None,
            prompt_tokens: None,
            cached_tokens: None,
            completion_tokens: None,
        });
        while let Some(effect) = self.router.poll_effect() {
            if let Effect::Dispatch(id, _) = effect {
                self.running.push_back(id);
            }
        }
    }

    /// The router's figures.
    #[must_use]
    pub fn stats(&self) -> isotherm_router::Stats {
        self.router.stats(Time::from_nanos(self.now))
    }

    fn index_nodes(&self) -> usize {
        self.stats().index.nodes
    }

    fn event(&mut self, event: Event) {
        self.router.handle(Time::from_nanos(self.now), event);
    }
}

/// Configuration of the benches. Probes never become stale, because none are sent.
#[must_use]
pub fn config(policy: impl Into<PolicyFactory>, index_bytes_max: usize) -> RouterConfig {
    RouterConfig {
        policy: policy.into(),
        push: Push::Outstanding { max: 100 },
        index: IndexLimits {
            bytes_max: index_bytes_max,
            ..RouterConfig::default().index
        },
        queue: QueueLimits {
            length_max: 1_000_000,
            wait_max: FOR_EVER,
            ..QueueLimits::default()
        },
        probe_stale_after: FOR_EVER,
        ..RouterConfig::default()
    }
}

/// A configuration with tiers, and with a bound on the share of so many tenants, which none of them reaches.
fn with_tiers(config: RouterConfig, tenants: u64) -> RouterConfig {
    RouterConfig {
        tiers: Some(TierRules::new(config.ttft_slo, FOR_EVER)),
        tenants: Some(TenantLimits {
            in_flight_max: None,
            share_max: Some(1.0),
            token_share_max: Some(1.0),
            weights: BTreeMap::new(),
            tracked_max: usize::try_from(tenants).unwrap_or(usize::MAX),
        }),
        ..config
    }
}

/// A conversation's prompt when it is this long, in blocks.
fn chain(conversation: u64, blocks: u32) -> Fingerprint {
    let blocks: Vec<BlockHash> = (0..blocks)
        .map(|place| {
            let owner = if place < SYSTEM_BLOCKS {
                conversation % 16
            } else {
                1_000 + conversation
            };
            BlockHash {
                hash: mix(mix(owner) ^ u64::from(place)),
                end_bytes: (place + 1) * BLOCK_BYTES,
            }
        })
        .collect();
    let total = blocks.last().map_or(0, |block| block.end_bytes + 100);
    Fingerprint::new(blocks, total).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_router::TenantStatus;

    fn dispatched(effect: Option<Effect>) -> bool {
        matches!(effect, Some(Effect::Dispatch(..)))
    }

    #[test]
    fn a_load_fills_the_index_and_goes_on() {
        let mut load = Load::new(config(PolicyName::PrefixTree, 1 << 30), 10, 10_000);
        let nodes = load.index_nodes();
        assert!((10_000..14_000).contains(&nodes), "{nodes}");
        for kind in [Kind::Turn, Kind::New, Kind::Mixed] {
            let request = load.request(kind);
            assert!(request.fingerprint.blocks().len() > 100);
            assert!(dispatched(load.decide(request)));
            load.settle(End::Answered);
        }
        assert_eq!(load.stats().in_flight, CONCURRENT - 1);
    }

    #[test]
    fn refused_requests_leave_the_index_unchanged() {
        let mut load = Load::new(config(PolicyName::PrefixTree, 1 << 30), 10, 10_000);
        while load.stats().in_flight > 0 {
            load.finish(End::Answered);
        }
        let before = load.stats().index;
        for _ in 0..100 {
            let request = load.passing_request(Kind::New);
            assert!(dispatched(load.decide(request)));
            load.settle(End::Refused);
        }
        assert!(load.index_nodes() > before.nodes);
        while load.stats().in_flight > 0 {
            load.finish(End::Refused);
        }
        let after = load.stats().index;
        assert_eq!((after.nodes, after.entries), (before.nodes, before.entries));
    }

    #[test]
    fn at_its_bound_it_evicts() {
        let mut load = Load::new(config(PolicyName::PrefixTree, 1 << 20), 10, usize::MAX);
        let before = load.stats().index.evicted;
        let request = load.request(Kind::New);
        load.decide(request);
        assert!(load.stats().index.evicted > before);
    }

    #[test]
    fn waiting_requests_leave_the_queue_one_by_one() {
        let mut load = Load::waiting(PolicyName::PrefixTree, 100, 1_000);
        assert_eq!(load.stats().queue_length, 1_000);
        load.finish(End::Answered);
        assert_eq!(load.stats().queue_length, 999);
        let request = load.request(Kind::Mixed);
        assert!(load.decide(request).is_none());
        assert_eq!(load.stats().queue_length, 1_000);
    }

    #[test]
    fn tenants_wait_in_tiers() {
        let mut load = Load::waiting_in_tiers(PolicyName::Isotherm, 10, 500, 100);
        let waiting = |load: &Load| load.router.tiers(load.now()).map(|tier| tier.waiting);
        let [fast, normal, held] = waiting(&load);
        assert_eq!((fast + normal, held), (500, 0));
        assert!(fast > 50 && normal > 200, "{fast} {normal}");
        let is_waiting = |tenant: &&TenantStatus| tenant.waiting > 0;
        assert!(load.router.tenants().filter(is_waiting).count() > 40);
        load.finish(End::Answered);
        assert_eq!(waiting(&load).iter().sum::<usize>(), 499);
    }

    #[test]
    fn a_full_pool_forwards() {
        let load = Load::full(PolicyName::PrefixTree, 10, 5, 1_000);
        assert!(load.stats().peer_index.nodes >= 1_000);
    }
}
