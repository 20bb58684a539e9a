//! Fairness between tenants by measured work, over random schedules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{
    Effect, End, Event, FairnessRules, Placement, PolicyName, Push, ReplicaId, Request, RequestId,
    RouterConfig, ServedBy, Source, Target, TenantCharge, TenantId,
};
use proptest::prelude::*;

const REPLICAS: u32 = 2;
const TENANTS: u64 = 4;
const QUANTUM: Duration = Duration::from_millis(1_500);
/// Tokens of a block of a prompt.
const BLOCK_TOKENS: u32 = crate::support::BLOCK_BYTES / 4;
/// The longest prompt in blocks, and the longest answer in tokens.
const BLOCKS_MAX: u32 = 60;
const ANSWER_MAX: u32 = 100;
/// Work of the largest request in seconds: by estimate, since answers are presumed to be longer than they are here.
const LARGEST_S: f64 = 4.6;

fn weight(tenant: u64) -> f64 {
    if tenant == 1 { 2.0 } else { 1.0 }
}

fn config(policy: PolicyName, tenants_max: usize) -> RouterConfig {
    RouterConfig {
        policy,
        push: Push::Outstanding { max: 1 },
        fairness: Some(FairnessRules {
            quantum: QUANTUM,
            tenants_max,
            weights: [(TenantId(1), weight(1))].into(),
        }),
        probe_stale_after: Duration::from_secs(100_000),
        queue: isotherm_router::QueueLimits {
            wait_max: Duration::from_secs(100_000),
            ..RouterConfig::default().queue
        },
        ..RouterConfig::default()
    }
}

/// A request with a prompt of so many blocks that nothing holds.
fn of(tenant: u64, id: u64, blocks: u32) -> Request {
    let blocks: Vec<u64> = (0..u64::from(blocks))
        .map(|block| 1_000 * (id + 1) + block)
        .collect();
    Request {
        tenant: TenantId(tenant),
        tells_start: true,
        ..request(id, id, &blocks)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Arrive { tenant: u64, blocks: u32 },
    Finish { which: usize, end: End, answer: u32 },
    Abort(usize),
    Sleep(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let end = prop_oneof![
        8 => Just(End::Answered),
        1 => Just(End::Refused),
        1 => Just(End::Errored),
    ];
    let op = prop_oneof![
        6 => (1..=TENANTS, 1..=BLOCKS_MAX).prop_map(|(tenant, blocks)| Op::Arrive { tenant, blocks }),
        5 => (any::<usize>(), end, 1..=ANSWER_MAX)
            .prop_map(|(which, end, answer)| Op::Finish { which, end, answer }),
        1 => any::<usize>().prop_map(Op::Abort),
        1 => (1_u64..500).prop_map(Op::Sleep),
    ];
    prop::collection::vec(op, 1..300)
}

/// A router, and what its tenants got.
struct Run {
    script: Script,
    next: u64,
    /// Requests that wait and requests in flight, with their tenants and prompts.
    waiting: BTreeMap<u64, (u64, u32)>,
    in_flight: BTreeMap<u64, (u64, u32)>,
    /// Measured work of each tenant, in seconds.
    measured_s: BTreeMap<u64, f64>,
    /// The part of it that was priced by a learned speed, which may differ between the replicas.
    learned_s: BTreeMap<u64, f64>,
    /// Work of both tenants of a pair when the later one began to wait.
    since: BTreeMap<(u64, u64), (f64, f64)>,
    /// Work of the largest request by the slowest estimates so far, in seconds: a replica that is learned to be slow makes each
    /// request more work.
    largest_s: f64,
}

impl Run {
    fn new(policy: PolicyName) -> Self {
        Self {
            script: Script::new(config(policy, 10), REPLICAS),
            next: 0,
            waiting: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            measured_s: BTreeMap::new(),
            learned_s: BTreeMap::new(),
            since: BTreeMap::new(),
            largest_s: LARGEST_S,
        }
    }

    /// Work by the router's account, in seconds, divided by the weight.
    fn served_s(&self, tenant: u64) -> f64 {
        let id = Some(TenantId(tenant));
        let mut all = self.script.router.tenants();
        let status = all.find(|status| status.id == id);
        status.map_or(0.0, |status| status.work.as_secs_f64()) / weight(tenant)
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Arrive { tenant, blocks } => {
                let id = self.next;
                self.next += 1;
                self.waiting.insert(id, (*tenant, *blocks * BLOCK_TOKENS));
                self.script.arrive(of(*tenant, id, *blocks));
            }
            Op::Finish { which, end, answer } => {
                let n = self.in_flight.len().max(1);
                if let Some(id) = self.in_flight.keys().nth(which % n).copied() {
                    self.finish(id, *end, *answer);
                }
            }
            Op::Abort(which) => {
                let waiting = self.waiting.keys().nth(which % self.waiting.len().max(1));
                if let Some(id) = waiting.copied() {
                    self.waiting.remove(&id);
                    self.script.abort(id);
                }
            }
            Op::Sleep(ms) => self.script.sleep(*ms),
        }
        self.settle();
    }

    fn finish(&mut self, id: u64, end: End, answer: u32) {
        let (tenant, prompt) = self.in_flight.remove(&id).unwrap();
        if end == End::Answered {
            let estimates = self.script.router.estimates();
            let decode_s = estimates.output_token_s * f64::from(answer);
            let work_s = estimates.prompt_token_s * f64::from(prompt) + decode_s;
            *self.measured_s.entry(tenant).or_default() += work_s;
            if estimates.signals.decode_speed != Source::Presumed {
                *self.learned_s.entry(tenant).or_default() += decode_s;
            }
        }
        self.script.event(Event::Finished {
            id: RequestId(id),
            served_by: ServedBy::Unreported,
            end,
            ttft_us: None,
            prompt_tokens: Some(prompt),
            cached_tokens: Some(0),
            completion_tokens: Some(answer),
        });
    }

    fn settle(&mut self) {
        for effect in self.script.effects() {
            if let Effect::Dispatch(RequestId(id), _) = effect {
                let request = self.waiting.remove(&id).unwrap();
                self.in_flight.insert(id, request);
            }
        }
        let estimates = self.script.router.estimates();
        let largest_s = estimates.prompt_token_s * f64::from(BLOCKS_MAX * BLOCK_TOKENS)
            + estimates.output_token_s * f64::from(ANSWER_MAX);
        self.largest_s = self.largest_s.max(largest_s);
        let backlogged: BTreeSet<u64> = self.waiting.values().map(|(tenant, _)| *tenant).collect();
        let status = self.script.router.fairness_status();
        assert_eq!(status.backlogged, backlogged.len());
        let both = |(a, b): &(u64, u64)| backlogged.contains(a) && backlogged.contains(b);
        self.since.retain(|pair, _| both(pair));
        for a in &backlogged {
            for b in backlogged.range(a + 1..) {
                let now = (self.served_s(*a), self.served_s(*b));
                let then = *self.since.entry((*a, *b)).or_insert(now);
                let ahead_s = (now.0 - then.0) - (now.1 - then.1);
                let in_flight_s = f64::from(REPLICAS) * self.largest_s;
                let bound_s = 2.0 * (QUANTUM.as_secs_f64() + self.largest_s) + in_flight_s;
                assert!(ahead_s.abs() <= bound_s, "{a} and {b}: {ahead_s}");
            }
        }
    }

    /// Lets all requests end, and compares the charges with the measured work.
    fn finish_all(&mut self) {
        while let Some(id) = self.in_flight.keys().next().copied() {
            self.finish(id, End::Answered, 10);
            self.settle();
        }
        assert!(self.waiting.is_empty());
        for tenant in 1..=TENANTS {
            let measured_s = self.measured_s.get(&tenant).copied().unwrap_or_default();
            let charged_s = self.served_s(tenant) * weight(tenant);
            let learned_s = self.learned_s.get(&tenant).copied().unwrap_or_default();
            let error_s = (charged_s - measured_s).abs();
            let bound_s = 1e-6 + 0.5 * learned_s;
            assert!(error_s < bound_s, "{tenant}: {charged_s} for {measured_s}");
        }
    }
}

proptest! {
    #[test]
    fn tenants_that_wait_get_work_by_their_weights_and_pay_for_what_was_measured(
        policy in prop::sample::select(vec![
            PolicyName::Isotherm,
            PolicyName::LeastOutstanding,
            PolicyName::PrefixTree,
        ]),
        ops in ops(),
    ) {
        let mut run = Run::new(policy);
        for op in &ops {
            run.apply(op);
        }
        run.finish_all();
    }
}

fn work_s(script: &Script, tenant: u64) -> f64 {
    let id = Some(TenantId(tenant));
    let mut all = script.router.tenants();
    all.find(|status| status.id == id)
        .map_or(0.0, |status| status.work.as_secs_f64())
}

fn sent(script: &mut Script) -> Vec<u64> {
    let effects = script.effects().into_iter();
    let sent = effects.filter_map(|effect| match effect {
        Effect::Dispatch(RequestId(id), _) => Some(id),
        Effect::Forward(..) | Effect::Reject { .. } | Effect::Hung { .. } => None,
    });
    sent.collect()
}

#[test]
fn an_abort_pays_for_the_part_that_may_have_been_done() {
    let mut script = Script::new(config(PolicyName::LeastOutstanding, 10), 1);
    let prompt_s = 3_840.0 * script.router.estimates().prompt_token_s;
    script.arrive(of(1, 0, 60));
    script.abort(0);
    assert!(work_s(&script, 1) < 1e-9, "nothing was computed");
    script.arrive(of(1, 1, 60));
    script.sleep(100);
    script.abort(1);
    assert!((work_s(&script, 1) - 0.1).abs() < 1e-6);
    script.arrive(of(1, 2, 60));
    script.event(Event::Began(RequestId(2)));
    script.sleep(2_000);
    script.abort(2);
    let paid_s = work_s(&script, 1);
    assert!((paid_s - (0.1 + prompt_s + 2.0)).abs() < 1e-6, "{paid_s}");
}

#[test]
fn idle_time_saves_nothing_up() {
    let mut script = Script::new(config(PolicyName::LeastOutstanding, 10), 1);
    // One tenant has the pool alone for a long time.
    for id in 0..200 {
        script.arrive(of(2, id, 60));
        script.event(Event::Began(RequestId(id)));
        script.finish(id);
        sent(&mut script);
    }
    script.arrive(of(2, 200, 60));
    for id in 201..241 {
        script.arrive(of(2 + id % 2, id, 60));
    }
    let mut last = sent(&mut script)[0];
    let mut of_newcomer = 0;
    for _ in 0..20 {
        script.finish(last);
        last = sent(&mut script)[0];
        of_newcomer += last % 2;
    }
    assert!((8..=12).contains(&of_newcomer), "{of_newcomer} of 20");
}

#[test]
fn a_tenant_gets_no_lower_charge_by_leaving() {
    // Two entries: a new tenant takes the entry of an idle one.
    let mut script = Script::new(config(PolicyName::LeastOutstanding, 2), 1);
    script.arrive(of(2, 0, 2));
    for id in 1..30 {
        script.arrive(of(2, id, 60));
        script.arrive(of(3, 100 + id, 1));
    }
    let mut last = sent(&mut script)[0];
    for _ in 0..20 {
        script.finish(last);
        last = sent(&mut script)[0];
    }
    // The tenant that is ahead takes its requests back, and others come in its place.
    for id in (1..30).filter(|id| *id != last) {
        script.abort(id);
    }
    let before = script.router.fairness_status().gap;
    assert_eq!(before, Duration::ZERO, "one tenant waits");
    for (id, tenant) in [(200, 4), (201, 5), (202, 2)] {
        script.arrive(of(tenant, id, 1));
    }
    let mut order = Vec::new();
    for _ in 0..3 {
        script.finish(last);
        last = sent(&mut script)[0];
        order.push(last);
    }
    assert!(!order.contains(&202), "{order:?}");
}

#[test]
fn a_corrected_estimate_keeps_no_newcomer_waiting() {
    let mut script = Script::new(config(PolicyName::LeastOutstanding, 10), 1);
    for id in 0..8 {
        script.arrive(of(2, id, 60));
    }
    // The newcomer joins while another tenant is charged an estimate, which the end of that request takes back.
    script.arrive(of(3, 100, 60));
    script.finish_as(0, End::Refused, ServedBy::Unreported, None);
    script.finish(1);
    script.finish(100);
    assert_eq!(sent(&mut script), [0, 1, 100, 2]);
}

#[test]
fn siblings_tell_each_other_what_they_charged() {
    let shared = |policy| {
        let mut config = config(policy, 10);
        config.region.share = true;
        Script::new(config, 1)
    };
    let mut a = shared(PolicyName::LeastOutstanding);
    let mut b = shared(PolicyName::LeastOutstanding);
    let mut told_us = 0;
    for id in 0..20 {
        a.arrive(of(2, id, 60));
        sent(&mut a);
        a.event(Event::Finished {
            id: RequestId(id),
            served_by: ServedBy::Unreported,
            end: End::Answered,
            ttft_us: None,
            prompt_tokens: Some(3_840),
            cached_tokens: Some(0),
            completion_tokens: Some(50),
        });
        while let Some(placement) = a.router.poll_placement() {
            told_us += placement.charge.unwrap().work_us;
            b.event(Event::Shared(placement));
        }
    }
    let work_us = work_s(&a, 2) * 1e6;
    let last_us = 3_840.0 * 100.0 + 200.0 * 20_500.0;
    #[expect(clippy::cast_precision_loss, reason = "microseconds")]
    let missing_us = work_us - told_us as f64;
    assert!(
        missing_us.abs() < last_us,
        "only the last correction is missing: {missing_us}"
    );
    // The tenant pays at the sibling, too: another tenant goes first.
    b.arrive(of(3, 100, 1));
    for id in 101..120 {
        b.arrive(of(2 + id % 2, id, 60));
    }
    let mut last = sent(&mut b)[0];
    assert!(
        work_s(&b, 2) < 1e-9,
        "a sibling's work is not this service's"
    );
    for _ in 0..8 {
        b.finish(last);
        last = sent(&mut b)[0];
        assert_eq!(last % 2, 1, "{last}");
    }
    // A hostile charge is bounded.
    b.event(Event::Shared(Placement {
        target: Target::Replica(ReplicaId(0)),
        parent: None,
        blocks: [].into(),
        uncached_tokens: None,
        charge: Some(TenantCharge {
            tenant: TenantId(3),
            work_us: i64::MIN,
        }),
    }));
}
