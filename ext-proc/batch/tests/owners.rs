//! Owners take turns: whatever the lines of one owner do, those of another go on.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed assertion fails the test"
)]

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use isotherm_batch::limits::Limits;
use isotherm_batch::store::Store;
use isotherm_batch::worker;
use serde_json::{Value, json};
use support::{Behaviour, FakeGateway, line, submit_as, wait_for_end, worker_config};
use tokio_util::sync::CancellationToken;

/// Lines of the owner `a`.
const LINES_OF_A: usize = 3_000;
/// Lines of the owner `b`.
const LINES_OF_B: usize = 600;

/// A line whose answer is as `answer` says.
fn failing_line(number: usize, answer: &Value) -> String {
    let mut body = json!({ "model": "m", "n": number });
    for (name, value) in answer.as_object().unwrap() {
        body[name] = value.clone();
    }
    let line = json!({ "custom_id": format!("c{number}"), "method": "POST", "url": "/v1/completions", "body": body });
    format!("{line}\n")
}

/// Runs lines of `b` beside lines of `a`, and returns the number of requests of both until the last line of `b`.
async fn requests_until_b_ends(answer: Value) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("queue.db");
    let store = Store::open(database.to_str().unwrap()).await.unwrap();
    let gateway = FakeGateway::start(1, Behaviour::GOOD).await;
    let input_of_a: String = (0..LINES_OF_A)
        .map(|number| failing_line(number, &answer))
        .collect();
    let input_of_b: String = (0..LINES_OF_B).map(line).collect();
    // The batch of `a` has the earlier deadline, and is there first.
    submit_as(&store, "a", &input_of_a, "10m").await;
    let batch = submit_as(&store, "b", &input_of_b, "24h").await;
    let stop = CancellationToken::new();
    let config = worker_config(gateway.address, Limits::default());
    let working = tokio::spawn(worker::run(store.clone(), config, stop.clone()));
    let batch = wait_for_end(&store, &batch).await;
    assert_eq!(batch.completed, LINES_OF_B as u64);
    stop.cancel();
    working.await.unwrap().unwrap();
    let id = batch.id.strip_prefix("batch_").unwrap().to_owned();
    let arrived = gateway.arrived();
    let last = arrived.iter().rposition(|request| request.contains(&id));
    last.unwrap() + 1
}

/// Checks that `b` ends within twice the requests that it needs alone; the window of `a` may be full at first.
async fn check(answer: Value) {
    let requests = requests_until_b_ends(answer.clone()).await;
    println!("{requests} requests beside {answer}");
    assert!(
        requests <= 2 * LINES_OF_B + 64,
        "{requests} beside {answer}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_an_engine_answers_with_500_stop_no_other_owner() {
    check(json!({ "answer_status": 500 })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_a_guard_answers_with_403_stop_no_other_owner() {
    check(json!({ "answer_status": 403 })).await;
    check(json!({ "answer_status": 403, "answer": "RBAC: access denied" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_the_gateway_answers_with_503_stop_no_other_owner() {
    check(json!({ "answer_status": 503, "answer": "no healthy upstream" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_break_their_connection_stop_no_other_owner() {
    check(json!({ "answer": "break" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_are_never_answered_stop_no_other_owner() {
    check(json!({ "answer": "nothing" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_succeed_take_turns_with_those_of_another_owner() {
    check(json!({})).await;
}
