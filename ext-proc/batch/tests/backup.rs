//! A copy of SQLite's database under load: restored, every request ends exactly once.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed assertion fails the test"
)]

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use isotherm_batch::limits::Limits;
use isotherm_batch::store::{BatchRow, BatchStatus, Store};
use isotherm_batch::worker;
use support::{Behaviour, FakeGateway, line, lines, submit, wait_for_end, worker_config};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const LINES: u64 = 400;

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_under_load_ends_every_request_exactly_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [database, copy] = ["queue.db", "copy.db"].map(path);
    let store = Store::open(&database).await.unwrap();
    let input: String = (0..LINES as usize).map(line).collect();
    let batch = submit(&store, &input, "24h").await;
    let behaviour = Behaviour {
        time_ms_max: 20,
        ..Behaviour::GOOD
    };
    let gateway = FakeGateway::start(1, behaviour).await;
    let config = worker_config(gateway.address, Limits::default());
    let work = |store: &Store| {
        let (config, stop) = (config.clone(), CancellationToken::new());
        tokio::spawn(worker::run(store.clone(), config, stop))
    };
    let working = work(&store);
    while store.census().await.unwrap().succeeded < 50 {
        sleep(Duration::from_millis(5)).await;
    }
    store.back_up(&copy).await.unwrap();
    let again = store.back_up(&copy).await.unwrap_err();
    assert!(again.to_string().contains("already exists"), "{again}");
    let restored = Store::open(&copy).await.unwrap();
    let census = restored.census().await.unwrap();
    assert!(census.succeeded >= 50 && census.waiting > 0, "{census:?}");
    assert_eq!(census.succeeded + census.failed + census.waiting, LINES);
    check(&store, &wait_for_end(&store, &batch).await).await;
    working.abort();
    let working = work(&restored);
    check(&restored, &wait_for_end(&restored, &batch).await).await;
    working.abort();
}

/// Checks that each request has one result.
async fn check(store: &Store, batch: &BatchRow) {
    assert_eq!(batch.status, BatchStatus::Completed);
    assert_eq!(batch.completed + batch.failed, LINES);
    let mut ids = BTreeSet::new();
    for file in [&batch.output_file_id, &batch.error_file_id] {
        for line in lines(store, file.as_deref()).await {
            let id = line["custom_id"].to_string();
            assert!(ids.insert(id), "two results: {line}");
        }
    }
    assert_eq!(ids.len() as u64, LINES);
}
