//! Random schedules of several workers against a naive model: leases exclude, the first result wins, counters agree.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sqlx::AssertSqlSafe;

use super::*;
use crate::completion_window::CompletionWindow;
use crate::endpoint::Endpoint;
use crate::limits::Limits;
use crate::pace::{Priority, UnixMs};

const LINES: i64 = 12;
/// A lease that outlives the test.
const LONG_MS: i64 = 3_600_000;
/// A lease that has ended at once.
const ENDED_MS: i64 = -1;

async fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("queue.db");
    let store = Store::open(file.to_str().unwrap()).await.unwrap();
    (folder, store)
}

/// Makes a batch of [`LINES`] lines that is in progress.
async fn batch(store: &Store, id: &str) -> NewBatch {
    let file = NewFile {
        id: format!("file-{id}"),
        owner: "o".to_owned(),
        name: "n".to_owned(),
    };
    let mut sink = FileSink::begin(store, &file, &Limits::default())
        .await
        .unwrap();
    for number in 1..=LINES {
        sink.write(format!("line {number}\n").as_bytes())
            .await
            .unwrap();
    }
    sink.finish(None).await.unwrap();
    let batch = NewBatch {
        id: id.to_owned(),
        owner: "o".to_owned(),
        endpoint: Endpoint::Completions,
        input_file_id: file.id,
        window: CompletionWindow::DAY,
        metadata: None,
        output_ttl_s: None,
        output_path: None,
    };
    store.create_batch(&batch).await.unwrap();
    let lines: Vec<NewRequest> = (1..=LINES)
        .map(|number| NewRequest {
            number,
            custom_id: format!("c{number}"),
        })
        .collect();
    store.add_requests(id, &lines).await.unwrap();
    store.add_requests(id, &lines).await.unwrap(); // a second validation after a crash
    store.start_batch(id, "m", LINES as u64).await.unwrap();
    batch
}

fn claim<'a>(batch: &'a NewBatch, worker: &'a str, lease_ms: i64, count: usize) -> Claim<'a> {
    Claim {
        worker,
        batch: &batch.id,
        input_file: &batch.input_file_id,
        priority: Priority::NonInteractive,
        lease_ms,
        count,
    }
}

#[tokio::test]
async fn random_schedules_agree_with_a_naive_model() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let (_folder, store) = store().await;
        let batch = batch(&store, "batch_1").await;
        // The worker that holds a line by a lease that lasts, and the first result of a line.
        let mut held: BTreeMap<i64, usize> = BTreeMap::new();
        let mut results: BTreeMap<i64, (ResultKind, Vec<u8>)> = BTreeMap::new();
        for step in 0..80 {
            let worker = random.random_range(0..3_usize);
            let name = format!("w{worker}");
            if random.random_bool(0.5) {
                let lease_ms = if random.random_bool(0.5) {
                    LONG_MS
                } else {
                    ENDED_MS
                };
                let count = random.random_range(1..5);
                let lines = store
                    .claim_lines(&claim(&batch, &name, lease_ms, count))
                    .await
                    .unwrap();
                let free: Vec<i64> = (1..=LINES)
                    .filter(|number| !held.contains_key(number) && !results.contains_key(number))
                    .take(count)
                    .collect();
                let claimed: Vec<i64> = lines.iter().map(|line| line.number).collect();
                assert_eq!(claimed, free, "seed {seed}, step {step}");
                for line in lines {
                    assert_eq!(line.content, format!("line {}\n", line.number).into_bytes());
                    if lease_ms == LONG_MS {
                        held.insert(line.number, worker);
                    }
                }
                continue;
            }
            // A result or a retry by any worker, whether its lease lasts or not; written twice, as after a doubtful commit.
            let number = random.random_range(1..=LINES);
            let update = match random.random_range(0..3) {
                0 => LineUpdate::Retry {
                    after_ms: 0,
                    failures: 1,
                    outages: 0,
                },
                kind => {
                    let kind = if kind == 1 {
                        ResultKind::Success
                    } else {
                        ResultKind::Error
                    };
                    LineUpdate::Result {
                        kind,
                        text: format!("{worker} {step}\n").into_bytes(),
                    }
                }
            };
            let updates = [((batch.id.clone(), number), update.clone())];
            store.write_updates(&name, &updates).await.unwrap();
            store.write_updates(&name, &updates).await.unwrap();
            match update {
                LineUpdate::Retry { .. } if held.get(&number) == Some(&worker) => {
                    held.remove(&number);
                }
                LineUpdate::Retry { .. } => {}
                LineUpdate::Result { kind, text } => {
                    held.remove(&number);
                    results.entry(number).or_insert((kind, text));
                }
            }
        }
        check(&store, &batch, &results).await;
    }
}

/// Ends the batch, and compares its files and counters with the model.
async fn check(store: &Store, batch: &NewBatch, results: &BTreeMap<i64, (ResultKind, Vec<u8>)>) {
    let row = store.batch(None, &batch.id).await.unwrap().unwrap();
    let of_kind = |kind| results.values().filter(move |(result, _)| *result == kind);
    assert_eq!(row.completed, of_kind(ResultKind::Success).count() as u64);
    assert_eq!(row.failed, of_kind(ResultKind::Error).count() as u64);
    assert!(!store.finish_batch(&row).await.unwrap() || results.len() as i64 == LINES);
    let missing = (1..=LINES).filter(|number| !results.contains_key(number));
    let rest: Vec<(LineKey, LineUpdate)> = missing
        .map(|number| {
            let (kind, text) = (ResultKind::Error, b"rest\n".to_vec());
            (
                (batch.id.clone(), number),
                LineUpdate::Result { kind, text },
            )
        })
        .collect();
    store.write_updates("steward", &rest).await.unwrap();
    let row = store.batch(None, &batch.id).await.unwrap().unwrap();
    store.begin_finish(&row).await.unwrap();
    let row = store.batch(None, &batch.id).await.unwrap().unwrap();
    assert_eq!(row.status, BatchStatus::Finalizing);
    assert!(store.finish_batch(&row).await.unwrap());
    assert!(
        !store.finish_batch(&row).await.unwrap(),
        "a batch ended twice"
    );
    let row = store.batch(None, &batch.id).await.unwrap().unwrap();
    assert_eq!(row.status, BatchStatus::Completed);
    let mut output = Vec::new();
    if let Some(file) = &row.output_file_id {
        let file = store.file("o", file).await.unwrap().unwrap();
        output = store.file_lines(&file, 0, 100).await.unwrap();
    }
    let expected: Vec<(i64, Vec<u8>)> = results
        .iter()
        .filter(|(_, (kind, _))| *kind == ResultKind::Success)
        .map(|(number, (_, text))| (*number, text.clone()))
        .collect();
    assert_eq!(output, expected);
    assert_eq!(row.completed + row.failed, LINES as u64);
}

#[tokio::test]
async fn renewals_extend_only_leases_that_the_worker_holds() {
    let (_folder, store) = store().await;
    let batch = batch(&store, "batch_1").await;
    store
        .claim_lines(&claim(&batch, "a", ENDED_MS, 1))
        .await
        .unwrap();
    let lines = store
        .claim_lines(&claim(&batch, "b", LONG_MS, 1))
        .await
        .unwrap();
    assert_eq!(lines[0].number, 1);
    let keys = [(batch.id.clone(), 1), (batch.id.clone(), 2)].into();
    // Worker `a` has lost its line, and must not take it from `b`.
    store.renew_leases("a", &keys, ENDED_MS).await.unwrap();
    let lines = store
        .claim_lines(&claim(&batch, "c", LONG_MS, 1))
        .await
        .unwrap();
    assert_eq!(lines[0].number, 2);
    store.renew_leases("b", &keys, ENDED_MS).await.unwrap();
    let lines = store
        .claim_lines(&claim(&batch, "c", LONG_MS, 1))
        .await
        .unwrap();
    assert_eq!(lines[0].number, 1);
}

#[tokio::test]
async fn old_state_goes_and_files_in_use_stay() {
    let (_folder, store) = store().await;
    let batch = batch(&store, "batch_1").await;
    assert!(store.is_in_use(&batch.input_file_id).await.unwrap());
    assert_eq!(store.remove_old_batches(UnixMs::MAX, 10).await.unwrap(), 0);
    assert!(store.cancel_batch(&batch.id).await.unwrap());
    let row = store.batch(Some("o"), &batch.id).await.unwrap().unwrap();
    assert!(
        !store.finish_batch(&row).await.unwrap(),
        "lines have no result yet"
    );
    let lines = store.unfinished_lines(&batch.id, 100).await.unwrap();
    let updates: Vec<(LineKey, LineUpdate)> = lines
        .into_iter()
        .map(|line| {
            let (kind, text) = (ResultKind::Unfinished, b"cancelled\n".to_vec());
            (
                (batch.id.clone(), line.number),
                LineUpdate::Result { kind, text },
            )
        })
        .collect();
    store.write_updates("steward", &updates).await.unwrap();
    assert!(store.finish_batch(&row).await.unwrap());
    assert!(!store.is_in_use(&batch.input_file_id).await.unwrap());
    assert_eq!(store.remove_old_batches(0, 10).await.unwrap(), 0);
    assert_eq!(store.remove_old_batches(UnixMs::MAX, 10).await.unwrap(), 1);
    assert_eq!(store.batch(None, &batch.id).await.unwrap(), None);
    let newest = (FileOrder::NewestFirst, None);
    let files = store.files("o", None, newest, 10).await.unwrap();
    assert_eq!(files.len(), 1, "{files:?}");
    store.delete_file(&batch.input_file_id).await.unwrap();
    assert_eq!(
        store.storage_used("o").await.unwrap(),
        StorageUse::default()
    );
}

#[tokio::test]
async fn workers_add_up_their_spare_capacity() {
    let (_folder, store) = store().await;
    let none = store.report_spare_rate("a", "m", None).await.unwrap();
    assert_eq!((none.per_s, none.workers), (None, 1));
    store.report_spare_rate("b", "m", Some(1.5)).await.unwrap();
    store
        .report_spare_rate("b", "other", Some(9.0))
        .await
        .unwrap();
    let sum = store.report_spare_rate("a", "m", Some(2.25)).await.unwrap();
    assert_eq!((sum.per_s, sum.workers), (Some(3.75), 2));
}

/// Sets the size of SQLite's file, in pages, for every connection of a store.
async fn limit_pages(store: &Store, pages: &str) {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        connections.push(store.pool.acquire().await.unwrap());
    }
    for connection in &mut connections {
        let statement = format!("PRAGMA max_page_count = {pages}");
        connection.execute(AssertSqlSafe(statement)).await.unwrap();
    }
}

#[tokio::test]
async fn a_disk_that_was_full_breaks_no_connection() {
    let (_folder, store) = store().await;
    let batch = batch(&store, "batch_1").await;
    let result = |number: i64| {
        let (kind, text) = (ResultKind::Success, vec![b'x'; 1 << 20]);
        let key = (batch.id.clone(), number);
        [(key, LineUpdate::Result { kind, text })]
    };
    limit_pages(&store, "1").await; // no more than there are
    for number in 1..=i64::from(CONNECTIONS_MAX) {
        let error = store.write_updates("w", &result(number)).await.unwrap_err();
        store.note(&error);
    }
    assert_eq!(store.problem(), Some(DatabaseProblem::NoWrites));
    limit_pages(&store, "1000000").await;
    for number in 1..=LINES {
        store.write_updates("w", &result(number)).await.unwrap();
    }
    let row = store.batch(None, &batch.id).await.unwrap().unwrap();
    assert_eq!(row.completed, LINES as u64);
}

/// Makes batches of an owner that are to be validated.
async fn create_batches(store: &Store, owner: &str, count: usize) {
    for number in 0..count {
        let batch = NewBatch {
            id: format!("batch_{owner}{number}"),
            owner: owner.to_owned(),
            endpoint: Endpoint::Completions,
            input_file_id: "file-1".to_owned(),
            window: CompletionWindow::DAY,
            metadata: None,
            output_ttl_s: None,
            output_path: None,
        };
        store.create_batch(&batch).await.unwrap();
    }
}

#[tokio::test]
async fn owners_take_turns_in_validation() {
    let (_folder, store) = store().await;
    for (owner, count) in [("b", 6), ("a", 2), ("c", 1)] {
        create_batches(&store, owner, count).await;
    }
    let mut last_owner = String::new();
    let mut owners = Vec::new();
    loop {
        let turn = StewardTurn {
            name: "steward",
            last_owner: &last_owner,
        };
        let task = store.claim_steward_task(&turn, None, 30_000).await.unwrap();
        let Some(task) = task else { break };
        store.fail_batch(&task.batch().id, "{}").await.unwrap();
        last_owner.clone_from(&task.batch().owner);
        owners.push(last_owner.clone());
    }
    assert_eq!(owners.concat(), "abcabbbbb");
}

#[tokio::test]
async fn no_batch_of_an_owner_hides_those_of_another() {
    let (_folder, store) = store().await;
    for (owner, count) in [("a", 5), ("b", 2)] {
        create_batches(&store, owner, count).await;
        for number in 0..count {
            let id = format!("batch_{owner}{number}");
            store.start_batch(&id, "m", 1).await.unwrap();
        }
    }
    let active = store.active_batches(4).await.unwrap();
    let owners: String = active.into_iter().map(|batch| batch.owner).collect();
    assert_eq!(owners, "abab");
}

#[tokio::test]
async fn a_time_further_ahead_than_any_pause_counts_as_past() {
    let (_folder, store) = store().await;
    let batch = batch(&store, "batch_1").await;
    for (ahead_ms, claimed) in [
        (3_600_000, 0),
        (3 * 3_600_000, LINES),
        (i64::MAX / 2, LINES),
    ] {
        let update = "UPDATE isotherm_requests SET ready_at = $1";
        let update = sqlx::query(update).bind(store.now().saturating_add(ahead_ms));
        update.execute(&store.pool).await.unwrap();
        let claim = claim(&batch, "w", 1, 100);
        let lines = store.claim_lines(&claim).await.unwrap();
        assert_eq!(lines.len() as i64, claimed, "{ahead_ms}");
    }
    let update = "UPDATE isotherm_batches SET steward_until = $1, status = 'finalizing'";
    let update = sqlx::query(update).bind(store.now() + 31 * 24 * 3_600_000);
    update.execute(&store.pool).await.unwrap();
    let turn = StewardTurn {
        name: "steward",
        last_owner: "",
    };
    let task = store.claim_steward_task(&turn, None, 30_000).await.unwrap();
    assert!(task.is_some());
}

#[tokio::test]
async fn no_batch_expires_while_the_time_is_in_doubt() {
    let (_folder, store) = store().await;
    let batch = batch(&store, "batch_1").await;
    let update = sqlx::query("UPDATE isotherm_batches SET expires_at = 1");
    update.execute(&store.pool).await.unwrap();
    let turn = StewardTurn {
        name: "steward",
        last_owner: "",
    };
    let task = store.claim_steward_task(&turn, None, 30_000).await.unwrap();
    assert_eq!(task, None);
    store.look_at_clock().await.unwrap();
    let task = store.claim_steward_task(&turn, None, 30_000).await.unwrap();
    assert_eq!(task.unwrap().batch().id, batch.id);
}

#[tokio::test]
async fn lines_and_results_of_a_batch_count_as_storage_until_they_are_deleted() {
    let (_folder, store) = store().await;
    let used = || async { store.storage_used("o").await.unwrap().bytes.owner };
    let batch = batch(&store, "batch_1").await;
    let with_rows = used().await;
    assert!(with_rows >= LINES as u64 * ROW_BYTES, "{with_rows}");
    let updates: Vec<(LineKey, LineUpdate)> = (1..=LINES)
        .map(|number| {
            let (kind, text) = (ResultKind::Success, vec![b'x'; 1_000]);
            (
                (batch.id.clone(), number),
                LineUpdate::Result { kind, text },
            )
        })
        .collect();
    for _ in 0..2 {
        store.write_updates("w", &updates).await.unwrap();
        assert_eq!(used().await, with_rows + LINES as u64 * 1_000);
    }
    let row = store.batch(None, &batch.id).await.unwrap().unwrap();
    store.begin_finish(&row).await.unwrap();
    let row = store.batch(None, &batch.id).await.unwrap().unwrap();
    assert!(store.finish_batch(&row).await.unwrap());
    assert_eq!(used().await, with_rows + LINES as u64 * 1_000);
    let row = store.batch(None, &batch.id).await.unwrap().unwrap();
    store
        .delete_file(&row.output_file_id.unwrap())
        .await
        .unwrap();
    assert_eq!(used().await, with_rows);
}

#[tokio::test]
async fn damage_of_a_page_is_a_problem_that_stays() {
    let (folder, store) = store().await;
    for number in 0..20 {
        let id = format!("batch_{number}");
        batch(&store, &id).await;
    }
    store
        .pool
        .execute("PRAGMA wal_checkpoint(TRUNCATE)")
        .await
        .unwrap();
    let path = folder.path().join("queue.db");
    let mut content = std::fs::read(&path).unwrap();
    content[4_096 * 2..].fill(0xa5);
    std::fs::write(&path, content).unwrap();
    let store = Store::open(path.to_str().unwrap()).await.unwrap();
    assert_eq!(store.problem(), None);
    let error = store.unfinished_lines("batch_7", 10).await.unwrap_err();
    store.note(&error);
    assert_eq!(store.problem(), Some(DatabaseProblem::Damaged), "{error}");
}

#[tokio::test]
async fn reading_a_queue_that_is_not_there_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.db");
    let empty = folder.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    for path in [&missing, &empty] {
        let error = Store::open_existing(path.to_str().unwrap())
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("no queue") && text.contains("--database"),
            "{text}"
        );
    }
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["empty.db"]);
    assert_eq!(std::fs::metadata(&empty).unwrap().len(), 0);
    Store::open(missing.to_str().unwrap())
        .await
        .unwrap()
        .close()
        .await;
    Store::open_existing(missing.to_str().unwrap())
        .await
        .unwrap();
}
