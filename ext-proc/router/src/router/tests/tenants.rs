//! The sums of the tenants over random schedules: exact at any time, and zero once all requests are gone.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::tenants::TenantSlot;
use crate::{PeerId, PeerReport, TenantId, TenantLimits, TierRules};

const PEER: PeerId = PeerId(0);

#[derive(Clone, Debug)]
enum Op {
    Arrive {
        tenant: u64,
        tokens: u32,
        is_batch: bool,
        may_leave: bool,
    },
    Finish(usize, End),
    Abort(usize),
    /// The peer returns a request.
    Return(usize),
    ProbeFails(u32),
    Sleep(u64),
    Configure {
        tracked_max: Option<usize>,
        weight: f64,
        has_tiers: bool,
        length_max: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let end = prop_oneof![
        Just(End::Answered),
        Just(End::Refused),
        Just(End::Errored),
        Just(End::Broke)
    ];
    let tokens = prop_oneof![1 => Just(0), 4 => 1_u32..5_000, 1 => Just(u32::MAX)];
    prop_oneof![
        8 => (0_u64..6, tokens, any::<bool>(), any::<bool>()).prop_map(
            |(tenant, tokens, is_batch, may_leave)| Op::Arrive { tenant, tokens, is_batch, may_leave }
        ),
        4 => (any::<usize>(), end).prop_map(|(which, end)| Op::Finish(which, end)),
        2 => any::<usize>().prop_map(Op::Abort),
        1 => any::<usize>().prop_map(Op::Return),
        1 => (0_u32..2).prop_map(Op::ProbeFails),
        2 => (1_u64..4_000).prop_map(Op::Sleep),
        1 => (prop::option::of(1_usize..4), 0.1_f64..4.0, any::<bool>(), 0_usize..20).prop_map(
            |(tracked_max, weight, has_tiers, length_max)| {
                Op::Configure { tracked_max, weight, has_tiers, length_max }
            }
        ),
    ]
}

struct Run {
    router: Router,
    now: Time,
    next: u64,
    /// Requests that were not rejected and have not ended.
    requests: BTreeMap<RequestId, Request>,
    forwarded: Vec<RequestId>,
}

impl Run {
    fn new() -> Self {
        let mut router = pool(2, Push::Outstanding { max: 2 }, SessionAffinity);
        let name = "peer".to_owned();
        router.handle(Time::ZERO, Event::PeerAdded { peer: PEER, name });
        Self {
            router,
            now: Time::ZERO,
            next: 0,
            requests: BTreeMap::new(),
            forwarded: Vec::new(),
        }
    }

    fn event(&mut self, event: Event) {
        self.router.handle(self.now, event);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(effect) = self.router.poll_effect() {
            match effect {
                Effect::Reject { id, .. } => drop(self.requests.remove(&id)),
                Effect::Forward(id, _) => self.forwarded.push(id),
                Effect::Dispatch(..) | Effect::Hung { .. } => {}
            }
        }
    }

    fn which(&self, which: usize) -> Option<RequestId> {
        let n = self.requests.len().max(1);
        self.requests.keys().nth(which % n).copied()
    }

    fn arrive(&mut self, request: Request) {
        self.requests.insert(request.id, request.clone());
        self.event(Event::Arrived(request));
    }

    fn finish(&mut self, id: RequestId, end: End) {
        if self.router.pool.queue.contains(id) {
            return;
        }
        self.requests.remove(&id);
        self.forwarded.retain(|forwarded| *forwarded != id);
        self.event(Event::Finished {
            id,
            served_by: ServedBy::Unreported,
            end,
            ttft_us: None,
            prompt_tokens: Some(10),
            cached_tokens: None,
            completion_tokens: Some(u32::try_from(id.0).unwrap()),
        });
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Arrive {
                tenant,
                tokens,
                is_batch,
                may_leave,
            } => {
                let mut request = request(self.next, self.next % 2);
                self.next += 1;
                (request.tenant, request.prompt_tokens) = (TenantId(tenant), tokens);
                if is_batch {
                    request.tier = Tier::NonInteractive;
                    request.deadline = Some(self.now.after(Duration::from_secs(602)));
                }
                if may_leave {
                    request.scope = Scope::Regions {
                        tried: Default::default(),
                    };
                }
                self.arrive(request);
            }
            Op::Finish(which, end) => {
                if let Some(id) = self.which(which) {
                    self.finish(id, end);
                }
            }
            Op::Abort(which) => {
                if let Some(id) = self.which(which) {
                    self.requests.remove(&id);
                    self.event(Event::Aborted(id));
                }
            }
            Op::Return(which) => {
                let id = self
                    .forwarded
                    .get(which % self.forwarded.len().max(1))
                    .copied();
                let request = id.and_then(|id| self.requests.get(&id)).cloned();
                if let Some(mut request) = request {
                    self.forwarded.retain(|forwarded| *forwarded != request.id);
                    request.scope = Scope::Regions {
                        tried: [PEER].into_iter().collect(),
                    };
                    self.finish(request.id, End::Refused);
                    self.arrive(request);
                }
            }
            Op::ProbeFails(replica) => self.event(Event::ProbeFailed(ReplicaId(replica))),
            Op::Sleep(ms) => self.sleep(ms),
            Op::Configure {
                tracked_max,
                weight,
                has_tiers,
                length_max,
            } => self.configure(tracked_max, weight, has_tiers, length_max),
        }
        self.check();
    }

    /// Lets time pass; both replicas and the peer tell that they are well.
    fn sleep(&mut self, ms: u64) {
        self.now = self.now.after(Duration::from_millis(ms));
        self.router.handle_timeout(self.now);
        for id in 0..2 {
            self.event(Event::Probed {
                replica: ReplicaId(id),
                load: Load::default(),
                sent: self.now,
            });
        }
        let report = PeerReport {
            available: 1,
            replicas: 1,
            free_capacity: 4,
            batch_credit: 1,
            ..PeerReport::default()
        };
        self.event(Event::PeerReported {
            peer: PEER,
            report,
            as_of: self.now,
            round_trip: Duration::from_millis(1),
        });
    }

    fn configure(
        &mut self,
        tracked_max: Option<usize>,
        weight: f64,
        has_tiers: bool,
        length_max: usize,
    ) {
        let policy = PolicyFactory::new("least loaded", |_| Box::new(LeastLoaded));
        let mut config = self.router.pool.config.clone().with_policy(policy);
        config.queue.length_max = length_max;
        config.tenants = tracked_max.map(|tracked_max| TenantLimits {
            in_flight_max: Some(12),
            share_max: Some(0.3),
            token_share_max: Some(0.3),
            weights: [(TenantId(1), weight), (TenantId(2), 2.0)].into(),
            tracked_max,
        });
        let tiers = TierRules::new(config.ttft_slo, config.queue.wait_max);
        config.tiers = has_tiers.then_some(tiers);
        self.router.reconfigure(self.now, config);
        self.collect();
    }

    /// Compares the table with sums over all requests.
    fn check(&self) {
        let pool = &self.router.pool;
        let waiting = pool
            .queue
            .all()
            .map(|queued| (queued.charge.slot, queued.charge.tokens));
        let in_flight = pool.in_flight.values();
        let in_flight = in_flight.map(|request| (request.charge.slot, request.charge.tokens));
        let all: Vec<(TenantSlot, u64)> = waiting.chain(in_flight).collect();
        let mut sums: BTreeMap<TenantSlot, (usize, u64)> = BTreeMap::new();
        for (tenant, tokens) in &all {
            let sum = sums.entry(*tenant).or_default();
            *sum = (sum.0 + 1, sum.1 + tokens);
        }
        pool.tenants.check(&sums);
    }
}

proptest! {
    #[test]
    fn the_sums_are_those_of_the_requests_and_return_to_zero(
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut run = Run::new();
        run.sleep(1);
        for op in &ops {
            run.apply(op);
        }
        while let Some(id) = run.requests.keys().next().copied() {
            run.requests.remove(&id);
            run.event(Event::Aborted(id));
        }
        run.router.pool.tenants.check(&BTreeMap::new());
    }
}
