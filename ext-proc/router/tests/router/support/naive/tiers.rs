//! Tiers, batch work and the order of service, naively: lists, sorted anew each time.

use std::time::Duration;

use isotherm_policies::PolicyName;
use isotherm_router::{
    BatchTier, InteractiveTier, QueueOrder, ReplicaId, Request, RouterConfig, TenantId,
    TenantLimits, Tier, TierRules, Time, WorkClass,
};

use super::super::serves_in_order;
use super::Naive;
use super::peers::Since;

/// Time after which batch work without a deadline is due.
const DEADLINE: Duration = Duration::from_secs(24 * 3_600);

/// Tier and tenant of a request, budget and deadline.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTags {
    pub tier: Tier,
    pub budget_ms: Option<u64>,
    /// Time left until the deadline.
    pub deadline_ms: Option<u64>,
    pub tenant: u64,
}

/// Rules of tiers, of the order of service, and of tenants.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolRules {
    pub has_tiers: bool,
    pub order: u8,
    pub share_percent: Option<u8>,
    pub batch_max: usize,
}

/// State of the gate for batch work.
#[derive(Debug, Default)]
pub struct GateState {
    last_signal: Time,
    /// Requests released since.
    released: u32,
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl PoolRules {
    /// The configuration with these rules.
    pub fn apply(&self, config: &mut RouterConfig) {
        let interactive = |ttft_slo, weight, wait_max| InteractiveTier {
            ttft_slo,
            weight,
            wait_max,
        };
        config.tiers = self.has_tiers.then_some(TierRules {
            fast: interactive(ms(500), 4.0, ms(3_000)),
            normal: interactive(ms(5_000), 1.0, config.queue.wait_max),
            batch: BatchTier {
                signal_interval: ms(700),
                promote_left: ms(2_000),
                length_max: self.batch_max,
                wait_max: ms(9_000),
                ..BatchTier::default()
            },
        });
        config.queue.order = match self.order {
            0 => QueueOrder::Auto,
            1 => QueueOrder::Fcfs,
            2 => QueueOrder::Edf,
            3 => QueueOrder::PriorityFirst,
            _ => QueueOrder::Dpa {
                expired: ms(2_000),
                urgent: ms(300),
            },
        };
        let share = self.share_percent.map(|percent| f64::from(percent) / 100.0);
        config.tenants = share.map(|share| TenantLimits {
            in_flight_max: None,
            share_max: Some(share),
            token_share_max: Some(share),
            weights: [(TenantId(1), 3.0)].into(),
            tracked_max: 3,
        });
    }
}

impl RequestTags {
    pub fn of(request: &Request, now: Time) -> Self {
        let whole_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap();
        Self {
            tier: request.tier,
            budget_ms: request.ttft_slo.map(whole_ms),
            deadline_ms: request
                .deadline
                .map(|deadline| whole_ms(deadline.since(now))),
            tenant: request.tenant.0,
        }
    }

    pub fn apply(&self, request: &mut Request, now: Time) {
        request.tier = self.tier;
        request.ttft_slo = self.budget_ms.map(ms);
        request.deadline = self.deadline_ms.map(|left| now.after(ms(left)));
        request.tenant = TenantId(self.tenant);
    }
}

pub fn deadline(request: &Request, since: &Since) -> Time {
    request.deadline.unwrap_or(since.arrived.after(DEADLINE))
}

impl Naive {
    /// Whether the gate holds a request that arrives now.
    pub(super) fn is_held(&self, request: &Request) -> bool {
        let Some(tiers) = &self.config.tiers else {
            return false;
        };
        let is_near = |deadline: Time| deadline.before(tiers.batch.promote_left) <= self.now;
        request.tier == Tier::NonInteractive && !request.deadline.is_some_and(is_near)
    }

    /// A place behind all others in the order of arrival.
    pub(super) fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// A request has ended, or time has passed.
    pub(super) fn signal(&mut self) {
        self.gate = GateState {
            last_signal: self.now,
            released: 0,
        };
    }

    /// Lets time pass: signals, and promotions in the order of deadlines.
    pub(super) fn tick(&mut self) {
        let Some(tiers) = self.config.tiers else {
            self.promote(|_, _| true);
            return;
        };
        if self.gate.last_signal.after(tiers.batch.signal_interval) <= self.now {
            self.signal();
        }
        let (now, batch) = (self.now, tiers.batch);
        self.promote(|deadline, entered| {
            // A request that was held for too long is rejected first.
            deadline.before(batch.promote_left) <= now && entered.after(batch.wait_max) > now
        });
    }

    fn promote(&mut self, is_due: impl Fn(Time, Time) -> bool) {
        let held = self.waiting.iter().filter(|(_, since)| since.held);
        let due = held.filter(|(request, since)| is_due(deadline(request, since), since.entered));
        let due = due.map(|(request, since)| (deadline(request, since), since.place, request.id));
        let mut due: Vec<_> = due.collect();
        due.sort_unstable();
        for (.., id) in due {
            let at = self
                .waiting
                .iter()
                .position(|(request, _)| request.id == id);
            let (request, since) = self.waiting.remove(at.unwrap());
            let since = Since {
                place: self.next_place(),
                entered: self.now,
                held: false,
                ..since
            };
            self.waiting.push((request, since));
        }
    }

    /// The longest wait of a request.
    pub(super) fn wait_max(&self, request: &Request, since: &Since) -> Duration {
        let Some(tiers) = &self.config.tiers else {
            return self.config.queue.wait_max;
        };
        match request.tier {
            _ if since.held => tiers.batch.wait_max,
            Tier::InteractiveFast => tiers.fast.wait_max,
            Tier::InteractiveNormal | Tier::NonInteractive => tiers.normal.wait_max,
        }
    }

    /// A number by which requests of the first band compare in the order of service.
    pub(super) fn rank(&self, request: &Request, since: &Since) -> (u8, u64, u64) {
        let is_fast = request.tier == Tier::InteractiveFast;
        let (budget, lane) = match &self.config.tiers {
            None => (self.config.ttft_slo, 1),
            Some(tiers) => {
                let tier = if is_fast { tiers.fast } else { tiers.normal };
                let own = request.ttft_slo;
                let own = own.map(|own| own.max(ms(10)));
                (own.unwrap_or(tier.ttft_slo), u8::from(!is_fast))
            }
        };
        let (due, place) = (since.entered.after(budget), since.place);
        let key = due.as_nanos();
        let late_by = self.now.since(due);
        let has_left = |left: Duration| self.now.after(left) >= due;
        match self.config.queue.order {
            QueueOrder::Auto if self.policy() == PolicyName::Isotherm => {
                (u8::from(due <= self.now), key, place)
            }
            QueueOrder::Auto | QueueOrder::Fcfs => (0, 0, place),
            QueueOrder::Edf => (0, key, place),
            QueueOrder::PriorityFirst => (lane, 0, place),
            QueueOrder::Dpa { expired, .. } if late_by > expired => (0, key, place),
            QueueOrder::Dpa { .. } if due < self.now => (5, key, place),
            QueueOrder::Dpa { urgent, .. } if has_left(urgent) => (1 + lane, key, place),
            QueueOrder::Dpa { .. } => (3 + lane, key, place),
        }
    }

    /// Whether the router serves exactly in the order of [`Self::rank`].
    pub(super) fn serves_by_rank(&self) -> bool {
        serves_in_order(self.policy())
    }

    /// Share of the memory in use, as the last probes told it; `None` where some replica does not tell.
    fn utilisation(&self) -> Option<f64> {
        let staying = self.replicas.values().filter(|replica| !replica.draining);
        let (mut sum, mut count) = (0.0, 0.0);
        for replica in staying.filter(|replica| replica.probed().is_some()) {
            if replica.without_metrics.is_some() {
                return None;
            }
            sum += f64::from(replica.usage?);
            count += 1.0;
        }
        (count > 0.0).then_some(sum / count)
    }

    /// A request of this class is sent to a replica: batch work only while the pool has capacity to spare.
    pub(super) fn check_release(
        &mut self,
        request: &Request,
        since: &Since,
        replica: ReplicaId,
        class: WorkClass,
    ) {
        let is_batch = class == WorkClass::Batch;
        assert_eq!(is_batch, since.held, "{request:?}");
        if !is_batch {
            return;
        }
        self.gate.released += 1;
        let [high, low] = self.config.tiers.unwrap().batch.release_below;
        let most = match self.utilisation() {
            Some(used) if used >= high => 0,
            Some(used) if used >= low => 1,
            _ => 2,
        };
        assert!(self.gate.released <= most, "{:?} {most}", self.gate);
        for (other, since) in &self.waiting {
            let takes = !since.held && self.is_eligible(other, replica);
            assert!(!takes, "{other:?} waits for {replica:?}");
        }
    }

    /// A held request is rejected because the queue is full.
    pub(super) fn check_queue_full(&self, request: &Request, since: &Since) {
        let total = self.waiting.len() >= self.config.queue.length_max;
        let held = || self.waiting.iter().filter(|(_, since)| since.held);
        if !since.held {
            assert!(total, "{request:?}");
            assert_eq!(
                held().count(),
                0,
                "a held request gives way before {request:?}"
            );
            return;
        }
        let batch_max = self.config.tiers.map_or(0, |tiers| tiers.batch.length_max);
        assert!(total || held().count() >= batch_max, "{request:?}");
        let newest = self.waiting.iter().map(|(request, _)| request.id).max();
        if newest > Some(request.id) {
            // It gave way to another one: the last by deadline.
            let own = (deadline(request, since), since.place);
            let last = held().map(|(other, since)| (deadline(other, since), since.place));
            assert!(last.max().is_none_or(|last| last < own), "{request:?}");
        }
    }
}
