//! The real system: what the demo starts, asked what the simulator is asked.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use isotherm_harness::{EngineOptions, MODEL, Pool, Stack, wait_for};
use isotherm_simulator::workload::trace::Trace;
use serde_json::json;
use tokio::process::{Child, Command};

use super::options::Plan;
use crate::client::Client;
use crate::compare::describe;
use crate::drive::{Measured, Tally, play};
use crate::progress;
use crate::scenario::Scheme;
use crate::workload::{Conversation, Pacing, Workload, conversations, message};

/// How long a recording may take to begin, and to end after its last request.
const RECORDING_MAX: Duration = Duration::from_secs(90);

/// What was seen.
pub(super) struct Seen {
    /// Time to the first token of requests that were alone, in ms.
    pub(super) lone_ms: Vec<f64>,
    /// The workload.
    pub(super) measured: Measured,
    /// The same as the service recorded it.
    pub(super) recorded: Trace,
}

pub(super) async fn run(plan: &Plan, scheme: Scheme, label: &str) -> anyhow::Result<Seen> {
    let engine = EngineOptions {
        preset: plan.engine.name().to_owned(),
        speed: plan.speed,
        arguments: Vec::new(),
    };
    let replicas = usize::from(plan.replicas);
    let pool = Pool::new(MODEL).replicas(replicas).engine(engine);
    let stack = describe("validate", pool, plan.speed, scheme)
        .service(|config| config.set("recording", json!({ "enabled": true })))
        .start()
        .await?;
    let client = Client::new(&stack.url(""), MODEL)?;

    let mut lone_ms = Vec::new();
    for Conversation { session, turns, .. } in conversations(&plan.lone) {
        for turn in turns {
            let message = message("user", turn.content.render());
            let answered = client.ask(&session, &[message], turn.answer).await;
            let answered =
                answered.map_err(|failure| anyhow::anyhow!("a lone request: {failure}"))?;
            lone_ms.push(answered.ttft.as_secs_f64() * 1e3);
            tokio::time::sleep(super::lone::PAUSE.div_f64(plan.speed)).await;
        }
    }

    let trace = stack.directory().join("trace.jsonl");
    let recording = record(&stack, &trace, plan.requests()).await?;
    let workload = Workload {
        name: plan.workload.name.clone(),
        description: String::new(),
        pacing: Pacing::Open,
        conversations: conversations(&plan.workload.sessions),
    };
    let tally = Tally::default();
    let measured = tokio::select! {
        measured = play(&workload, &client, &tally) => measured,
        () = progress::follow(label, workload.requests(), &tally) => Measured::default(),
    };
    Ok(Seen {
        lone_ms,
        measured,
        recorded: recorded(recording, &trace).await?,
    })
}

/// Starts `isotherm record`, and waits until it records.
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

/// What it has recorded, once it has ended.
async fn recorded(recording: Child, trace: &Path) -> anyhow::Result<Trace> {
    let output = tokio::time::timeout(RECORDING_MAX, recording.wait_with_output());
    let output = output.await.context("the recording does not end")??;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`isotherm record`: {told}");
    eprintln!(
        "isotherm record: {}",
        told.lines().last().unwrap_or_default()
    );
    Ok(Trace::open(trace, None)?)
}
