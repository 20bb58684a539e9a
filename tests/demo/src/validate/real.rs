//! The real system, with the requests of the simulator.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use isotherm_harness::{EngineOptions, MODEL, Pool, Stack, wait_for};
use isotherm_simulator::workload::trace::Trace;
use tokio::process::{Child, Command};

use super::options::ValidationPlan;
use crate::client::Client;
use crate::compare::stack_builder;
use crate::drive::run_workload;
use crate::metrics::RequestMetrics;
use crate::progress;
use crate::record::RequestLog;
use crate::scenario::Scheme;
use crate::workload::{Conversation, LoadModel, Workload, conversations, message};

/// Bound on the start of a recording, and on its end after the last request.
const RECORDING_MAX: Duration = Duration::from_secs(90);

/// The result of a run of the real system.
pub(super) struct RealRun {
    /// Time to first token of requests in the idle system, in ms.
    pub(super) unloaded_ms: Vec<f64>,
    /// Metrics of the workload.
    pub(super) metrics: RequestMetrics,
    /// Recording of the workload.
    pub(super) recorded: Trace,
}

pub(super) async fn run(
    plan: &ValidationPlan,
    scheme: Scheme,
    label: &str,
) -> anyhow::Result<RealRun> {
    let engine = EngineOptions {
        preset: plan.options.engine.name().to_owned(),
        speed: plan.options.speedup,
        ..EngineOptions::default()
    };
    let replicas = usize::from(plan.options.replicas);
    let pool = Pool::new(MODEL).replicas(replicas).engine(engine);
    let stack = stack_builder("validate", pool, plan.options.speedup, scheme)
        .service(|config| config.set("recording", true))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;

    let mut unloaded_ms = Vec::new();
    for Conversation { session, turns, .. } in conversations(&plan.unloaded) {
        for turn in turns {
            let message = message("user", turn.content.render());
            let response = client.send(&session, &[message], turn.answer).await;
            let response = response.context("a request in the idle system")?;
            unloaded_ms.push(response.outcome.ttft.as_secs_f64() * 1e3);
            tokio::time::sleep(super::unloaded::PAUSE.div_f64(plan.options.speedup)).await;
        }
    }

    let workload = Workload {
        name: plan.workload.name.clone(),
        description: String::new(),
        load_model: LoadModel::Open,
        conversations: conversations(&plan.workload.sessions),
    };
    let requests = workload.requests();
    let trace = stack.directory().join("trace.jsonl");
    let recording = record(&stack, &trace, requests).await?;
    let log = RequestLog::default();
    let duration = tokio::select! {
        duration = run_workload(&workload, &client, &log) => duration,
        () = progress::follow(label, requests, 1.0, &log, |records, _| records.len()) => Duration::ZERO,
    };
    Ok(RealRun {
        unloaded_ms,
        metrics: RequestMetrics::of(&log.take(label), &(Duration::ZERO..duration), 1.0),
        recorded: recorded(recording, &trace).await?,
    })
}

/// Starts `isotherm record`, and waits until the recording begins.
async fn record(stack: &Stack, trace: &Path, requests: usize) -> anyhow::Result<Child> {
    let recording = Command::new(stack.service().program())
        .arg("record")
        .arg("--config")
        .arg(stack.service().config_path())
        .arg("--output")
        .arg(trace)
        .args(["--requests", &requests.to_string()])
        .args(["--duration", "3600"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("`isotherm record` does not start")?;
    let log = stack.directory().join("isotherm.log");
    wait_for(RECORDING_MAX, "the recording begins", || async {
        let log = std::fs::read_to_string(&log)?;
        Ok(log.contains("recording begins").then_some(()))
    })
    .await?;
    Ok(recording)
}

/// Waits for the end of the recording, and reads it.
async fn recorded(recording: Child, trace: &Path) -> anyhow::Result<Trace> {
    let output = tokio::time::timeout(RECORDING_MAX, recording.wait_with_output());
    let output = output.await.context("the recording does not end")??;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`isotherm record`: {log}");
    let last = log.lines().last().unwrap_or_default();
    eprintln!("isotherm record: {last}");
    Trace::open(trace, None)
}
