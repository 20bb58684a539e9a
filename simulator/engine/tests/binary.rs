//! The program itself: what it prints, and how it ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Starts the program and reads where its replicas listen.
fn start(arguments: &[&str], replicas: usize) -> (Child, Vec<String>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_isotherm-engine"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = |line: String| line.strip_prefix("listening on ").unwrap().to_owned();
    let addresses = lines.take(replicas).map(|line| address(line.unwrap()));
    let addresses = addresses.collect();
    (child, addresses)
}

#[tokio::test]
async fn each_replica_prints_its_address_and_has_its_own_engine() {
    let arguments = ["--replicas", "3", "--speed", "1000", "--model", "tiny"];
    let (mut child, addresses) = start(&arguments, 3);
    assert_eq!(addresses.len(), 3);
    let client = reqwest::Client::new();
    for address in &addresses {
        let request = client.post(format!("http://{address}/v1/completions"));
        let prompt = "abcd".repeat(40);
        let body = format!(r#"{{"model":"tiny","prompt":"{prompt}","max_tokens":1}}"#);
        let response = request.body(body).send().await.unwrap();
        let response = response.text().await.unwrap();
        assert!(response.contains(r#""cached_tokens":0"#), "{response}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn an_ordered_crash_ends_the_process_with_its_own_exit_code() {
    let (mut child, addresses) = start(&["--fault", "crash_ms=100"], 1);
    assert_eq!(addresses.len(), 1);
    let status = tokio::task::spawn_blocking(move || child.wait()).await;
    assert_eq!(status.unwrap().unwrap().code(), Some(70));
}

#[test]
fn a_wrong_option_is_explained() {
    let output = Command::new(env!("CARGO_BIN_EXE_isotherm-engine"))
        .args(["--preset", "gpt-2"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(text.contains("llama2-70b-h100"), "{text}");
}
