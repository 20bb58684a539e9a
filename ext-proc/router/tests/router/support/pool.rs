//! A router in front of engines, in virtual milliseconds: the driver's part, with its delays.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_router::{
    Effect, End, Event, Load, Reason, ReplicaId, Request, RequestId, Router, RouterConfig,
    ServedBy, Time,
};

use super::engine::{Engine, Shape};

/// Between two probes of one replica.
pub const PROBE_INTERVAL_MS: u64 = 100;
/// From the service to an engine, and back.
const WAY_MS: u64 = 1;

pub fn ms(ms: u64) -> Time {
    Time::ZERO.after(Duration::from_millis(ms))
}

/// A request and what it will need.
#[derive(Clone, Debug)]
pub struct Task {
    pub at_ms: u64,
    pub request: Request,
    pub output: u32,
}

/// Observations of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// When the last request finished.
    pub ended_ms: u64,
    pub finished: usize,
    pub rejected: usize,
    /// The longest that some engine's queue held more than one while another engine idled.
    pub held_up_ms: u64,
    /// The most that ran on each engine at a time, over time.
    pub running: Vec<(u64, usize)>,
    pub reasons: BTreeMap<Reason, usize>,
    /// Dispatches in order.
    pub order: Vec<RequestId>,
}

/// Runs tasks to their end.
pub fn run(config: RouterConfig, shapes: &[Shape], mut tasks: Vec<Task>) -> Report {
    let mut router = Router::new(config, 7);
    let mut engines: Vec<Engine> = shapes.iter().map(|shape| Engine::new(*shape)).collect();
    for i in 0..engines.len() {
        let replica = ReplicaId(u32::try_from(i).unwrap());
        let name = format!("10.0.0.{i}:8000");
        router.handle(
            Time::ZERO,
            Event::Added {
                replica,
                name,
                role: isotherm_router::Role::Both,
            },
        );
    }
    tasks.sort_by_key(|task| std::cmp::Reverse(task.at_ms));
    let needs: BTreeMap<RequestId, (u32, u32)> = tasks
        .iter()
        .map(|task| (task.request.id, (task.request.prompt_tokens, task.output)))
        .collect();
    let total = tasks.len();
    let mut report = Report::default();
    let mut on_the_way: Vec<(u64, usize, RequestId)> = Vec::new();
    let mut answers: Vec<(u64, usize, Load, u64)> = Vec::new();
    let mut held_since: Vec<Option<u64>> = vec![None; engines.len()];
    for now in 0.. {
        for (i, engine) in engines.iter_mut().enumerate() {
            for (_, _, id) in on_the_way.extract_if(.., |(at, to, _)| *at <= now && *to == i) {
                let (prompt, output) = needs[&id];
                engine.submit(id, prompt, output);
            }
            for id in engine.advance(now) {
                report.finished += 1;
                report.ended_ms = now;
                router.handle(ms(now), finished(id));
            }
            // Probes are spread over the interval.
            if (now + 17 * i as u64).is_multiple_of(PROBE_INTERVAL_MS) {
                answers.push((now + WAY_MS, i, engine.load(), now.saturating_sub(WAY_MS)));
            }
        }
        for (_, i, load, sent) in answers.extract_if(.., |(at, ..)| *at <= now) {
            let replica = ReplicaId(u32::try_from(i).unwrap());
            let sent = ms(sent);
            let event = Event::Probed {
                replica,
                load,
                sent,
            };
            router.handle(ms(now), event);
        }
        while tasks.last().is_some_and(|task| task.at_ms <= now) {
            let task = tasks.pop().unwrap();
            router.handle(ms(now), Event::Arrived(task.request));
        }
        router.handle_timeout(ms(now));
        while let Some(effect) = router.poll_effect() {
            match effect {
                Effect::Dispatch(id, decision) => {
                    *report.reasons.entry(decision.reason).or_default() += 1;
                    report.order.push(id);
                    on_the_way.push((now + WAY_MS, decision.replica.0 as usize, id));
                }
                Effect::Forward(..) | Effect::Reject { .. } | Effect::Hung { .. } => {
                    report.rejected += 1
                }
            }
        }
        let idle = engines.iter().filter(|engine| engine.is_idle()).count();
        for (engine, since) in engines.iter().zip(&mut held_since) {
            if engine.waiting() > 1 && idle > 0 {
                let since = *since.get_or_insert(now);
                report.held_up_ms = report.held_up_ms.max(now - since);
            } else {
                *since = None;
            }
        }
        let most = engines.iter().map(Engine::running).max().unwrap_or(0);
        if report.running.last().is_none_or(|(_, last)| *last != most) {
            report.running.push((now, most));
        }
        if report.finished + report.rejected == total {
            return report;
        }
        assert!(now < 3_600_000, "the run does not end: {report:?}");
    }
    report
}

fn finished(id: RequestId) -> Event {
    Event::Finished {
        id,
        served_by: ServedBy::Unreported,
        end: End::Answered,
        ttft_us: None,
        prompt_tokens: None,
        cached_tokens: None,
        completion_tokens: None,
    }
}
