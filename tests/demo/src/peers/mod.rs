//! `compare`: one trace through Isotherm and through what a user would run instead, to the same simulated engines.
//!
//! Every system gets fresh engines with empty caches and the same requests, one system after the other or all at once.
//! Isotherm is the delivered service behind the shipped Envoy configuration with the default policy; every other system runs
//! with its own defaults and its policy for cached prefixes. Rejected: policies of other systems inside Isotherm, because then
//! no foreign code decides.

mod options;
mod report;

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::{self, try_join_all};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use isotherm_harness::peers::{
    PythonRouter, ReferencePicker, RunningRouter, behind_picker, wait_for_response,
};
use isotherm_harness::{Engines, MODEL, Pool, Stack};

pub use options::CompareOptions;
use options::System;
pub use report::{PeerComparison, PeerRun};

use crate::client::Client;
use crate::drive::run_workload;
use crate::metrics::{RequestMetrics, round};
use crate::progress;
use crate::record::RequestLog;
use crate::scenario::Scenario;

/// Runs every system that is installed; prints the progress on standard error.
///
/// # Errors
/// When the trace cannot be read, or Isotherm does not start. Another system that does not start is left out, with a message. The
/// report counts requests that fail.
pub async fn compare(options: &CompareOptions) -> anyhow::Result<PeerComparison> {
    let scenario = options.scenario()?;
    let summary = scenario.summary.clone();
    eprintln!("{}", summary.description);
    let runs = stream::iter(options.systems()).map(|system| run(&scenario, system, options));
    let at_once = if options.at_once { usize::MAX } else { 1 };
    let runs: Vec<Option<PeerRun>> = runs.buffered(at_once).try_collect().await?;
    Ok(PeerComparison {
        scenario: summary,
        at_once: options.at_once,
        runs_each: options.runs,
        runs: runs.into_iter().flatten().collect(),
    })
}

/// A system that runs until it is dropped.
enum RunningSystem {
    Isotherm(Box<Stack>),
    Router(Box<RunningRouter>),
    Picker(Box<(Stack, ReferencePicker)>),
}

impl RunningSystem {
    /// Starts a system for these replicas; `None` when it is not installed.
    async fn start(
        system: System,
        replicas: &[SocketAddr],
        options: &CompareOptions,
    ) -> anyhow::Result<Option<Self>> {
        let router = match system {
            System::Isotherm => {
                let pool = pool(replicas).policy(options.policy.as_ref());
                let stack = Stack::builder("compare-isotherm").pool(pool.push(options.push.name()));
                return Ok(Some(Self::Isotherm(Box::new(stack.start().await?))));
            }
            System::ReferencePicker => return Self::picker(replicas).await,
            System::SglangRouter => PythonRouter::Sglang,
            System::Smg => PythonRouter::Smg,
            System::VllmRouter => PythonRouter::Vllm,
        };
        let started = router.start(&options.python, replicas).await?;
        Ok(started.map(|router| Self::Router(Box::new(router))))
    }

    async fn picker(replicas: &[SocketAddr]) -> anyhow::Result<Option<Self>> {
        let Some(mut picker) = ReferencePicker::start("compare-reference", replicas).await? else {
            return Ok(None);
        };
        let builder = Stack::builder("compare-reference").pool(pool(replicas));
        let stack = behind_picker(builder, replicas, picker.address);
        let stack = stack.start().await?;
        let address = stack.envoy().address();
        wait_for_response(address, &mut picker.process).await?;
        Ok(Some(Self::Picker(Box::new((stack, picker)))))
    }

    fn url(&self) -> String {
        match self {
            Self::Isotherm(stack) => stack.url(""),
            Self::Picker(running) => running.0.url(""),
            Self::Router(router) => format!("http://{}", router.address),
        }
    }
}

fn pool(replicas: &[SocketAddr]) -> Pool {
    Pool::new(MODEL).with_addresses(replicas.iter().copied())
}

/// Measures a system; `None` when it is not installed, or is not Isotherm and does not start.
async fn run(
    scenario: &Scenario,
    system: System,
    options: &CompareOptions,
) -> anyhow::Result<Option<PeerRun>> {
    let name = system.name();
    let plays = (0..options.runs).map(|number| play(scenario, system, options, number));
    let played = match try_join_all(plays).await {
        Ok(played) => played,
        Err(error) if system != System::Isotherm => {
            // The others have played for a long time.
            eprintln!("left out: {name}: {error:#}");
            return Ok(None);
        }
        Err(error) => return Err(error.context(name)),
    };
    // The runs count as one that plays the trace again and again.
    let (mut duration, mut records) = (Duration::ZERO, Vec::new());
    for (length, log) in played.into_iter().flatten() {
        let again = log
            .take(name)
            .into_iter()
            .map(|record| record.later(duration));
        records.extend(again);
        duration += length;
    }
    if records.is_empty() {
        return Ok(None);
    }
    let run = PeerRun {
        system: name.to_owned(),
        version: system.version(options),
        duration_s: round(duration.as_secs_f64()),
        metrics: RequestMetrics::of(&records, &(Duration::ZERO..duration), 1.0),
    };
    let metrics = run.metrics.summary();
    eprintln!("{name}: {:.1} s, {metrics}", run.duration_s);
    Ok(Some(run))
}

/// Plays the workload through a system with fresh engines.
async fn play(
    scenario: &Scenario,
    system: System,
    options: &CompareOptions,
    number: u16,
) -> anyhow::Result<Option<(Duration, RequestLog)>> {
    let engines = Engines::start("compare-engines", &scenario.pool).await?;
    let replicas = engines.addresses();
    let Some(running) = RunningSystem::start(system, &replicas, options).await? else {
        return Ok(None);
    };
    let workload = &scenario.workload;
    let client = Client::new(&running.url())?;
    let log = RequestLog::default();
    let progress = async {
        let (name, requests) = (system.name(), workload.requests());
        if number > 0 {
            // The first run has about the same progress.
            future::pending().await
        } else if options.at_once {
            progress::follow_in_lines(name, requests, &log).await;
        } else {
            progress::follow(name, requests, 1.0, &log, |records, _| records.len()).await;
        }
    };
    let duration = tokio::select! {
        duration = run_workload(workload, &client, &log) => duration,
        () = progress => Duration::ZERO,
    };
    Ok(Some((duration, log)))
}
