//! The simulator, with the input of the real system.

use std::time::Duration;

use isotherm_router::{Push as RouterPush, RouterConfig};
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::replay::Replay;
use isotherm_simulator::workload::{Session, Step, Workload};
use isotherm_simulator::{Arrangement, Setup};

use super::options::ValidationPlan;
use super::real::RealRun;
use super::report::{NetworkDelay, SimulatedMetrics, median};
use crate::metrics::RequestMetrics;
use crate::record::{Outcome, RequestRecord, Usage};
use crate::scenario::{Push, Scheme, probe_interval_ms};

/// Requests of each replica with the push mode `outstanding`, as [`Push::name`] has them.
const OUTSTANDING_MAX: u32 = 32;
/// Tokens of the engine's chat template before and after a message's text.
const TEMPLATE_TOKENS: (u32, u32) = (2, 5);
/// First id of the template's texts; traces have ids below 2^53.
const TEMPLATE_ID: u64 = 0x6d61_726b_0000_0000;

/// Measures the engine's time in the idle system, then simulates the workload and the recording of it.
pub(super) fn run(plan: &ValidationPlan, scheme: Scheme, real: &RealRun) -> SimulatedMetrics {
    let sessions = plan.workload.sessions.iter().cloned().map(with_template);
    let workload = workload(plan, sessions.collect());
    let mut setup = setup(plan, scheme);
    setup.network.client_to_region = Duration::ZERO;
    setup.network.service_to_replica = Duration::ZERO;
    let unloaded = workload.sessions.iter().take(plan.unloaded.len());
    let idle = Workload {
        sessions: unloaded.cloned().collect(),
        ..Workload::default()
    };
    let ideal = isotherm_simulator::run(&setup, &idle);
    let ideal = ideal.requests.iter().filter_map(|request| request.ttft());
    let delay = NetworkDelay {
        real_ms: median(real.unloaded_ms.iter().copied()),
        engine_ms: median(ideal.map(|ttft| ttft.as_secs_f64() * 1e3)),
    };
    // Half in each direction; where on the path the delay occurs does not matter.
    setup.network.client_to_region = Duration::from_secs_f64(delay.ms().max(0.0) / 2e3);
    let outcome = isotherm_simulator::run(&setup, &workload);
    // The recording is in this machine's time, and its prompts include the template.
    let recorded = Replay::default().workload("recorded", &real.recorded);
    let again = isotherm_simulator::run(&setup, &self::workload(plan, recorded.sessions));
    SimulatedMetrics {
        delay,
        workload: metrics(&outcome, plan.unloaded.len()),
        recording: metrics(&again, plan.unloaded.len()),
    }
}

fn setup(plan: &ValidationPlan, scheme: Scheme) -> Setup {
    let config = RouterConfig {
        policy: scheme.policy.into(),
        push: match scheme.push {
            Push::Pending => RouterPush::Pending,
            Push::Outstanding => RouterPush::Outstanding {
                max: OUTSTANDING_MAX,
            },
            Push::Blind => RouterPush::Blind,
        },
        ..RouterConfig::default()
    };
    let replicas = usize::from(plan.options.replicas);
    let engine = plan.options.engine.config();
    let mut setup = Setup::one_region(engine, replicas, Arrangement::Router(config));
    for region in &mut setup.regions {
        for replica in &mut region.replicas {
            replica.speed = plan.options.speedup;
        }
    }
    setup.seed = plan.options.seed;
    setup.probe_interval = Duration::from_millis(probe_interval_ms(plan.options.speedup));
    setup
}

/// The requests for the idle system, then these sessions.
fn workload(plan: &ValidationPlan, sessions: Vec<Session>) -> Workload {
    let begins =
        super::unloaded::PAUSE * u32::try_from(plan.unloaded.len() + 1).unwrap_or(u32::MAX);
    let later = sessions.into_iter().map(|session| Session {
        starts: session.starts + begins,
        ..session
    });
    let unloaded = plan.unloaded.iter().cloned();
    Workload {
        sessions: unloaded.map(with_template).chain(later).collect(),
        warmup_requests: plan.unloaded.len(),
        ..Workload::default()
    }
}

/// Adds the chat template to a session's prompts.
fn with_template(session: Session) -> Session {
    let template = |number, tokens| Piece::new(TEMPLATE_ID + number, tokens);
    let steps = session.steps.into_iter().map(|step| {
        let mut pieces = vec![template(0, TEMPLATE_TOKENS.0)];
        pieces.extend(step.prompt.pieces());
        pieces.push(template(1, TEMPLATE_TOKENS.1));
        Step {
            prompt: Prompt::new(pieces),
            ..step
        }
    });
    Session {
        steps: steps.collect(),
        ..session
    }
}

/// The metrics of the requests after the first `skipped` ones.
fn metrics(outcome: &isotherm_simulator::Outcome, skipped: usize) -> RequestMetrics {
    let record = |request: &isotherm_simulator::RequestRecord| {
        let times = request.ttft().zip(request.e2e());
        let outcome = times.map(|(ttft, _)| Outcome {
            ttft,
            queued: Some(request.queued),
            usage: Usage {
                prompt: request.prompt_tokens.into(),
                cached: request.cached_tokens.into(),
                output: request.output_tokens.into(),
            },
        });
        RequestRecord {
            region: 0,
            served: None,
            sent: Duration::ZERO,
            ended: times.map_or(Duration::ZERO, |(_, e2e)| e2e),
            prompt_bytes: 0,
            is_follow_up: false,
            outcome: outcome.ok_or_else(|| "no complete response".to_owned()),
        }
    };
    let requests = outcome.requests.iter().skip(skipped);
    let records: Vec<RequestRecord> = requests.map(record).collect();
    RequestMetrics::of(&records, &(Duration::ZERO..Duration::MAX), 1.0)
}
