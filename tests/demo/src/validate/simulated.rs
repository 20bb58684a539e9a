//! The simulator, with the input of the real system.

use std::time::Duration;

use isotherm_router::{Push as RouterPush, RouterConfig};
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::replay::Replay;
use isotherm_simulator::workload::{Session, Step, Workload};
use isotherm_simulator::{Arrangement, Outcome, Setup};

use super::options::ValidationPlan;
use super::real::RealRun;
use super::report::{NetworkDelay, RunMetrics, SimulatedMetrics, median};
use crate::scenario::{Push, Scheme, probe_interval_ms};
use crate::stats::Times;

/// The service's default for `push: outstanding`.
const OUTSTANDING_MAX: u32 = 32;
/// Tokens of the engine's chat template before and after a message's text.
const TEMPLATE_TOKENS: (u32, u32) = (2, 5);
/// Ids of the template's texts: traces have ids below 2^53.
const TEMPLATE_ID: u64 = 0x6d61_726b_0000_0000;

/// Measures the engine's time in the idle system, then simulates the workload and the recording of it.
pub(super) fn run(plan: &ValidationPlan, scheme: Scheme, real: &RealRun) -> SimulatedMetrics {
    let sessions = plan.workload.sessions.iter().cloned().map(with_template);
    let workload = workload(plan, sessions.collect());
    let mut setup = setup(plan, scheme);
    setup.network.client_to_region = Duration::ZERO;
    setup.network.service_to_replica = Duration::ZERO;
    let idle = Workload {
        sessions: workload
            .sessions
            .iter()
            .take(plan.unloaded.len())
            .cloned()
            .collect(),
        ..Workload::default()
    };
    let ideal = isotherm_simulator::run(&setup, &idle);
    let ideal_ms: Vec<f64> = ideal
        .requests
        .iter()
        .filter_map(|request| Some(request.ttft()?.as_secs_f64() * 1e3))
        .collect();
    let delay = NetworkDelay {
        real_ms: median(&real.unloaded_ms),
        engine_ms: median(&ideal_ms),
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
        policy: scheme.policy,
        push: match scheme.push {
            Push::Pending => RouterPush::Pending,
            Push::Outstanding => RouterPush::Outstanding {
                max: OUTSTANDING_MAX,
            },
            Push::Blind => RouterPush::Blind,
        },
        ..RouterConfig::default()
    };
    let replicas = usize::from(plan.replicas);
    let mut setup = Setup::one_region(plan.engine.config(), replicas, Arrangement::Router(config));
    for replica in setup
        .regions
        .iter_mut()
        .flat_map(|region| &mut region.replicas)
    {
        replica.speed = plan.speed;
    }
    setup.seed = plan.seed;
    setup.probe_interval = Duration::from_millis(probe_interval_ms(plan.speed));
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
    Workload {
        sessions: plan
            .unloaded
            .iter()
            .cloned()
            .map(with_template)
            .chain(later)
            .collect(),
        warmup_requests: plan.unloaded.len(),
        ..Workload::default()
    }
}

/// Adds the chat template to a session's prompts.
fn with_template(session: Session) -> Session {
    let template = |number, tokens| Piece {
        id: TEMPLATE_ID + number,
        tokens,
    };
    let steps = session.steps.into_iter().map(|step| Step {
        prompt: Prompt::new(
            [template(0, TEMPLATE_TOKENS.0)]
                .into_iter()
                .chain(step.prompt.pieces().iter().copied())
                .chain([template(1, TEMPLATE_TOKENS.1)]),
        ),
        ..step
    });
    Session {
        steps: steps.collect(),
        ..session
    }
}

fn metrics(outcome: &Outcome, skipped: usize) -> RunMetrics {
    let (mut ttft, mut e2e, mut queued) = (Times::default(), Times::default(), Times::default());
    let (mut prompt, mut cached, mut output) = (0, 0, 0);
    let (mut completed, mut failed) = (0, 0);
    let requests = outcome.requests.get(skipped..).unwrap_or_default();
    for request in requests {
        let (Some(first), Some(end)) = (request.ttft(), request.e2e()) else {
            failed += 1;
            continue;
        };
        completed += 1;
        ttft.record(first);
        e2e.record(end);
        queued.record(request.queued);
        prompt += u64::from(request.prompt_tokens);
        cached += u64::from(request.cached_tokens);
        output += u64::from(request.output_tokens);
    }
    RunMetrics::new(
        completed,
        failed,
        (prompt, cached, output),
        [&ttft, &e2e, &queued],
    )
}
