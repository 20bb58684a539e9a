//! Workers on a SQLite file, with a fake gateway: every line gets exactly one result, whatever fails.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed assertion fails the test"
)]

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use isotherm_batch::limits::Limits;
use isotherm_batch::store::{BatchStatus, Store};
use isotherm_batch::worker;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use support::{Behaviour, FakeGateway, line, lines, submit, wait_for_end, worker_config};
use tokio_util::sync::CancellationToken;

struct Fixture {
    folder: tempfile::TempDir,
    store: Store,
    gateway: FakeGateway,
}

async fn fixture(behaviour: Behaviour) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    Fixture {
        store: open(&folder).await,
        folder,
        gateway: FakeGateway::start(1, behaviour).await,
    }
}

async fn open(folder: &tempfile::TempDir) -> Store {
    let file = folder.path().join("queue.db");
    Store::open(file.to_str().unwrap()).await.unwrap()
}

impl Fixture {
    /// Runs a worker in the background, until the token is cancelled.
    fn work(&self, limits: Limits) -> CancellationToken {
        let stop = CancellationToken::new();
        let config = worker_config(self.gateway.address, limits);
        tokio::spawn(worker::run(self.store.clone(), config, stop.clone()));
        stop
    }
}

fn custom_ids(lines: &[Value]) -> BTreeSet<String> {
    lines
        .iter()
        .map(|line| line["custom_id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_has_one_result_in_the_order_of_the_input() {
    let fixture = fixture(Behaviour::GOOD).await;
    let input: String = (0..300).map(line).collect();
    let batch = submit(&fixture.store, &input, "24h").await;
    fixture.work(Limits::default());
    let batch = wait_for_end(&fixture.store, &batch).await;
    assert_eq!(batch.status, BatchStatus::Completed);
    assert_eq!((batch.total, batch.completed, batch.failed), (300, 300, 0));
    assert_eq!(batch.error_file_id, None);
    let output = lines(&fixture.store, batch.output_file_id.as_deref()).await;
    for (number, line) in output.iter().enumerate() {
        assert_eq!(line["custom_id"], format!("c{number}"));
        assert_eq!(line["response"]["body"]["echo"], number);
    }
    let served = fixture.gateway.served();
    assert_eq!(served.len(), 300);
    for requests in served.values() {
        assert_eq!(requests.len(), 1, "a line was sent twice");
        assert_eq!(requests[0].tier, "non-interactive");
        assert_eq!(requests[0].deadline_s, batch.expires_at / 1_000);
        assert_eq!(requests[0].authorization, None);
    }
}

/// The database of the process that [`worker_process`] is.
const DATABASE: &str = "ISOTHERM_TEST_DATABASE";
/// The gateway of that process.
const GATEWAY: &str = "ISOTHERM_TEST_GATEWAY";

/// A worker in a process of its own, for tests that kill it.
#[ignore = "the other tests start it"]
#[tokio::test(flavor = "multi_thread")]
async fn worker_process() {
    let [database, gateway] = [DATABASE, GATEWAY].map(|name| std::env::var(name).unwrap());
    let store = Store::open(&database).await.unwrap();
    let config = worker_config(gateway.parse().unwrap(), Limits::default());
    let ended = worker::run(store, config, CancellationToken::new());
    ended.await.unwrap();
}

/// Workers are killed in the middle of whatever they do, while the gateway refuses, fails and breaks.
#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_lose_no_line_and_record_none_twice() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let fixture = fixture(Behaviour::BAD).await;
    let input: String = (0..400).map(line).collect();
    let batch = submit(&fixture.store, &input, "24h").await;
    for _ in 0..6 {
        let mut worker = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker_process", "--ignored"])
            .env(DATABASE, fixture.folder.path().join("queue.db"))
            .env(GATEWAY, fixture.gateway.address.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        tokio::time::sleep(Duration::from_millis(random.random_range(100..1_000))).await;
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    fixture.work(Limits::default());
    let batch = wait_for_end(&fixture.store, &batch).await;
    assert_eq!(batch.status, BatchStatus::Completed);
    let output = lines(&fixture.store, batch.output_file_id.as_deref()).await;
    let errors = lines(&fixture.store, batch.error_file_id.as_deref()).await;
    assert_eq!(output.len() + errors.len(), 400);
    let ids = custom_ids(&output).into_iter().chain(custom_ids(&errors));
    assert_eq!(ids.collect::<BTreeSet<_>>().len(), 400);
    assert_eq!(
        (batch.completed, batch.failed),
        (output.len() as u64, errors.len() as u64)
    );
    for line in &output {
        let number: u64 = line["custom_id"].as_str().unwrap()[1..].parse().unwrap();
        assert_eq!(line["response"]["body"]["echo"], number);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_a_request_go_to_the_error_file() {
    let fixture = fixture(Behaviour::GOOD).await;
    let bad = line(1).replace("\"n\":1", "\"n\":1,\"answer_status\":400");
    let poison = line(2).replace("\"n\":2", "\"n\":2,\"answer_status\":500");
    let input = [
        line(0),
        bad,
        "\n".to_owned(),
        poison,
        line(3).trim_end().to_owned(),
    ]
    .concat();
    let batch = submit(&fixture.store, &input, "24h").await;
    let limits = Limits {
        failures_max: 2,
        outages_max: 2,
        ..Limits::default()
    };
    fixture.work(limits);
    let batch = wait_for_end(&fixture.store, &batch).await;
    assert_eq!((batch.total, batch.completed, batch.failed), (4, 2, 2));
    let errors = lines(&fixture.store, batch.error_file_id.as_deref()).await;
    assert_eq!(errors[0]["response"]["status_code"], 400);
    assert_eq!(errors[0]["response"]["body"]["error"]["message"], "bad");
    assert_eq!(errors[1]["response"]["status_code"], 500);
    assert_eq!(errors[1]["custom_id"], "c2");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_batch_keeps_its_results() {
    let fixture = fixture(Behaviour::GOOD).await;
    let input: String = (0..40).map(line).collect();
    let first = submit(&fixture.store, &input, "24h").await;
    fixture.work(Limits::default());
    wait_for_end(&fixture.store, &first).await;
    fixture.gateway.set(Behaviour {
        is_silent: true,
        ..Behaviour::GOOD
    });
    let batch = submit(&fixture.store, &input, "2s").await;
    let batch = wait_for_end(&fixture.store, &batch).await;
    assert_eq!(batch.status, BatchStatus::Expired);
    assert!(batch.expired_at >= Some(batch.expires_at));
    assert_eq!((batch.total, batch.completed, batch.failed), (40, 0, 40));
    let errors = lines(&fixture.store, batch.error_file_id.as_deref()).await;
    assert_eq!(errors.len(), 40);
    assert!(
        errors
            .iter()
            .all(|line| line["error"]["code"] == "batch_expired")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_batch_keeps_its_results_and_ends() {
    let fixture = fixture(Behaviour {
        time_ms_max: 200,
        ..Behaviour::GOOD
    })
    .await;
    let input: String = (0..500).map(line).collect();
    let batch = submit(&fixture.store, &input, "24h").await;
    fixture.work(Limits::default());
    while fixture.gateway.served().len() < 20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(fixture.store.cancel_batch(&batch).await.unwrap());
    let batch = wait_for_end(&fixture.store, &batch).await;
    assert_eq!(batch.status, BatchStatus::Cancelled);
    assert!(!fixture.store.cancel_batch(&batch.id).await.unwrap());
    let output = lines(&fixture.store, batch.output_file_id.as_deref()).await;
    let errors = lines(&fixture.store, batch.error_file_id.as_deref()).await;
    assert_eq!(output.len() + errors.len(), 500);
    assert_eq!(
        output.len(),
        fixture.gateway.served().len(),
        "a served line has no response"
    );
    assert!(
        errors
            .iter()
            .all(|line| line["error"]["code"] == "batch_cancelled")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_of_an_input_file_fail_the_batch_with_their_lines() {
    let fixture = fixture(Behaviour::GOOD).await;
    fixture.work(Limits::default());
    let other_url = line(3).replace("/v1/completions", "/v1/embeddings");
    let other_model = line(4).replace("\"m\"", "\"other\"");
    let foreign = line(5).replace("/v1/completions", "http://other.example/");
    let input = [
        line(1),
        line(1),
        "{\n".to_owned(),
        other_url,
        other_model,
        foreign,
    ]
    .concat();
    let batch = submit(&fixture.store, &input, "24h").await;
    let batch = wait_for_end(&fixture.store, &batch).await;
    assert_eq!(batch.status, BatchStatus::Failed);
    let errors: Value = serde_json::from_str(&batch.errors.unwrap()).unwrap();
    let found: Vec<_> = errors["data"].as_array().unwrap().iter().collect();
    let found: Vec<_> = found
        .iter()
        .map(|error| {
            (
                error["line"].as_u64().unwrap(),
                error["code"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        (2, "duplicate_custom_id"),
        (3, "invalid_json_line"),
        (4, "mismatched_url"),
        (5, "mismatched_model"),
        (6, "invalid_url"),
    ];
    assert_eq!(found, expected);
    let empty = submit(&fixture.store, "\n\n", "24h").await;
    let empty = wait_for_end(&fixture.store, &empty).await;
    assert!(empty.errors.unwrap().contains("empty_file"));
    assert_eq!(fixture.gateway.served().len(), 0);
}

/// A gateway that is down for a while costs no line, although every attempt fails.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_costs_no_line() {
    let fixture = fixture(Behaviour {
        failed: 1.0,
        ..Behaviour::GOOD
    })
    .await;
    let input: String = (0..30).map(line).collect();
    let batch = submit(&fixture.store, &input, "24h").await;
    fixture.work(Limits {
        failures_max: 2,
        ..Limits::default()
    });
    tokio::time::sleep(Duration::from_secs(4)).await;
    fixture.gateway.set(Behaviour::GOOD);
    let batch = wait_for_end(&fixture.store, &batch).await;
    assert_eq!(
        (batch.status, batch.completed),
        (BatchStatus::Completed, 30)
    );
}

/// A short window is no way to the front: no line is promoted before an age.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_window_promotes_no_line() {
    let fixture = fixture(Behaviour::GOOD).await;
    let input: String = (0..20).map(line).collect();
    let batch = submit(&fixture.store, &input, "60s").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.work(Limits::default());
    let batch = wait_for_end(&fixture.store, &batch).await;
    assert_eq!(
        (batch.status, batch.completed),
        (BatchStatus::Completed, 20)
    );
    for requests in fixture.gateway.served().values() {
        assert_eq!(requests[0].tier, "non-interactive");
        // The gate would promote a request with a near deadline.
        assert!(requests[0].deadline_s * 1_000 > batch.expires_at + 10 * 60_000);
    }
}

/// A worker that stops gives its lines back at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_gives_its_lines_back() {
    let fixture = fixture(Behaviour {
        is_silent: true,
        ..Behaviour::GOOD
    })
    .await;
    let batch = submit(&fixture.store, &line(1), "24h").await;
    let config = worker_config(fixture.gateway.address, Limits::default());
    let config = worker::WorkerConfig {
        lease: Duration::from_secs(3_600),
        ..config
    };
    let stop = CancellationToken::new();
    let working = tokio::spawn(worker::run(fixture.store.clone(), config, stop.clone()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop.cancel();
    working.await.unwrap().unwrap();
    fixture.gateway.set(Behaviour::GOOD);
    fixture.work(Limits::default());
    let batch = wait_for_end(&fixture.store, &batch).await;
    assert_eq!(batch.completed, 1);
}

/// A process may start while the clock is wrong: nothing is old before a second look at it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_starts_removes_no_results() {
    let fixture = fixture(Behaviour::GOOD).await;
    let batch = submit(&fixture.store, &line(1), "24h").await;
    let stop = fixture.work(Limits::default());
    wait_for_end(&fixture.store, &batch).await;
    stop.cancel();
    // By this bound every finished batch is old.
    fixture.work(Limits {
        retention_s: 0,
        ..Limits::default()
    });
    let second = submit(&fixture.store, &line(2), "24h").await;
    wait_for_end(&fixture.store, &second).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let first = fixture.store.batch(None, &batch).await.unwrap();
    let output = lines(&fixture.store, first.unwrap().output_file_id.as_deref()).await;
    assert_eq!(output.len(), 1);
}
