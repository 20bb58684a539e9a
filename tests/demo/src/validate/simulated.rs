//! The simulator, with what the real system has.

use std::time::Duration;

use isotherm_router::{Push as RouterPush, RouterConfig};
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::replay::Replay;
use isotherm_simulator::workload::{Session, Step, Workload};
use isotherm_simulator::{Arrangement, Outcome, Setup};

use super::options::Plan;
use super::real::Seen;
use super::report::{Figures, Simulated, Way, median};
use crate::scenario::{Push, Scheme, probe_interval_ms};
use crate::stats::Times;

/// What the harness gives to `push: outstanding`: the service's default.
const OUTSTANDING_MAX: u32 = 32;
/// What the engine's chat template puts in front of a message's text and behind it, in tokens.
const MARKS: (u32, u32) = (2, 5);
/// Texts of the template; ids of traces are below 2^53.
const MARK_ID: u64 = 0x6d61_726b_0000_0000;

/// Runs the lone requests for the way, then everything as it was meant, and as it was recorded.
pub(super) fn run(plan: &Plan, scheme: Scheme, seen: &Seen) -> Simulated {
    let meant = plan.workload.sessions.iter().cloned().map(marked);
    let workload = workload(plan, meant.collect());
    let mut setup = setup(plan, scheme);
    setup.network.client_to_region = Duration::ZERO;
    setup.network.service_to_replica = Duration::ZERO;
    let alone = Workload {
        sessions: workload
            .sessions
            .iter()
            .take(plan.lone.len())
            .cloned()
            .collect(),
        ..Workload::default()
    };
    let ideal = isotherm_simulator::run(&setup, &alone);
    let ideal_ms: Vec<f64> = ideal
        .requests
        .iter()
        .filter_map(|request| Some(request.ttft()?.as_secs_f64() * 1e3))
        .collect();
    let way = Way {
        real_ms: median(&seen.lone_ms),
        engine_ms: median(&ideal_ms),
    };
    // There and back; the part inside the region is as good as any.
    setup.network.client_to_region = Duration::from_secs_f64(way.ms().max(0.0) / 2e3);
    let outcome = isotherm_simulator::run(&setup, &workload);
    // Recorded in the time of this machine, and with the marks that are in every prompt.
    let recorded = Replay::default().workload("recorded", &seen.recorded);
    let again = isotherm_simulator::run(&setup, &self::workload(plan, recorded.sessions));
    Simulated {
        way,
        meant: figures(&outcome, plan.lone.len()),
        recorded: figures(&again, plan.lone.len()),
    }
}

fn setup(plan: &Plan, scheme: Scheme) -> Setup {
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

/// The lone requests, then these.
fn workload(plan: &Plan, sessions: Vec<Session>) -> Workload {
    let begins = super::lone::PAUSE * u32::try_from(plan.lone.len() + 1).unwrap_or(u32::MAX);
    let later = sessions.into_iter().map(|session| Session {
        starts: session.starts + begins,
        ..session
    });
    Workload {
        sessions: plan.lone.iter().cloned().map(marked).chain(later).collect(),
        warmup_requests: plan.lone.len(),
        ..Workload::default()
    }
}

/// The same as a chat message.
fn marked(session: Session) -> Session {
    let mark = |number, tokens| Piece {
        id: MARK_ID + number,
        tokens,
    };
    let steps = session.steps.into_iter().map(|step| Step {
        prompt: Prompt::new(
            [mark(0, MARKS.0)]
                .into_iter()
                .chain(step.prompt.pieces().iter().copied())
                .chain([mark(1, MARKS.1)]),
        ),
        ..step
    });
    Session {
        steps: steps.collect(),
        ..session
    }
}

fn figures(outcome: &Outcome, lone: usize) -> Figures {
    let (mut ttft, mut e2e, mut queued) = (Times::default(), Times::default(), Times::default());
    let (mut prompt, mut cached, mut output) = (0, 0, 0);
    let (mut completed, mut failed) = (0, 0);
    let requests = outcome.requests.get(lone..).unwrap_or_default();
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
    Figures::new(
        completed,
        failed,
        (prompt, cached, output),
        [&ttft, &e2e, &queued],
    )
}
