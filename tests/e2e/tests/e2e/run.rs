//! `isotherm run`: one command serves clients, drains, and survives the death of either program.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use isotherm_e2e::load::{RequestRecord, check_all_succeeded};
use isotherm_e2e::{Action, Client, Load, MODEL, ScriptedReplica, WAIT_MAX, chat, permit, send};
use isotherm_harness::port::{self, ReservedPort};
use isotherm_harness::process::Process;
use isotherm_harness::{EngineOptions, Engines, Pool, Tools, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::openai::{check_success, python_with_openai};

const CLIENTS: usize = 6;
/// Enough requests for every client to send several.
const REQUESTS: usize = 60;
/// The options with an address of this machine.
const ADDRESSES: [&str; 4] = ["--listen", "--envoy-admin", "--service", "--admin"];

/// A running `isotherm run`.
struct Supervisor {
    process: Process,
    folder: TempDir,
    ports: Vec<ReservedPort>,
}

impl Supervisor {
    /// Starts the command in front of replicas, and waits until it serves.
    async fn start(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let tools = Tools::find()?;
        let folder = TempDir::new()?;
        let mut command = Command::new(&tools.isotherm);
        command.arg("run").current_dir(folder.path());
        command.arg("--envoy").arg(&tools.envoy);
        command.arg("--filter").arg(&tools.filter);
        let mut ports = Vec::new();
        for option in ADDRESSES {
            let port = port::reserve()?;
            command.args([option, &port.address().to_string()]);
            ports.push(port);
        }
        for replica in replicas {
            command.args(["--replica", &format!("http://{replica}")]);
        }
        let log = folder.path().join("run.log");
        let mut process = Process::start("run", &mut command, &log)?;
        // The log has the start of each program, too: another thread writes it.
        let is_ready = |log: String| {
            let starts = log.matches("\"message\":\"runs\"").count();
            let is_ready = log.contains("Isotherm serves") && starts >= 2;
            std::future::ready(is_ready.then_some(()))
        };
        process.wait_until_ready(WAIT_MAX, is_ready).await?;
        Ok(Self {
            process,
            folder,
            ports,
        })
    }

    /// URL for clients.
    fn url(&self) -> String {
        format!("http://{}", self.ports[0].address())
    }

    /// The process ids that a program has had, the current one last.
    fn ids(&self, program: &str) -> Vec<u64> {
        let log = self.process.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let starts = lines.filter(|line: &Value| line["program"] == program);
        starts
            .filter(|line| line["message"] == "runs")
            .filter_map(|line| line["process"].as_u64())
            .collect()
    }

    /// Kills a program (`SIGKILL`), and waits for its end. Returns the number of its starts so far.
    async fn kill(&self, program: &str) -> anyhow::Result<usize> {
        let ids = self.ids(program);
        let id = *ids.last().context("the program has not started")?;
        signal("KILL", id)?;
        wait_until_gone(id).await?;
        Ok(ids.len())
    }

    /// Waits until a program has started more often than `count` times.
    async fn wait_for_start(&self, program: &str, count: usize) -> anyhow::Result<()> {
        let condition = format!("a new start of {program}");
        wait_until(WAIT_MAX, &condition, || {
            std::future::ready(self.ids(program).len() > count)
        })
        .await
    }

    async fn wait_until_programs_end(&self) -> anyhow::Result<()> {
        for program in ["service", "envoy"] {
            let ids = self.ids(program);
            wait_until_gone(*ids.last().context("no start")?).await?;
        }
        Ok(())
    }

    async fn wait_for_log(&self, part: &str) -> anyhow::Result<()> {
        wait_until(WAIT_MAX, part, || {
            std::future::ready(self.process.log().contains(part))
        })
        .await
    }
}

fn signal(name: &str, id: u64) -> anyhow::Result<()> {
    let arguments = ["-s", name, &id.to_string()].map(str::to_owned);
    check_success(&Command::new("kill").args(arguments).output()?)
}

async fn wait_until_gone(id: u64) -> anyhow::Result<()> {
    wait_until(WAIT_MAX, "the end of a program", || {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"));
        std::future::ready(!stat.is_ok_and(|stat| !stat.contains(") Z ")))
    })
    .await
}

async fn engines(name: &str, speed: f64) -> anyhow::Result<Engines> {
    let options = EngineOptions {
        speed,
        ..EngineOptions::default()
    };
    Engines::start(name, &Pool::new(MODEL).replicas(2).engine(options)).await
}

/// A prompt of the client's own, long enough to be recognised.
fn prompt(client: usize, _: usize) -> Value {
    chat(&format!("Client {client} begins like this. ").repeat(80))
}

fn stream(client: usize, turn: usize) -> Value {
    let mut body = prompt(client, turn);
    body["stream"] = json!(true);
    body["max_tokens"] = json!(40);
    body
}

/// Needs a package index. Without one, the test is skipped, except in CI, where it fails.
#[tokio::test(flavor = "multi_thread")]
async fn one_command_serves_the_openai_client() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let engines = engines("run-openai", 50.0).await?;
    let supervisor = Supervisor::start(&engines.addresses()).await?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = python_with_openai(supervisor.folder.path(), &here.join("requirements.txt"));
    let python = match python {
        Ok(python) => python,
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: the openai package cannot be installed here: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut script = Command::new(python);
    script.arg(here.join("openai_client.py"));
    check_success(
        &script
            .args([&format!("{}/v1", supervisor.url()), MODEL])
            .output()?,
    )
}

#[tokio::test]
async fn the_command_that_is_printed_is_answered_through_the_filter() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let engines = engines("run-curl", 50.0).await?;
    let supervisor = Supervisor::start(&engines.addresses()).await?;
    let log = supervisor.process.log();
    let curl = log
        .lines()
        .find_map(|line| line.trim().strip_prefix("curl"));
    let curl = format!("curl --silent {}", curl.context("no request is printed")?);
    let output = Command::new("bash").args(["-c", &curl]).output()?;
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(answer["object"] == "chat.completion", "{answer}");
    // The access log of Envoy has its prefix, and names the decision of the service.
    supervisor.wait_for_log("envoy: {").await?;
    let log = supervisor.process.log();
    let line = log.lines().find_map(|line| line.strip_prefix("envoy: {"));
    let line: Value = serde_json::from_str(&format!("{{{}", line.context("no access log")?))?;
    ensure!(
        line["model"] == MODEL && line["chosen"] != Value::Null,
        "{line}"
    );
    Ok(())
}

#[tokio::test]
async fn the_first_signal_under_load_breaks_no_stream() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let engines = engines("run-drain", 5.0).await?;
    let mut supervisor = Supervisor::start(&engines.addresses()).await?;
    let load = Load::start(&supervisor.url(), CLIENTS, stream)?;
    load.wait_for_each_client().await?;

    let stopped = Instant::now();
    supervisor.process.stop(WAIT_MAX).await?;
    supervisor.process.wait_until_ended(WAIT_MAX).await?;

    let records = load.stop().await?;
    let started: Vec<RequestRecord> = records
        .into_iter()
        .filter(|record| record.response_started)
        .collect();
    check_all_succeeded(&started)?;
    for record in &started {
        let text = record.response.as_ref().map(|response| response.text());
        ensure!(
            text.is_ok_and(|text| text.ends_with("[DONE]\n\n")),
            "{record:?}"
        );
    }
    let across = started.iter();
    let across = across.filter(|record| record.sent < stopped && record.ended > stopped);
    ensure!(
        across.count() > 0,
        "no stream ran at the time of the signal"
    );
    supervisor.wait_until_programs_end().await?;
    Ok(())
}

#[tokio::test]
async fn a_second_signal_ends_everything_at_once() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let mut supervisor = Supervisor::start(&[replica.address()]).await?;
    replica.set_action(Action::Hold);
    let request = Client::new(&supervisor.url())?.spawn_chat("hello");
    replica.wait_until_holding(1).await?;
    let id = u64::from(supervisor.process.id());
    signal("TERM", id)?;
    supervisor.wait_for_log("\"stopping\"").await?;
    signal("TERM", id)?;
    let ended = supervisor.process.wait_until_ended(WAIT_MAX).await;
    let Err(error) = ended else {
        bail!("a second signal is no success");
    };
    let error = format!("{error:#}");
    ensure!(error.contains("exit status: 130"), "{error}");
    supervisor.wait_until_programs_end().await?;
    ensure!(request.await?.is_err(), "the held request was answered");
    Ok(())
}

#[tokio::test]
async fn a_service_that_is_killed_fails_no_request_and_comes_back() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = ScriptedReplica::start_all(["a", "b"]).await?;
    let addresses = replicas.each_ref().map(ScriptedReplica::address);
    let supervisor = Supervisor::start(&addresses).await?;
    let load = Load::start(&supervisor.url(), CLIENTS, prompt)?;
    load.wait_for_each_client().await?;
    for _ in 0..2 {
        let starts = supervisor.kill("service").await?;
        load.wait_for_requests(REQUESTS).await?;
        supervisor.wait_for_start("service", starts).await?;
        load.wait_for_each_client().await?;
    }
    let records = load.stop().await?;
    check_all_succeeded(&records)
}

#[tokio::test]
async fn an_envoy_that_is_killed_costs_each_client_one_request_at_most() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = ScriptedReplica::start_all(["a", "b"]).await?;
    let addresses = replicas.each_ref().map(ScriptedReplica::address);
    let supervisor = Supervisor::start(&addresses).await?;
    let load = Load::start(&supervisor.url(), CLIENTS, prompt)?;
    load.wait_for_each_client().await?;
    let mut deaths = Vec::new();
    for _ in 0..3 {
        deaths.push(Instant::now());
        let starts = supervisor.kill("envoy").await?;
        // Nothing else listens while Envoy starts, and each new request waits.
        let client = Client::new(&supervisor.url())?;
        send(client.post_chat(&chat("anyone?"))).await?.success()?;
        supervisor.wait_for_start("envoy", starts).await?;
        load.wait_for_each_client().await?;
        load.wait_for_requests(REQUESTS).await?;
    }
    let mut lost = BTreeSet::new();
    for record in load
        .stop()
        .await?
        .iter()
        .filter(|record| !record.is_success())
    {
        // A client has one connection and one request at a time. Both go with the Envoy that had them.
        let death = deaths.iter().rposition(|death| *death <= record.ended);
        let death = death.with_context(|| format!("a request was lost: {record:#?}"))?;
        ensure!(
            lost.insert((death, record.session.clone())),
            "lost twice: {record:#?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn programs_end_with_a_supervisor_that_is_killed() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let mut supervisor = Supervisor::start(&[replica.address()]).await?;
    supervisor.process.kill()?;
    supervisor.wait_until_programs_end().await?;
    Ok(())
}

#[tokio::test]
async fn a_replica_that_starts_late_names_the_model() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let tools = Tools::find()?;
    let folder = TempDir::new()?;
    let port = port::reserve()?;
    let address = port.address().to_string();
    let mut command = Command::new(&tools.isotherm);
    command.args(["run", "--print-envoy", "--replica", &address]);
    command.arg("--filter").arg(&tools.filter);
    let log = folder.path().join("run.log");
    let mut process = Process::start("run", &mut command, &log)?;
    let is_waiting = |log: String| {
        std::future::ready(
            log.contains("waiting for a replica that names its model")
                .then_some(()),
        )
    };
    process.wait_until_ready(WAIT_MAX, is_waiting).await?;
    let mut engine = Command::new(&tools.engine);
    engine.args(["--listen", &address, "--model", "late-model"]);
    let _engine = Process::start("engine", &mut engine, &folder.path().join("engine.log"))?;
    process.wait_until_ended(WAIT_MAX).await?;
    ensure!(process.log().contains("late-model"), "{}", process.log());
    Ok(())
}
