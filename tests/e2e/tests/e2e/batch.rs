//! `isotherm batch` on a real Envoy while its workers, the service, replicas and the database are killed.
//!
//! The tests kill at a number of results, not at a time, so a slow machine sees the same schedule. `ISOTHERM_BATCH_LINES` sets
//! the number of lines, and `ISOTHERM_BATCH_SEED` the seed of the moments.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use isotherm_batch::limits::Limits;
use isotherm_batch::store::{FileSink, NewFile, Store};
use isotherm_e2e::{MODEL, WAIT_MAX, permit};
use isotherm_harness::process::Process;
use isotherm_harness::{EngineOptions, Pool, Postgres, Stack, port, wait_for};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::openai::{check_success, python_with_openai};

/// Lines of a batch in the suite.
const LINES: usize = 240;
/// Requests at the gateway at once.
const CONCURRENCY: usize = 16;

/// The number of lines, and the seed of the moments.
fn size() -> anyhow::Result<(usize, u64)> {
    let number = |name: &str| env::var(name).ok().map(|value| value.parse()).transpose();
    let lines = number("ISOTHERM_BATCH_LINES")?.unwrap_or(LINES as u64);
    let seed = number("ISOTHERM_BATCH_SEED")?.unwrap_or(20);
    println!("{lines} lines, seed {seed}");
    Ok((usize::try_from(lines)?, seed))
}

/// Engines that fail as real ones do, and an Envoy that notices soon when the service is gone.
async fn start(name: &str) -> anyhow::Result<Stack> {
    let options = EngineOptions {
        speed: 40.0,
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL).replicas(4).engine(options);
    let stack = Stack::builder(name).pool(pool);
    isotherm_e2e::fixture::with_detecting_timeouts(stack)
        .start()
        .await
}

/// A fault that happens at a number of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Worker(usize),
    Service,
    Replica(usize),
    Database,
}

/// Each fault with the number of results at which it happens, in that order.
fn schedule(seed: u64, lines: usize, faults: &[Fault]) -> Vec<(u64, Fault)> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut schedule: Vec<(u64, Fault)> = faults
        .iter()
        .map(|fault| (random.random_range(1..lines as u64 * 8 / 10), *fault))
        .collect();
    schedule.sort_unstable();
    println!("schedule: {schedule:?}");
    schedule
}

pub(super) fn input(lines: usize) -> String {
    let line = |number: usize| {
        let message =
            json!({ "role": "user", "content": format!("Number {number}: say something.") });
        let body = json!({ "model": MODEL, "messages": [message], "max_tokens": 8 });
        let line = json!({ "custom_id": format!("c{number}"), "method": "POST", "url": "/v1/chat/completions", "body": body });
        format!("{line}\n")
    };
    (0..lines).map(line).collect()
}

/// A command of `isotherm batch`.
pub(super) struct BatchCommand {
    name: String,
    command: Command,
    log: PathBuf,
}

impl BatchCommand {
    fn new(stack: &Stack, name: &str, database: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(stack.service().program());
        command.arg("batch").args(arguments);
        command.args(["--database", database]);
        Self {
            name: name.to_owned(),
            command,
            log: stack.directory().join(format!("{name}.log")),
        }
    }

    /// A command that sends requests.
    pub(super) fn sending(stack: &Stack, name: &str, database: &str, arguments: &[&str]) -> Self {
        let mut this = Self::new(stack, name, database, arguments);
        let admin = stack.service().admin_url("");
        this.command
            .args(["--url", &stack.url(""), "--admin", &admin])
            .args(["--lease-s", "3", "--log", "info"])
            .args(["--concurrency", &CONCURRENCY.to_string()]);
        this
    }

    pub(super) fn start(&mut self) -> anyhow::Result<Process> {
        Process::start(&self.name, &mut self.command, &self.log)
    }
}

/// The number of results of the newest batch, and whether it has ended.
async fn results(store: &Store) -> anyhow::Result<Option<(u64, bool)>> {
    // The database may be down: the test killed it.
    let Ok(batches) = store.batches(None, None, 1).await else {
        return Ok(None);
    };
    let batch = batches.first();
    Ok(batch.map(|batch| (batch.completed + batch.failed, batch.status.is_final())))
}

/// Waits until the newest batch has `count` results.
pub(super) async fn wait_for_results(store: &Store, count: u64) -> anyhow::Result<()> {
    let condition = format!("{count} results");
    wait_for(WAIT_MAX, &condition, || async {
        let results = results(store).await?;
        Ok(results.filter(|(results, _)| *results >= count))
    })
    .await
    .map(|_| ())
}

async fn restart_service(stack: &mut Stack) -> anyhow::Result<()> {
    stack.service_mut().kill()?;
    stack.service_mut().start().await
}

/// Checks that each line has one response, in the order of the input.
fn check_output(text: &str, lines: usize) -> anyhow::Result<()> {
    let mut ids = Vec::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        ensure!(line["response"]["status_code"] == 200, "{line}");
        let answer = &line["response"]["body"]["choices"][0]["message"]["content"];
        ensure!(
            answer.as_str().is_some_and(|answer| !answer.is_empty()),
            "{line}"
        );
        ids.push(
            line["custom_id"]
                .as_str()
                .context("no custom_id")?
                .to_owned(),
        );
    }
    let expected: Vec<String> = (0..lines).map(|number| format!("c{number}")).collect();
    ensure!(
        ids == expected,
        "{} results for {lines} lines, or in another order",
        ids.len()
    );
    let distinct: BTreeSet<&String> = ids.iter().collect();
    ensure!(distinct.len() == lines, "a line has two results");
    Ok(())
}

/// The requests that reached the engines that live, beyond one for each line.
async fn repeated_requests(stack: &Stack) -> anyhow::Result<u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for engine in stack.engines() {
        let url = format!("http://{}/debug/requests", engine.address());
        let Ok(page) = reqwest::get(url).await else {
            continue; // killed
        };
        for (id, count) in page.json::<BTreeMap<String, u64>>().await? {
            if id.starts_with("batch_req_") {
                *counts.entry(id).or_default() += count;
            }
        }
    }
    let repeated = counts.values().map(|count| count - 1).sum();
    println!("{repeated} requests reached engines again");
    Ok(repeated)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_survives_kills_of_its_worker_the_service_and_replicas() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (lines, seed) = size()?;
    let mut stack = start("batch-sqlite").await?;
    let folder = stack.directory().to_owned();
    fs::write(folder.join("input.jsonl"), input(lines))?;
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (database, output, errors) = (path("queue.db"), path("output.jsonl"), path("errors.jsonl"));
    let arguments = [
        "run",
        &path("input.jsonl"),
        "--output",
        &output,
        "--errors",
        &errors,
        "--json",
    ];
    let mut command = BatchCommand::sending(&stack, "batch-run", &database, &arguments);
    let mut run = command.start()?;
    let mut faults = vec![Fault::Worker(0); 5];
    faults.extend([Fault::Service, Fault::Service]);
    faults.extend([Fault::Replica(0), Fault::Replica(1)]);
    let faults = schedule(seed, lines, &faults);
    let count = faults.len() as u64;
    let store = Store::open(&database).await?;
    for (results, fault) in faults {
        wait_for_results(&store, results).await?;
        match fault {
            Fault::Worker(_) => {
                run.kill()?;
                run = command.start()?;
            }
            Fault::Service => restart_service(&mut stack).await?,
            Fault::Replica(index) => stack.engine_mut(index)?.kill()?,
            Fault::Database => {}
        }
    }
    run.wait_until_ended(WAIT_MAX).await?;
    ensure!(
        !Path::new(&errors).exists(),
        "{}",
        fs::read_to_string(&errors)?
    );
    check_output(&fs::read_to_string(&output)?, lines)?;
    // A request is sent again only where its result was in flight when a process was killed.
    let repeated = repeated_requests(&stack).await?;
    ensure!(
        repeated <= count * CONCURRENCY as u64,
        "{repeated} repeated requests"
    );

    // The state stays, and the commands show it.
    let show = |arguments: &[&str]| -> anyhow::Result<String> {
        let output = BatchCommand::new(&stack, "batch-show", &database, arguments)
            .command
            .output()?;
        check_success(&output)?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let batches = store.batches(None, None, 10).await?;
    ensure!(batches.len() == 1, "{} batches", batches.len());
    ensure!(
        show(&["list"])?.contains("completed"),
        "{}",
        show(&["list"])?
    );
    let listed: Value = serde_json::from_str(&show(&["list", "--json"])?)?;
    let shown: Value = serde_json::from_str(&show(&["show", "--json", &batches[0].id])?)?;
    ensure!(
        listed[0] == shown && shown["status"] == "completed",
        "{listed} {shown}"
    );
    let page = show(&["show", &batches[0].id])?;
    ensure!(page.contains(&output) && page.contains(MODEL), "{page}");
    ensure!(
        show(&["cancel", &batches[0].id]).is_err(),
        "a finished batch was cancelled"
    );
    Ok(())
}

/// The gate of a pool with tiers lets the lines pass, and the worker reads what the gate holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_passes_the_gate_of_a_pool_with_tiers() -> anyhow::Result<()> {
    const LINES: usize = 60;
    let _permit = permit::shared().await?;
    let tiers = json!({ "batch_wait_ms_max": 5_000 });
    let stack = isotherm_e2e::engines("batch-tiers", 2, 40.0)
        .service(move |config| config.set("pools/0/tiers", tiers))
        .start()
        .await?;
    let path = |name: &str| stack.directory().join(name).to_string_lossy().into_owned();
    let (output, errors) = (path("output.jsonl"), path("errors.jsonl"));
    fs::write(path("input.jsonl"), input(LINES))?;
    let arguments = [
        "run",
        &path("input.jsonl"),
        "--output",
        &output,
        "--errors",
        &errors,
        "--json",
    ];
    let mut command = BatchCommand::sending(&stack, "batch-run", &path("queue.db"), &arguments);
    let mut run = command.start()?;
    run.wait_until_ended(WAIT_MAX).await?;
    check_output(&fs::read_to_string(&output)?, LINES)?;
    let log = run.log();
    ensure!(!log.contains("does not say what it holds"), "{log}");
    ensure!(log.contains("\"object\": \"batch\""), "{log}");
    let gates = stack.service().get("/api/batch").await?;
    let released = gates[0]["released"].as_object().context("no gate")?;
    let released: u64 = released.values().filter_map(Value::as_u64).sum();
    ensure!(released >= LINES as u64, "{gates}");
    Ok(())
}

/// Needs Debian's package `postgresql`; skipped without it.
#[tokio::test(flavor = "multi_thread")]
async fn three_workers_share_a_postgresql_that_is_killed() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (lines, seed) = size()?;
    let Some(mut postgres) = Postgres::start("batch-postgres").await? else {
        eprintln!("SKIPPED: PostgreSQL is not installed (Debian: postgresql)");
        return Ok(());
    };
    let mut stack = start("batch-postgres").await?;
    let database = postgres.url();
    let listen = port::reserve()?;
    let api = listen.address().to_string();
    let mut commands = vec![BatchCommand::sending(
        &stack,
        "batch-serve",
        &database,
        &["serve", "--listen", &api],
    )];
    for name in ["batch-work-1", "batch-work-2"] {
        commands.push(BatchCommand::sending(&stack, name, &database, &["work"]));
    }
    let mut workers = commands
        .iter_mut()
        .map(BatchCommand::start)
        .collect::<anyhow::Result<Vec<_>>>()?;
    let client = ApiClient(format!("http://{api}"));
    client.wait_until_ready().await?;
    let file = client.upload(&input(lines)).await?;
    let batch = client.create(&file).await?;
    let mut faults = [0, 1, 2, 1, 2].map(Fault::Worker).to_vec();
    faults.extend([Fault::Service, Fault::Service, Fault::Database]);
    faults.extend([Fault::Replica(0), Fault::Replica(1)]);
    let faults = schedule(seed, lines, &faults);
    let store = Store::open(&database).await?;
    for (results, fault) in faults {
        wait_for_results(&store, results).await?;
        match fault {
            Fault::Worker(index) => {
                workers[index].kill()?;
                workers[index] = commands[index].start()?;
            }
            Fault::Service => restart_service(&mut stack).await?,
            Fault::Replica(index) => stack.engine_mut(index)?.kill()?,
            Fault::Database => {
                postgres.kill();
                postgres.restart().await?;
            }
        }
    }
    let ended = wait_for(WAIT_MAX, "the batch to end", || async {
        let batch = client.get(&format!("/v1/batches/{batch}")).await;
        Ok(batch.ok().filter(|batch| batch["completed_at"].is_number()))
    });
    let ended = ended.await?;
    ensure!(
        ended["status"] == "completed" && ended["error_file_id"].is_null(),
        "{ended}"
    );
    ensure!(ended["request_counts"]["completed"] == lines, "{ended}");
    let output = ended["output_file_id"].as_str().context("no output file")?;
    check_output(
        &client.text(&format!("/v1/files/{output}/content")).await?,
        lines,
    )?;
    repeated_requests(&stack).await?;
    Ok(())
}

/// Needs Debian's package `postgresql`; skipped without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_postgresql_that_took_no_writes_takes_them_again() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let Some(postgres) = Postgres::start("batch-read-only").await? else {
        eprintln!("SKIPPED: PostgreSQL is not installed (Debian: postgresql)");
        return Ok(());
    };
    let store = Store::open(&postgres.url()).await?;
    let change = |setting: &str| {
        let statement =
            format!("ALTER DATABASE postgres SET default_transaction_read_only = {setting}");
        let psql = Command::new("psql")
            .args([&postgres.url(), "-c", &statement])
            .env("PGOPTIONS", "-c default_transaction_read_only=off")
            .output()?;
        check_success(&psql)
    };
    let file = |name: &str| NewFile {
        id: format!("file-{name}"),
        owner: "o".to_owned(),
        name: name.to_owned(),
    };
    change("on")?;
    // The connections of this store open in a database that takes no writes, and stay so.
    let late = Store::open_existing(&postgres.url()).await?;
    let refused = FileSink::begin(&late, &file("refused"), &Limits::default()).await;
    ensure!(refused.is_err(), "a read-only database took a file");
    change("off")?;
    for store in [&late, &store] {
        let name = format!("taken-{}", store.now());
        FileSink::begin(store, &file(&name), &Limits::default()).await?;
    }
    ensure!(
        late.file("o", "file-\0").await?.is_none(),
        "a file has a NUL in its name"
    );
    ensure!(
        late.batch(None, "batch_\0").await?.is_none(),
        "a batch has a NUL in its name"
    );
    Ok(())
}

/// Needs a package index. Without one, the test is skipped, except in CI, where it fails.
#[tokio::test(flavor = "multi_thread")]
async fn the_openai_python_package_runs_batches() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start("batch-python").await?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = match python_with_openai(stack.directory(), &here.join("requirements.txt")) {
        Ok(python) => python,
        Err(error) if env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: the openai package cannot be installed here: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let keys = stack.directory().join("keys");
    fs::write(&keys, "# clients\nteam-a sk-test\nteam-b sk-test-other\n")?;
    let listen = port::reserve()?;
    let api = listen.address().to_string();
    let database = stack
        .directory()
        .join("queue.db")
        .to_string_lossy()
        .into_owned();
    let keys = keys.to_string_lossy();
    let arguments = ["serve", "--listen", &api, "--keys-file", &keys];
    let _server = BatchCommand::sending(&stack, "batch-serve", &database, &arguments).start()?;
    ApiClient(format!("http://{api}"))
        .wait_until_ready()
        .await?;
    let (lines, _) = size()?;
    let script = Command::new(python)
        .arg(here.join("openai_batch.py"))
        .args([
            &format!("http://{api}/v1"),
            "sk-test",
            MODEL,
            &lines.to_string(),
        ])
        .output()?;
    check_success(&script)?;
    println!("{}", String::from_utf8_lossy(&script.stdout));
    Ok(())
}

/// A client of the batch API.
pub(super) struct ApiClient(pub(super) String);

impl ApiClient {
    pub(super) async fn wait_until_ready(&self) -> anyhow::Result<()> {
        let url = format!("{}/healthz", self.0);
        wait_for(WAIT_MAX, "the batch API", || async {
            Ok(reqwest::get(&url).await.ok())
        })
        .await
        .map(|_| ())
    }

    pub(super) async fn upload(&self, content: &str) -> anyhow::Result<String> {
        let boundary = "boundary-of-the-test";
        let body = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
             --{boundary}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"input.jsonl\"\r\n\r\n\
             {content}\r\n--{boundary}--\r\n"
        );
        let request = reqwest::Client::new().post(format!("{}/v1/files", self.0));
        let kind = format!("multipart/form-data; boundary={boundary}");
        let file: Value = request
            .header("content-type", kind)
            .body(body)
            .send()
            .await?
            .json()
            .await?;
        Ok(file["id"]
            .as_str()
            .with_context(|| file.to_string())?
            .to_owned())
    }

    pub(super) async fn create(&self, file: &str) -> anyhow::Result<String> {
        let body = json!({ "input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h" });
        let request = reqwest::Client::new()
            .post(format!("{}/v1/batches", self.0))
            .json(&body);
        let batch: Value = request.send().await?.json().await?;
        Ok(batch["id"]
            .as_str()
            .with_context(|| batch.to_string())?
            .to_owned())
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.text(path).await?)?)
    }

    async fn text(&self, path: &str) -> anyhow::Result<String> {
        let response = reqwest::get(format!("{}{path}", self.0)).await?;
        Ok(response.error_for_status()?.text().await?)
    }
}
