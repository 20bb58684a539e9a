//! Two tenants of equal demand, one of which hides its prompts or its usage: bounded shares give it no more than the other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use crate::support::request;
use crate::support::script::Script;
use isotherm_fingerprint::Fingerprint;
use isotherm_policies::PolicyName;
use isotherm_router::{
    Effect, End, Event, Push, Request, RequestId, RouterConfig, ServedBy, TenantId, TenantLimits,
};

/// Clients of each tenant, each with one request at a time.
const CLIENTS: u64 = 10;
const RUN_MS: u64 = 400_000;
/// Time after which a client whose request was refused tries again.
const RETRY_MS: u64 = 500;
/// Time between an answer and the next request of a client.
const PAUSE_MS: u64 = 10;
const ANSWER_TOKENS: u32 = 300;
/// The most by which the tenant that hides something may be served better.
const ADVANTAGE_MAX: f64 = 1.3;

/// The parts of its requests that a tenant hides.
#[derive(Clone, Copy, Debug, Default)]
struct Hidden {
    /// The filter cannot read the body, and estimates the prompt by its bytes.
    is_unread: bool,
    /// Nothing is known of the prompt.
    has_no_length: bool,
    has_no_usage: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Send { client: u64 },
    Answer { id: u64 },
}

/// Clients of two tenants before two replicas with two slots each.
struct World {
    script: Script,
    steps: BinaryHeap<Reverse<(u64, Step)>>,
    now_ms: u64,
    hidden: [Hidden; 2],
    /// The client of each request under way.
    clients: BTreeMap<u64, u64>,
    next_id: u64,
    /// Requests and tokens of each tenant that were served.
    served: [(u64, u64); 2],
}

/// Blocks of the prompt of a request: from 4 to 35.
fn blocks(id: u64) -> Vec<u64> {
    let count = 4 + id.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 32;
    (0..count).map(|block| id * 100 + block).collect()
}

impl World {
    fn new(limits: TenantLimits, hidden: Hidden) -> Self {
        let config = RouterConfig {
            policy: PolicyName::LeastOutstanding.into(),
            push: Push::Outstanding { max: 2 },
            tenants: Some(limits),
            // The replicas are probed once.
            probe_stale_after: Duration::from_millis(10 * RUN_MS),
            ..RouterConfig::default()
        };
        let sends = (0..2 * CLIENTS).map(|client| Reverse((client * 7, Step::Send { client })));
        Self {
            script: Script::new(config, 2),
            steps: sends.collect(),
            now_ms: 0,
            hidden: [hidden, Hidden::default()],
            clients: BTreeMap::new(),
            next_id: 0,
            served: [(0, 0); 2],
        }
    }

    fn run(mut self) -> [(u64, u64); 2] {
        while let Some(Reverse((at_ms, step))) = self.steps.pop()
            && at_ms < RUN_MS
        {
            self.script.sleep(at_ms - self.now_ms);
            self.now_ms = at_ms;
            match step {
                Step::Send { client } => self.send(client),
                Step::Answer { id } => self.answer(id),
            }
            self.take_effects();
        }
        self.served
    }

    fn send(&mut self, client: u64) {
        let (id, tenant) = (self.next_id, client % 2);
        self.next_id += 1;
        self.clients.insert(id, client);
        let open = request(id, client, &blocks(id));
        let hidden = self.hidden[tenant as usize];
        let prompt_tokens = match hidden {
            Hidden {
                has_no_length: true,
                ..
            } => 0,
            // A file of JSON has more bytes than its text.
            Hidden {
                is_unread: true, ..
            } => open.prompt_tokens * 5 / 4,
            Hidden { .. } => open.prompt_tokens,
        };
        let fingerprint = match hidden.is_unread || hidden.has_no_length {
            true => Arc::new(Fingerprint::default()),
            false => open.fingerprint.clone(),
        };
        self.script.arrive(Request {
            tenant: TenantId(tenant + 1),
            prompt_tokens,
            fingerprint,
            ..open
        });
    }

    fn answer(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        let tenant = (client % 2) as usize;
        let prompt = request(id, 0, &blocks(id)).prompt_tokens;
        let told = |tokens| (!self.hidden[tenant].has_no_usage).then_some(tokens);
        let (prompt_tokens, completion_tokens) = (told(prompt), told(ANSWER_TOKENS));
        self.script.event(Event::Finished {
            id: RequestId(id),
            served_by: ServedBy::Unreported,
            end: End::Answered,
            ttft_us: Some(100_000),
            prompt_tokens,
            cached_tokens: None,
            completion_tokens,
        });
        let (requests, tokens) = &mut self.served[tenant];
        *requests += 1;
        *tokens += u64::from(prompt + ANSWER_TOKENS);
        let next = (self.now_ms + PAUSE_MS, Step::Send { client });
        self.steps.push(Reverse(next));
    }

    fn take_effects(&mut self) {
        for effect in self.script.effects() {
            match effect {
                Effect::Dispatch(id, _) => {
                    let service_ms = 500 + 30 * blocks(id.0).len() as u64;
                    let step = Step::Answer { id: id.0 };
                    self.steps.push(Reverse((self.now_ms + service_ms, step)));
                }
                Effect::Reject { id, .. } => {
                    let client = self.clients.remove(&id.0).unwrap();
                    let step = Step::Send { client };
                    self.steps.push(Reverse((self.now_ms + RETRY_MS, step)));
                }
                Effect::Forward(..) | Effect::Hung { .. } => {}
            }
        }
    }
}

fn limits(share_max: Option<f64>, token_share_max: Option<f64>) -> TenantLimits {
    TenantLimits {
        in_flight_max: None,
        share_max,
        token_share_max,
        weights: BTreeMap::new(),
        tracked_max: TenantLimits::TRACKED_MAX,
    }
}

/// Checks that a tenant which hides something gets about as much as the other, by each bound.
fn check(hidden: Hidden) {
    for (share_max, token_share_max) in [
        (Some(0.5), None),
        (None, Some(0.5)),
        (Some(0.5), Some(0.5)),
        (Some(0.3), Some(0.3)),
    ] {
        let [evil, good] = World::new(limits(share_max, token_share_max), hidden).run();
        let context = format!("{hidden:?}, {share_max:?}, {token_share_max:?}: {evil:?} {good:?}");
        assert!(evil.0 + good.0 > 800, "{context}");
        let of = |evil: u64, good: u64| evil as f64 / good.max(1) as f64;
        assert!(of(evil.0, good.0) <= ADVANTAGE_MAX, "requests: {context}");
        assert!(of(evil.1, good.1) <= ADVANTAGE_MAX, "tokens: {context}");
    }
}

#[test]
fn tenants_that_hide_nothing_are_served_alike() {
    check(Hidden::default());
}

#[test]
fn a_tenant_that_hides_its_prompts_gains_nothing() {
    check(Hidden {
        is_unread: true,
        ..Hidden::default()
    });
    check(Hidden {
        has_no_length: true,
        ..Hidden::default()
    });
}

#[test]
fn a_tenant_that_hides_its_usage_gains_nothing() {
    check(Hidden {
        has_no_usage: true,
        ..Hidden::default()
    });
}

#[test]
fn a_tenant_that_hides_prompts_and_usage_gains_nothing() {
    check(Hidden {
        has_no_length: true,
        has_no_usage: true,
        ..Hidden::default()
    });
}
