//! `isotherm record` against the admin interface of real pools, whose requests the test hands in itself.

use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::fake::service::{Service, TOKEN};
use crate::fake::wait_until;
use isotherm_ext_proc::pool::{Pool, RouteRequest, session_key};
use isotherm_ext_proc::recorder::trace_line::TraceLine;
use isotherm_fingerprint::outcome::Outcome;
use isotherm_fingerprint::{BlockHash, Fingerprint};
use isotherm_router::Load;
use serde_json::Value;
use tokio::process::{Child, Command};

const ALLOWED: &str = "
admin: { token_file: token }
recording: true
pools: [{ model: llama, push: blind }]
";
const FORBIDDEN: &str = "
admin: { token_file: token }
pools: [{ model: llama, push: blind }]
";
const REQUESTS: &str = r#"{"requests": 10, "seconds": 60}"#;

/// Starts `isotherm record` with more arguments, and waits until it records.
async fn record(service: &Service, trace: &Path, arguments: &[&str]) -> Child {
    let program = Command::new(env!("CARGO_BIN_EXE_isotherm"));
    record_by(program, service, trace, arguments).await
}

async fn record_by(
    mut program: Command,
    service: &Service,
    trace: &Path,
    arguments: &[&str],
) -> Child {
    let token = service.folder().join("token");
    let child = program
        .args(["record", "--admin", &service.admin.to_string()])
        .args(["--token-file", token.to_str().unwrap()])
        .args(["--output", trace.to_str().unwrap()])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pool = pool(service);
    wait_until("it records", || pool.recorder().is_on()).await;
    child
}

async fn ended(child: Child) -> Output {
    let ended = tokio::time::timeout(Duration::from_secs(30), child.wait_with_output());
    ended.await.unwrap().unwrap()
}

fn pool(service: &Service) -> Arc<Pool> {
    Arc::clone(&service.pool_registry.pools()[0])
}

fn trace(path: &Path) -> Vec<TraceLine> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A pool with one replica that takes everything.
async fn start(text: &str) -> Service {
    let service = Service::start(text).await;
    let pool = pool(&service);
    let replica = pool.add_replica(([127, 0, 0, 1], 1).into()).unwrap();
    pool.probed(replica, Load::default(), pool.clock().now());
    service
}

fn ask(session: &str, hashes: &[u64], total_bytes: u32) -> RouteRequest {
    let blocks = hashes.iter().zip(1..).map(|(hash, number)| BlockHash {
        hash: *hash,
        end_bytes: 256 * number,
    });
    RouteRequest {
        fingerprint: Arc::new(Fingerprint::new(blocks.collect(), total_bytes).unwrap()),
        session: Some(session_key(session.as_bytes())),
        ..RouteRequest::default()
    }
}

fn outcome(prompt_tokens: u32, completion_tokens: u32) -> Outcome {
    Outcome {
        status: 200,
        prompt_tokens: Some(prompt_tokens),
        completion_tokens: Some(completion_tokens),
        ..Outcome::default()
    }
}

/// Two turns of one user, which end in the wrong order, and one request of another; the engine counts 5 bytes a token.
fn traffic(pool: &Arc<Pool>) {
    let (first, _) = pool.submit(&ask("alice", &[101, 102], 600));
    std::thread::sleep(Duration::from_millis(5));
    let (second, _) = pool.submit(&ask("alice", &[101, 102, 103, 104], 1_100));
    std::thread::sleep(Duration::from_millis(5));
    let (third, _) = pool.submit(&ask("bob", &[101, 105], 600));
    third.finish(&outcome(120, 7));
    second.finish(&outcome(220, 9));
    first.finish(&outcome(120, 40));
}

#[tokio::test]
async fn a_trace_has_the_shape_of_the_traffic_and_ids_of_its_own() {
    let service = start(ALLOWED).await;
    let pool = pool(&service);
    let mut traces = Vec::new();
    for name in ["one.jsonl", "two.jsonl"] {
        let path = service.folder().join(name);
        let child = record(&service, &path, &["--requests", "3"]).await;
        traffic(&pool);
        let output = ended(child).await;
        assert!(output.status.success(), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            told.contains("3 requests with 5.00 bytes per prompt token"),
            "{told}"
        );
        assert!(!service.folder().join(format!("{name}.part")).exists());
        traces.push((std::fs::read_to_string(&path).unwrap(), trace(&path)));
    }
    let [(text, one), (_, two)] = &traces[..] else {
        unreachable!("two recordings")
    };
    let lengths = |trace: &[TraceLine]| -> Vec<(u32, u32, Vec<u32>)> {
        let pieces = |line: &TraceLine| line.pieces.iter().map(|(_, tokens)| *tokens).collect();
        trace
            .iter()
            .map(|line| (line.input_length, line.output_length, pieces(line)))
            .collect()
    };
    let expected = [
        (120, 40, vec![51, 51, 18]),
        (220, 9, vec![51, 51, 18, 40, 45, 15]),
        (120, 7, vec![51, 51, 18]),
    ];
    assert_eq!(lengths(one), expected);
    assert_eq!(lengths(two), expected);
    assert!(
        one.windows(2)
            .all(|pair| pair[0].timestamp <= pair[1].timestamp)
    );
    assert_eq!(
        one[1].pieces[..3],
        one[0].pieces[..],
        "the same user goes on"
    );
    assert_eq!(one[1].pieces[3].0, one[0].answer.unwrap());
    assert_eq!(one[2].pieces[0], one[0].pieces[0], "the same beginning");
    assert_ne!(one[2].pieces[1], one[0].pieces[1]);
    assert_eq!(one[0].session, one[1].session);
    assert_ne!(one[0].session, one[2].session);

    // Nothing of what the service knows is in it, and nothing of one recording in the other.
    let ids = |trace: &[TraceLine]| -> Vec<u64> {
        let of_line = |line: &TraceLine| {
            let pieces: Vec<u64> = line.pieces.iter().map(|(id, _)| *id).collect();
            [
                pieces,
                line.hash_ids.clone(),
                line.session.into_iter().collect(),
            ]
            .concat()
        };
        trace.iter().flat_map(of_line).collect()
    };
    let (one, two) = (ids(one), ids(two));
    assert!(one.iter().all(|id| !two.contains(id)));
    let alice = session_key(b"alice").0;
    assert!(
        [101, 102, 103, 104, 105, alice]
            .iter()
            .all(|id| !one.contains(id))
    );
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let members: Vec<_> = line.as_object().unwrap().keys().cloned().collect();
        let known = [
            "answer",
            "hash_ids",
            "input_length",
            "output_length",
            "pieces",
            "session",
            "timestamp",
        ];
        assert_eq!(members, known);
    }
}

#[tokio::test]
async fn a_recording_needs_permission_and_the_token() {
    let service = start(FORBIDDEN).await;
    let post =
        |token: Option<&'static str>| service.request("POST", "/api/recording", token, REQUESTS);
    assert_eq!(post(None).await.0, 401);
    let (status, body) = post(Some(TOKEN)).await;
    assert_eq!(
        (status, body["error"]["code"].as_str()),
        (403, Some("recording_disabled"))
    );
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("recording: true")
    );
    let (_, pool) = (service.write(ALLOWED), pool(&service));
    assert_eq!(
        service
            .request("POST", "/api/reload", Some(TOKEN), "")
            .await
            .0,
        200
    );
    assert!(!pool.recorder().is_on());
    for wrong in [
        r#"{"requests": 0, "seconds": 1}"#,
        r#"{"requests": 1, "seconds": 3601}"#,
        r#"{"requests": 1000001, "seconds": 1}"#,
    ] {
        assert_eq!(
            service
                .request("POST", "/api/recording", Some(TOKEN), wrong)
                .await
                .0,
            400
        );
    }
}

#[tokio::test]
async fn a_recording_ends_at_its_time_limit_and_keeps_finished_requests() {
    let service = start(ALLOWED).await;
    let path = service.folder().join("trace.jsonl");
    let child = record(&service, &path, &["--duration", "1"]).await;
    let (status, body) = service
        .request("POST", "/api/recording", Some(TOKEN), REQUESTS)
        .await;
    assert_eq!(
        (status, body["error"]["code"].as_str()),
        (409, Some("recording_runs"))
    );
    let pool = pool(&service);
    // Comes within the time, and ends after it.
    let (ticket, _) = pool.submit(&ask("alice", &[1], 300));
    let recorder = pool.recorder();
    wait_until("the time is over", || !recorder.is_on()).await;
    drop(pool.submit(&ask("late", &[1], 300)));
    ticket.finish(&outcome(75, 5));
    let output = ended(child).await;
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("the time is over"));
    assert_eq!(trace(&path).len(), 1);
}

#[tokio::test]
async fn a_recording_ends_when_a_reload_forbids_it_and_reports_what_it_lacks() {
    let service = start(ALLOWED).await;
    let path = service.folder().join("trace.jsonl");
    let child = record(&service, &path, &[]).await;
    let pool = pool(&service);
    let (open, _) = pool.submit(&ask("alice", &[1], 300));
    // The client disconnects, so the output length is unknown.
    drop(pool.submit(&ask("alice", &[1], 300)));
    let (failed, _) = pool.submit(&ask("alice", &[1], 300));
    failed.finish(&Outcome {
        status: 500,
        ..Outcome::default()
    });
    service.write(FORBIDDEN);
    assert_eq!(
        service
            .request("POST", "/api/reload", Some(TOKEN), "")
            .await
            .0,
        200
    );
    let told = ended(child).await;
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    for part in [
        "1 requests",
        "the output length of 1 responses",
        "1 left out: the engine responded with an error",
        "1 left out: they had not ended",
        "`recording` was taken back",
    ] {
        assert!(told.contains(part), "missing: {part}\nin: {told}");
    }
    drop(open);
    let trace = trace(&path);
    assert!(trace[0].output_estimated);
}

#[tokio::test]
async fn a_client_that_disconnects_ends_its_recording() {
    let service = start(ALLOWED).await;
    let path = service.folder().join("trace.jsonl");
    let child = record(&service, &path, &[]).await;
    drop(child);
    let pool = pool(&service);
    wait_until("no recording runs", || !pool.recorder().is_on()).await;
}

#[tokio::test]
async fn a_recording_on_a_full_disk_keeps_and_names_what_fits_and_leaves_no_other_file() {
    let service = start(ALLOWED).await;
    let path = service.folder().join("trace.jsonl");
    // A file has at most 64 blocks, as on a disk that is full by then.
    let mut program = Command::new("sh");
    program
        .arg("-c")
        .arg("trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"")
        .arg(env!("CARGO_BIN_EXE_isotherm"));
    let child = record_by(program, &service, &path, &["--requests", "2000"]).await;
    let pool = pool(&service);
    let recorder = pool.recorder();
    let mut sent = 0;
    while recorder.is_on() {
        let hashes = [sent + 1, sent + 2, sent + 3, sent + 4];
        let (request, _) = pool.submit(&ask("alice", &hashes, 1_100));
        request.finish(&outcome(220, 9));
        sent += 1;
        if sent % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let output = ended(child).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lines = trace(&path);
    assert!(lines.len() > 50 && lines.len() < 2_000, "{}", lines.len());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let kept = format!("trace.jsonl has {} of ", lines.len());
    assert!(told.contains(&kept), "{told}");
    assert!(!service.folder().join("trace.jsonl.part").exists());
}
