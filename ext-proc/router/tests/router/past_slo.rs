//! Long prompts past the SLO under saturation: they come last, and get a share of the replicas' time.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{Effect, Event, Push, Request, RequestId, RouterConfig};

const REPLICAS: u32 = 4;
/// Milliseconds in which a replica serves a request.
const SERVICE_MS: u64 = 200;
/// Requests of conversations that arrive in that time: one more than the replicas serve.
const ARRIVALS: u64 = 5;
const STEPS: u64 = 600;
/// Ids of long prompts.
const LONG: u64 = 1_000_000;

/// A request of a conversation, with a prompt that its replica holds.
fn warm(id: u64) -> Request {
    let session = id % 40;
    request(id, session, &[session, 1, 2, 3])
}

/// A prompt of 60,000 tokens that no replica holds: six seconds, as presumed.
fn long(id: u64) -> Request {
    Request {
        prompt_tokens: 60_000,
        ..request(id, id, &[id, id + 1])
    }
}

#[derive(Debug, Default)]
struct Outcome {
    long_served: BTreeSet<u64>,
    long_refused: BTreeSet<u64>,
    /// Milliseconds that each served request of a conversation waited.
    waits_ms: Vec<u64>,
}

impl Outcome {
    fn take(&mut self, script: &mut Script, since: &BTreeMap<u64, u64>, now_ms: u64) -> Vec<u64> {
        let mut sent = Vec::new();
        for effect in script.effects() {
            match effect {
                Effect::Dispatch(RequestId(id), _) => {
                    sent.push(id);
                    if id >= LONG {
                        self.long_served.insert(id);
                    } else {
                        self.waits_ms.push(now_ms - since[&id]);
                    }
                }
                Effect::Reject { id, .. } if id.0 >= LONG => {
                    self.long_refused.insert(id.0);
                }
                Effect::Reject { .. } | Effect::Forward(..) | Effect::Hung { .. } => {}
            }
        }
        sent
    }
}

/// Two minutes in which conversations saturate the pool, and a long prompt arrives every `every` steps.
fn saturated(every: u64) -> Outcome {
    let config = RouterConfig {
        policy: PolicyName::Isotherm.into(),
        push: Push::Outstanding { max: 1 },
        ..RouterConfig::default()
    };
    let mut script = Script::new(config, REPLICAS);
    let (mut outcome, mut since) = (Outcome::default(), BTreeMap::new());
    let mut running: Vec<u64> = Vec::new();
    let mut next = 0;
    for step in 0..STEPS {
        let now_ms = step * SERVICE_MS;
        if step.is_multiple_of(every) {
            script.arrive(long(LONG + 10 * step));
        }
        for _ in 0..ARRIVALS {
            since.insert(next, now_ms);
            script.event(Event::Arrived(warm(next)));
            next += 1;
        }
        for id in std::mem::take(&mut running) {
            script.finish(id);
        }
        running = outcome.take(&mut script, &since, now_ms);
        script.probe_all(0..REPLICAS);
        script.sleep(SERVICE_MS);
        running.extend(outcome.take(&mut script, &since, now_ms));
    }
    outcome
}

fn p90(mut waits_ms: Vec<u64>) -> u64 {
    waits_ms.sort_unstable();
    waits_ms[waits_ms.len() * 9 / 10]
}

#[test]
fn long_cold_prompts_are_served_under_saturation_and_the_others_stay_in_time() {
    let outcome = saturated(200);
    let (served, refused) = (outcome.long_served.len(), outcome.long_refused.len());
    assert_eq!((served, refused), (3, 0));
    let p90_ms = p90(outcome.waits_ms);
    assert!(p90_ms <= 5_000, "{p90_ms}");
}

#[test]
fn long_cold_prompts_get_no_more_than_their_share_under_saturation() {
    let few = saturated(200);
    let many = saturated(2);
    assert!(many.long_refused.len() > 100, "{}", many.long_refused.len());
    assert!(many.long_served.len() > few.long_served.len());
    let p90_ms = p90(many.waits_ms);
    assert!(p90_ms <= 5_000, "{p90_ms}");
}
