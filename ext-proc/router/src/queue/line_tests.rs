//! The line against a naive sort by the definition of each order, with random budgets, restrictions and jumps of the clock.

use core::time::Duration;
use std::sync::Arc;

use isotherm_fingerprint::Fingerprint;
use proptest::prelude::*;

use super::*;
use crate::config::PoolConfig;
use crate::tenants::{TenantCharge, TenantSlot};
use crate::{QueueOrder, Request, Scope, Tier, TierRules};

const REPLICAS: u16 = 3;
const EXPIRED: Duration = Duration::from_millis(2_000);
const URGENT: Duration = Duration::from_millis(300);

#[derive(Clone, Debug)]
enum Op {
    Push {
        tier: Tier,
        budget_ms: Option<u64>,
        pinned: Option<Vec<u16>>,
    },
    Remove(usize),
    Unpin(u16),
    /// A request begins to wait for a replica, or for any.
    Delay(usize, Option<u16>),
    Sleep(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let tier = prop_oneof![Just(Tier::InteractiveFast), Just(Tier::InteractiveNormal)];
    let budget = prop::option::of(prop_oneof![0_u64..4_000, Just(u64::MAX)]);
    let pinned = prop::option::weighted(0.4, prop::collection::btree_set(0..REPLICAS, 1..3));
    prop_oneof![
        8 => (tier, budget, pinned).prop_map(|(tier, budget_ms, pinned)| {
            let pinned = pinned.map(|pinned| pinned.into_iter().collect());
            Op::Push { tier, budget_ms, pinned }
        }),
        2 => any::<usize>().prop_map(Op::Remove),
        1 => (0..REPLICAS).prop_map(Op::Unpin),
        4 => (any::<usize>(), prop::option::of(0..REPLICAS))
            .prop_map(|(which, replica)| Op::Delay(which, replica)),
        4 => prop_oneof![0_u64..500, Just(30_000)].prop_map(Op::Sleep),
    ]
}

/// A queue, and the same as a list.
struct Naive {
    config: PoolConfig,
    past_slo_last: bool,
    queue: Queue,
    now: Time,
    all: Vec<QueuedRequest>,
}

impl Naive {
    fn new(order: QueueOrder, has_tiers: bool, past_slo_last: bool) -> Self {
        let mut config = PoolConfig {
            ttft_slo: Duration::from_millis(1_500),
            ..PoolConfig::default()
        };
        config.queue.order = order;
        let rules = TierRules::new(config.ttft_slo, config.queue.wait_max);
        config.tiers = has_tiers.then_some(rules);
        let mut queue = Queue::default();
        let lines = LineRules::new(&config, past_slo_last);
        queue.set_rules(lines, has_tiers);
        Self {
            config,
            past_slo_last,
            queue,
            now: Time::ZERO,
            all: Vec::new(),
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Push {
                tier,
                budget_ms,
                pinned,
            } => {
                let seq = self.queue.next_seq();
                let mut request = request(seq.0, *tier);
                request.ttft_slo = budget_ms.map(Duration::from_millis);
                let queued = QueuedRequest {
                    seq,
                    request,
                    arrived: self.now,
                    entered: self.now,
                    pinned: pinned
                        .as_ref()
                        .map(|slots| slots.iter().map(|slot| ReplicaIndex(*slot)).collect()),
                    ..blank()
                };
                self.all.push(queued.clone());
                self.queue.push(queued);
            }
            Op::Remove(which) => {
                if !self.all.is_empty() {
                    let removed = self.all.remove(which % self.all.len());
                    assert!(self.queue.remove(removed.seq).is_some());
                }
            }
            Op::Unpin(slot) => {
                let replica = ReplicaIndex(*slot);
                for seq in self.queue.unpin(replica, usize::MAX) {
                    assert!(self.queue.remove(seq).is_some());
                }
                for queued in &mut self.all {
                    if let Some(pinned) = &mut queued.pinned {
                        *pinned = pinned.iter().copied().filter(|r| *r != replica).collect();
                    }
                }
                self.all
                    .retain(|queued| queued.pinned.as_ref().is_none_or(|p| !p.is_empty()));
            }
            Op::Delay(which, replica) => {
                let (count, replica) = (self.all.len().max(1), replica.map(ReplicaIndex));
                if let Some(queued) = self.all.get_mut(which % count) {
                    queued.preferred = replica;
                    self.queue.keep_waiting(queued.seq, replica, self.now, 1);
                }
            }
            Op::Sleep(ms) => {
                self.now = self.now.after(Duration::from_millis(*ms));
                self.queue.set_now(self.now);
            }
        }
    }

    /// Some of the requests, in order.
    fn line(&self, is_in_it: impl Fn(&QueuedRequest) -> bool) -> Vec<QueueSeq> {
        let mut line: Vec<&QueuedRequest> = self.all.iter().filter(|one| is_in_it(one)).collect();
        line.sort_by_key(|queued| self.rank(queued));
        line.iter().map(|queued| queued.seq).collect()
    }

    fn rank(&self, queued: &QueuedRequest) -> (u8, Time, QueueSeq) {
        let is_fast = queued.request.tier == Tier::InteractiveFast;
        let budget = self
            .config
            .tiers
            .as_ref()
            .map_or(self.config.ttft_slo, |tiers| {
                let tier = if is_fast { tiers.fast } else { tiers.normal };
                let own = queued.request.ttft_slo;
                let bounded = |own: Duration| {
                    own.clamp(Duration::from_millis(10), Duration::from_secs(86_400))
                };
                own.map_or(tier.ttft_slo, bounded)
            });
        let lane = u8::from(!is_fast || self.config.tiers.is_none());
        let (due, now, seq) = (queued.entered.after(budget), self.now, queued.seq);
        match self.config.queue.order {
            QueueOrder::Auto if self.past_slo_last => (u8::from(due <= now), due, seq),
            QueueOrder::Auto | QueueOrder::Fcfs => (0, Time::ZERO, seq),
            QueueOrder::Edf => (0, due, seq),
            QueueOrder::PriorityFirst => (lane, Time::ZERO, seq),
            QueueOrder::Dpa { .. } if due.after(EXPIRED) < now => (0, due, seq),
            QueueOrder::Dpa { .. } if due < now => (5, due, seq),
            QueueOrder::Dpa { .. } if due <= now.after(URGENT) => (1 + lane, due, seq),
            QueueOrder::Dpa { .. } => (3 + lane, due, seq),
        }
    }

    fn check(&self) {
        for replica in 0..REPLICAS {
            let line: Vec<QueueSeq> = self.queue.eligible(&[ReplicaIndex(replica)]).collect();
            assert_eq!(
                line,
                self.line(|queued| may_serve(queued, ReplicaIndex(replica)))
            );
        }
        for replica in (0..REPLICAS).map(ReplicaIndex) {
            let is_open = |queued: &QueuedRequest| match queued.preferred {
                Some(preferred) => preferred == replica,
                None => may_serve(queued, replica),
            };
            let open: Vec<QueueSeq> = self.queue.open_to(&[replica]).collect();
            assert_eq!(open, self.line(is_open));
            let own = self.line(|queued| queued.preferred == Some(replica));
            assert_eq!(self.queue.preferring(replica), own.len());
        }
        let delayed = self.line(|queued| queued.preferred.is_some());
        assert_eq!(self.queue.delayed(), delayed.len());
        let lates = self.all.iter().filter(|queued| {
            let queued = self.queue.get(queued.seq);
            queued.is_some_and(|queued| self.queue.is_late(queued))
        });
        let has_lates = self.past_slo_last && self.config.queue.order == QueueOrder::Auto;
        let expected = self
            .all
            .iter()
            .filter(|queued| has_lates && self.rank(queued).0 == 1);
        assert_eq!(lates.count(), expected.count());
    }
}

fn may_serve(queued: &QueuedRequest, replica: ReplicaIndex) -> bool {
    let pinned = queued.pinned.as_deref();
    pinned.is_none_or(|pinned| pinned.contains(&replica))
}

fn request(id: u64, tier: Tier) -> Request {
    Request {
        id: RequestId(id),
        fingerprint: Arc::new(Fingerprint::default()),
        session: None,
        tier,
        ttft_slo: None,
        deadline: None,
        prompt_tokens: 0,
        output_tokens_max: None,
        previous_response: None,
        subset: None,
        adapter: None,
        scope: Scope::default(),
        tenant: crate::TenantId::default(),
        tells_start: false,
        api: None,
        wants_stream: true,
    }
}

fn blank() -> QueuedRequest {
    QueuedRequest {
        seq: QueueSeq::FIRST,
        place: LinePlace::LAST,
        band: Band::Waiting,
        request: request(0, Tier::default()),
        estimated_tokens: 0,
        arrived: Time::ZERO,
        entered: Time::ZERO,
        charge: TenantCharge {
            slot: TenantSlot::UNTRACKED,
            tokens: 0,
        },
        entered_by: EnteredBy::Arrived,
        is_long_prompt: false,
        turns: QueueTurns::default(),
        pinned: None,
        preferred: None,
        delayed_since: None,
    }
}

fn orders() -> impl Strategy<Value = QueueOrder> {
    prop_oneof![
        Just(QueueOrder::Auto),
        Just(QueueOrder::Fcfs),
        Just(QueueOrder::Edf),
        Just(QueueOrder::PriorityFirst),
        Just(QueueOrder::Dpa {
            expired: EXPIRED,
            urgent: URGENT,
        }),
    ]
}

proptest! {
    #[test]
    fn the_line_is_the_naive_sort_at_every_time(
        order in orders(),
        has_tiers in any::<bool>(),
        past_slo_last in any::<bool>(),
        ops in prop::collection::vec(op(), 1..60),
        then in orders(),
    ) {
        let mut naive = Naive::new(order, has_tiers, past_slo_last);
        for op in &ops {
            naive.apply(op);
            naive.check();
        }
        // Another order begins to hold.
        naive.config.queue.order = then;
        let lines = LineRules::new(&naive.config, past_slo_last);
        naive.queue.set_rules(lines, has_tiers);
        naive.check();
    }
}
