//! Databases of other versions: an older one is brought forward, and a worker beside a newer one stops.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed assertion fails the test"
)]

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use isotherm_batch::limits::Limits;
use isotherm_batch::store::{BatchStatus, Store, StoreError};
use isotherm_batch::worker;
use sqlx::{AnyConnection, Connection as _, Executor as _, Row as _};
use support::{Behaviour, FakeGateway, line, lines, submit, wait_for_end, worker_config};
use tokio_util::sync::CancellationToken;

/// Size of a row that the queue counts.
const ROW_BYTES: u64 = 256;

struct Database {
    folder: tempfile::TempDir,
}

impl Database {
    fn new() -> Self {
        sqlx::any::install_default_drivers();
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> String {
        self.folder.path().join("queue.db").display().to_string()
    }

    async fn open(&self) -> Store {
        Store::open(&self.path()).await.unwrap()
    }

    /// Runs statements as another program does.
    async fn run(&self, sql: &'static str) {
        let mut connection = self.connect().await;
        connection
            .execute("PRAGMA busy_timeout = 30000")
            .await
            .unwrap();
        connection.execute(sql).await.unwrap();
        connection.close().await.unwrap();
    }

    async fn connect(&self) -> AnyConnection {
        let url = format!("sqlite:{}?mode=rwc", self.path());
        AnyConnection::connect(&url).await.unwrap()
    }

    /// Number of requests with a result, and without.
    async fn results(&self) -> (i64, i64) {
        let select = "SELECT COUNT(done_at) AS done, COUNT(*) - COUNT(done_at) AS open FROM isotherm_requests";
        let row = self.connect().await.fetch_one(select).await.unwrap();
        (row.get("done"), row.get("open"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_version_1_ends_with_one_result_for_each_request() {
    let database = Database::new();
    database.run(include_str!("data/version-1.sql")).await;
    let refused = Store::open_existing(&database.path()).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Older { stored: 1, .. }),
        "{refused}"
    );
    let store = database.open().await;
    let used = store.storage_used("o").await.unwrap();
    let rows = 12 * (ROW_BYTES + 2) + 4 * 19;
    assert_eq!(used.bytes.owner, 612 + rows);
    let gateway = FakeGateway::start(1, Behaviour::GOOD).await;
    let config = worker_config(gateway.address, Limits::default());
    let stop = CancellationToken::new();
    let working = tokio::spawn(worker::run(store.clone(), config, stop.clone()));
    for (id, status, successes, errors) in [
        ("batch_validating", BatchStatus::Completed, 6, 0),
        ("batch_in_progress", BatchStatus::Completed, 5, 1),
        ("batch_finalizing", BatchStatus::Expired, 1, 1),
        ("batch_cancelling", BatchStatus::Cancelled, 0, 2),
        ("batch_completed", BatchStatus::Completed, 1, 0),
        ("batch_failed", BatchStatus::Failed, 0, 0),
    ] {
        let batch = wait_for_end(&store, id).await;
        assert_eq!(
            (batch.status, batch.completed, batch.failed),
            (status, successes, errors),
            "{id}"
        );
        let output = lines(&store, batch.output_file_id.as_deref()).await;
        let failed = lines(&store, batch.error_file_id.as_deref()).await;
        assert_eq!(
            (output.len() as u64, failed.len() as u64),
            (successes, errors),
            "{id}"
        );
        let ids = output.iter().chain(&failed);
        let mut ids: Vec<&str> = ids
            .map(|line| line["custom_id"].as_str().unwrap())
            .collect();
        ids.sort_unstable();
        let expected: Vec<String> = (1..=ids.len()).map(|number| format!("c{number}")).collect();
        assert_eq!(ids, expected, "{id}");
    }
    // What had a result before keeps it, and is not sent again.
    let served = gateway.served();
    assert_eq!(served.len(), 10, "{served:?}");
    stop.cancel();
    working.await.unwrap().unwrap();
    assert_eq!(database.results().await, (17, 0));
}

/// Statements of a newer program.
const NEWER: &str = "BEGIN IMMEDIATE; ALTER TABLE isotherm_requests ADD COLUMN region TEXT;
    UPDATE isotherm_schema SET version = version + 1; COMMIT";
/// The way back, so that this program can count.
const BACK: &str = "BEGIN IMMEDIATE; ALTER TABLE isotherm_requests DROP COLUMN region;
    UPDATE isotherm_schema SET version = version - 1; COMMIT";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_beside_a_newer_database_stops_and_loses_nothing() {
    let database = Database::new();
    let store = database.open().await;
    let input: String = (0..400).map(line).collect();
    let batch = submit(&store, &input, "24h").await;
    let gateway = FakeGateway::start(1, Behaviour::BAD).await;
    let config = worker_config(gateway.address, Limits::default());
    let work = |store: &Store| {
        let stop = CancellationToken::new();
        tokio::spawn(worker::run(store.clone(), config.clone(), stop))
    };
    let working = work(&store);
    while database.results().await.0 < 50 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    database.run(NEWER).await;
    let before = database.results().await;
    assert!(before.1 > 0, "the batch ended before the migration");
    let ended = working.await.unwrap().unwrap_err();
    let text = ended.to_string();
    assert!(
        text.contains("newer program") && text.contains("version 3"),
        "{text}"
    );
    assert_eq!(
        database.results().await,
        before,
        "written after the migration"
    );
    for refused in [
        Store::open(&database.path()).await.unwrap_err(),
        Store::open_existing(&database.path()).await.unwrap_err(),
        store.mark_delivered(&batch).await.unwrap_err(),
    ] {
        assert_eq!(refused.to_string(), text);
    }
    database.run(BACK).await;
    let store = database.open().await;
    let working = work(&store);
    let batch = wait_for_end(&store, &batch).await;
    working.abort();
    assert_eq!((batch.status, batch.total), (BatchStatus::Completed, 400));
    assert_eq!(batch.completed + batch.failed, 400);
    let mut ids = std::collections::BTreeSet::new();
    for file in [&batch.output_file_id, &batch.error_file_id] {
        for line in lines(&store, file.as_deref()).await {
            assert!(
                ids.insert(line["custom_id"].to_string()),
                "two results: {line}"
            );
        }
    }
    assert_eq!(ids.len(), 400);
}
