//! A naive model of the router: lists, searched from end to end.

mod check;
mod effects;
pub mod ops;
mod peers;
mod regions;
mod replica;
mod requests;
pub mod tiers;

use std::collections::{BTreeMap, BTreeSet};

use isotherm_policies::PolicyName;
use isotherm_router::{Effect, Event, ReplicaId, Request, RequestId, Router, RouterConfig, Time};

use self::ops::Op;
use self::peers::{Peers, Since};
use self::replica::{InFlightRequest, Replica};
use self::tiers::{GateState, PoolRules};

/// The model, with the router that it watches.
pub struct Naive {
    router: Router,
    config: RouterConfig,
    now: Time,
    replicas: BTreeMap<ReplicaId, Replica>,
    waiting: Vec<(Request, Since)>,
    /// Since when every replica that gets new requests is available and has none.
    idle_since: Option<Time>,
    /// Whether responses tell how long they took.
    tells_times: bool,
    in_flight: BTreeMap<RequestId, InFlightRequest>,
    peers: Peers,
    /// Whether all that are healthy fail.
    all_fail: bool,
    answered: BTreeSet<RequestId>,
    next_request: u64,
    /// Places in the order of arrival that were given out.
    places: u64,
    gate: GateState,
    rules: PoolRules,
    next_replica: u32,
    /// All effects, in order.
    pub log: Vec<Effect>,
}

impl Naive {
    fn policy(&self) -> PolicyName {
        self.config.policy.name().parse().unwrap()
    }

    /// A pool of three replicas under this policy, whose responses tell how long they took, or do not.
    pub fn new(policy: PolicyName, tells_times: bool) -> Self {
        let mut config = RouterConfig {
            policy: policy.into(),
            ..RouterConfig::default()
        };
        config.region.share = true;
        let mut naive = Self {
            router: Router::new(config.clone(), 5),
            config,
            now: Time::ZERO,
            replicas: BTreeMap::new(),
            waiting: Vec::new(),
            idle_since: None,
            tells_times,
            in_flight: BTreeMap::new(),
            peers: Peers::default(),
            all_fail: false,
            answered: BTreeSet::new(),
            next_request: 0,
            places: 0,
            gate: GateState::default(),
            rules: PoolRules::default(),
            next_replica: 0,
            log: Vec::new(),
        };
        for _ in 0..3 {
            naive.apply(&Op::Add);
        }
        naive.apply(&Op::ProbeAll);
        naive
    }

    /// No more events: time alone must answer every waiting request.
    pub fn finish(&mut self) {
        for _ in 0..10_000 {
            if self.waiting.is_empty() {
                break;
            }
            let time = self.router.poll_timeout().expect("a deadline");
            self.now = self.now.max(time);
            self.tick();
            self.router.handle_timeout(self.now);
            self.settle(None);
        }
        assert!(self.waiting.is_empty(), "{:?}", self.waiting);
        let answered = u64::try_from(self.answered.len()).unwrap();
        assert!(answered <= self.next_request);
        self.event(Event::Shutdown);
    }

    pub(super) fn replica(&self, which: usize) -> Option<ReplicaId> {
        let n = self.replicas.len().max(1);
        self.replicas.keys().nth(which % n).copied()
    }
}
