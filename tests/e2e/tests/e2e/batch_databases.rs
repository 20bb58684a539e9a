//! The batch queue in PostgreSQL: migrations, and a copy under load. `isotherm-batch` tests SQLite's.

use std::process::Command;

use anyhow::{Context as _, ensure};
use isotherm_batch::store::{Store, StoreError};
use isotherm_e2e::{WAIT_MAX, permit};
use isotherm_harness::process::Process;
use isotherm_harness::{EngineOptions, Pool, Postgres, Stack, port, wait_for};

use super::batch::{ApiClient, BatchCommand, input, wait_for_results};
use super::openai::check_success;

/// A queue of version 1, with batches and requests in each state, for the model `m`.
const VERSION_1: &str = include_str!("../../../../ext-proc/batch/tests/data/version-1.sql");
/// Statements of a newer program. It waits for the writes of workers, as a migration does.
const NEWER: &str = "BEGIN; SELECT pg_advisory_xact_lock(7598539542062527085);
    ALTER TABLE isotherm_requests ADD COLUMN region TEXT; UPDATE isotherm_schema SET version = 3;
    CREATE TABLE before AS SELECT COUNT(done_at) AS done FROM isotherm_requests; COMMIT";
/// The way back, so that this program can go on.
const BACK: &str =
    "ALTER TABLE isotherm_requests DROP COLUMN region; UPDATE isotherm_schema SET version = 2";
const LINES: usize = 400;

struct Fixture {
    postgres: Postgres,
    stack: Stack,
}

impl Fixture {
    /// Starts a database, and a stack with the model `m`; `None` where PostgreSQL is not installed.
    async fn start(name: &str) -> anyhow::Result<Option<Self>> {
        let Some(postgres) = Postgres::start(name).await? else {
            eprintln!("SKIPPED: PostgreSQL is not installed (Debian: postgresql)");
            return Ok(None);
        };
        let options = EngineOptions {
            speed: 40.0,
            ..EngineOptions::default()
        };
        let pool = Pool::new("m").replicas(2).engine(options);
        let stack = Stack::builder(name).pool(pool).start().await?;
        Ok(Some(Self { postgres, stack }))
    }

    /// Runs statements in a database, and returns their output.
    fn run(&self, url: &str, sql: &str) -> anyhow::Result<String> {
        let psql = Command::new("psql")
            .args([url, "--tuples-only", "--no-align", "--quiet"])
            .args(["--set", "ON_ERROR_STOP=1", "--command", sql])
            .output()?;
        check_success(&psql)?;
        Ok(String::from_utf8(psql.stdout)?)
    }

    /// The results of a batch that are errors.
    fn errors(&self, url: &str, batch: &str) -> anyhow::Result<String> {
        let results =
            "SELECT convert_from(result, 'UTF8') FROM isotherm_requests WHERE is_success = 0";
        self.run(url, &format!("{results} AND batch_id = '{batch}'"))
    }

    fn work(&self, name: &str, url: &str) -> anyhow::Result<Process> {
        BatchCommand::sending(&self.stack, name, url, &["work"]).start()
    }

    /// Submits a batch by the API of a process that then ends.
    async fn submit(&self) -> anyhow::Result<String> {
        let listen = port::reserve()?;
        let api = listen.address().to_string();
        let arguments = ["serve", "--listen", &api];
        let mut serve =
            BatchCommand::sending(&self.stack, "batch-serve", &self.postgres.url(), &arguments);
        let mut process = serve.start()?;
        let client = ApiClient(format!("http://{api}"));
        client.wait_until_ready().await?;
        let lines = input(LINES).replace(isotherm_e2e::MODEL, "m");
        let batch = client.create(&client.upload(&lines).await?).await?;
        process.kill()?;
        Ok(batch)
    }

    /// Checks that every request has one result, and that the batches count them.
    fn check(&self, url: &str) -> anyhow::Result<()> {
        let open = "SELECT COUNT(*) FROM isotherm_requests WHERE done_at IS NULL OR result IS NULL";
        ensure!(self.run(url, open)?.trim() == "0");
        let wrong =
            "SELECT id FROM isotherm_batches AS batch WHERE total <> completed + failed OR total <>
            (SELECT COUNT(*) FROM isotherm_requests WHERE batch_id = batch.id)";
        let wrong = self.run(url, wrong)?;
        ensure!(wrong.is_empty(), "{wrong}");
        Ok(())
    }
}

async fn wait_for_end(store: &Store, id: &str) -> anyhow::Result<(u64, u64)> {
    let ended = wait_for(WAIT_MAX, "the batch to end", || async {
        let batch = store.batch(None, id).await?.context("no batch")?;
        Ok(batch.status.is_final().then_some(batch))
    });
    let batch = ended.await.with_context(|| id.to_owned())?;
    Ok((batch.completed, batch.failed))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgresql_of_version_1_is_migrated_and_a_worker_beside_a_newer_one_stops()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let Some(fixture) = Fixture::start("batch-migration").await? else {
        return Ok(());
    };
    let url = fixture.postgres.url();
    fixture.run(&url, &VERSION_1.replace("BLOB", "BYTEA"))?;
    let refused = Store::open_existing(&url).await;
    ensure!(
        matches!(refused, Err(StoreError::Older { stored: 1, .. })),
        "{refused:?}"
    );
    let mut workers = [
        fixture.work("batch-work-1", &url)?,
        fixture.work("batch-work-2", &url)?,
    ];
    let store = Store::open(&url).await?;
    for (id, results) in [
        ("batch_validating", (6, 0)),
        ("batch_in_progress", (5, 1)),
        ("batch_finalizing", (1, 1)),
        ("batch_cancelling", (0, 2)),
        ("batch_completed", (1, 0)),
    ] {
        let ended = wait_for_end(&store, id).await?;
        if ended != results {
            eprintln!("{id}: {ended:?}: {:?}", fixture.errors(&url, id));
        }
        // Each request has one result. The gateway, which is no part of the migration, may refuse one.
        ensure!(
            ended.0 + ended.1 == results.0 + results.1,
            "{id}: {ended:?}"
        );
    }
    fixture.check(&url)?;
    let batch = fixture.submit().await?;
    wait_for_results(&store, 40).await?;
    fixture.run(&url, NEWER)?;
    for worker in &mut workers {
        let error = worker.wait_until_ended(WAIT_MAX).await.unwrap_err();
        let text = format!("{error:#}");
        ensure!(text.contains("a newer program has migrated"), "{text}");
    }
    let written = "SELECT COUNT(done_at) - (SELECT done FROM before) FROM isotherm_requests";
    let written = fixture.run(&url, written)?;
    ensure!(written.trim() == "0", "{written} after the migration");
    fixture.run(&url, BACK)?;
    let _worker = fixture.work("batch-work-3", &url)?;
    let store = Store::open(&url).await?;
    let ended = wait_for_end(&store, &batch).await?;
    ensure!(ended == (LINES as u64, 0), "{ended:?}");
    fixture.check(&url)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_postgresql_under_load_ends_every_request_exactly_once() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let Some(fixture) = Fixture::start("batch-copy").await? else {
        return Ok(());
    };
    let url = fixture.postgres.url();
    let batch = fixture.submit().await?;
    let mut worker = fixture.work("batch-work", &url)?;
    let store = Store::open_existing(&url).await?;
    wait_for_results(&store, 40).await?;
    let copy = fixture.stack.directory().join("batch.dump");
    let dump = Command::new("pg_dump")
        .args(["--dbname", &url, "--format", "custom"])
        .args(["--table", "isotherm_*", "--file"])
        .arg(&copy)
        .output()?;
    check_success(&dump)?;
    fixture.run(&url, "CREATE DATABASE restored")?;
    let restored = url.replace("/postgres", "/restored");
    let restore = Command::new("pg_restore")
        .args(["--dbname", &restored, "--clean", "--if-exists"])
        .arg("--single-transaction")
        .arg(&copy)
        .output()?;
    check_success(&restore)?;
    let open = "SELECT COUNT(*) FROM isotherm_requests WHERE done_at IS NULL";
    ensure!(
        fixture.run(&restored, open)?.trim() != "0",
        "the copy has every result already"
    );
    wait_for_end(&store, &batch).await?;
    fixture.check(&url)?;
    worker.kill()?;
    let _worker = fixture.work("batch-restored", &restored)?;
    let store = Store::open_existing(&restored).await?;
    let ended = wait_for_end(&store, &batch).await?;
    ensure!(ended == (LINES as u64, 0), "{ended:?}");
    fixture.check(&restored)
}
