//! The program's own process, with too little of what a process needs: a log without a reader, and few file descriptors.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::fake::{FakeEngine, FakeResponse, vllm, wait_until};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// A running `isotherm serve`; dropping it kills it.
struct Process {
    child: Child,
    admin: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Process {
    /// Starts the program in a shell that runs `before` first, with these lines of configuration.
    fn start(before: &str, pools: &str, log: &str, stderr: Stdio) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = free.local_addr().unwrap();
        drop(free);
        let file = folder.path().join("isotherm.yaml");
        let text = format!(
            "listen: ['127.0.0.1:0']\nadmin: {{ listen: '{admin}' }}\npools: [{{ model: m, {pools} }}]\n"
        );
        std::fs::write(&file, text).unwrap();
        let child = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "{before}; exec \"$0\" serve --config \"$1\" --log {log}"
            ))
            .arg(env!("CARGO_BIN_EXE_isotherm"))
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Self {
            child,
            admin,
            _folder: folder,
        }
    }

    /// A page of the admin interface; empty while it does not answer.
    async fn page(&self, path: &str) -> String {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
        let url = format!("http://{}{path}", self.admin).parse().unwrap();
        let answer = async {
            let response = client.get(url).await.ok()?;
            let body = response.into_body().collect().await.ok()?.to_bytes();
            Some(String::from_utf8_lossy(&body).into_owned())
        };
        let answer = tokio::time::timeout(Duration::from_secs(5), answer).await;
        answer.ok().flatten().unwrap_or_default()
    }

    /// Waits until a page of the admin interface is as expected.
    async fn wait_for(&self, what: &str, path: &str, is_expected: impl Fn(&str) -> bool) {
        let mut last = String::new();
        for _ in 0..600 {
            last = self.page(path).await;
            if is_expected(&last) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("never happened: {what}; the last page: {last}");
    }

    /// Waits until so many replicas are available.
    async fn wait_for_available(&self, count: usize) {
        let available = |page: &str| {
            let page: Value = serde_json::from_str(page).unwrap_or_default();
            let replicas = page.as_array().cloned().unwrap_or_default();
            let states = replicas.iter().map(|replica| &replica["availability"]);
            states.filter(|state| **state == "available").count() == count
        };
        let what = format!("{count} replicas are available");
        self.wait_for(&what, "/api/replicas", available).await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The lost lines that the page of metrics shows.
fn lost_lines(page: &str) -> u64 {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("isotherm_lost_log_lines_total "));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

fn replica(engine: &FakeEngine) -> String {
    format!(
        "probe: {{ interval_ms: 20 }}, replicas: {{ static: ['{}'] }}",
        engine.addr
    )
}

#[tokio::test]
async fn a_log_without_a_reader_loses_its_lines_and_the_service_goes_on() {
    let engine = FakeEngine::start(vllm(0)).await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let process = Process::start(":", &replica(&engine), "info", writer.into());
    process.wait_for_available(1).await;
    engine.set_response(FakeResponse::Status(503));
    process.wait_for_available(0).await;
    engine.set_response(vllm(0));
    process.wait_for_available(1).await;
    process
        .wait_for("lines are counted", "/metrics", |page| {
            lost_lines(page) >= 3
        })
        .await;
}

#[tokio::test]
async fn a_log_whose_reader_has_stopped_delays_nothing() {
    let engine = FakeEngine::start(vllm(0)).await;
    let (_reader, writer) = std::io::pipe().unwrap();
    let process = Process::start(":", &replica(&engine), "trace", writer.into());
    process
        .wait_for("lines are dropped", "/metrics", |page| lost_lines(page) > 0)
        .await;
    process.wait_for_available(1).await;
    let probes = engine.count_of("/metrics");
    wait_until("probes go on", || engine.count_of("/metrics") > probes + 10).await;
}

fn limits(process: &Process) -> String {
    std::fs::read_to_string(
        Path::new("/proc")
            .join(process.child.id().to_string())
            .join("limits"),
    )
    .unwrap()
}

#[tokio::test]
async fn the_soft_limit_of_descriptors_is_raised_to_the_hard_one() {
    let process = Process::start(
        "ulimit -Sn 64; ulimit -Hn 512",
        "push: blind",
        "info",
        Stdio::null(),
    );
    process
        .wait_for("it serves", "/healthz", |page| !page.is_empty())
        .await;
    let limits = limits(&process);
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words = Vec::from_iter(line.unwrap().split_whitespace());
    assert_eq!(words[3..5], ["512", "512"], "{limits}");
}

#[tokio::test]
async fn more_replicas_than_descriptors_leave_some_for_everything_else() {
    let mut engines = Vec::new();
    for _ in 0..110 {
        engines.push(FakeEngine::start(vllm(0)).await);
    }
    let addresses = engines.iter().map(|engine| format!("'{}'", engine.addr));
    let pools = format!(
        "replicas: {{ static: [{}] }}",
        Vec::from_iter(addresses).join(", ")
    );
    let process = Process::start("ulimit -n 100", &pools, "info", Stdio::null());
    process.wait_for_available(engines.len()).await;
    let probes = engines[0].count_of("/metrics");
    wait_until("probes go on", || {
        engines[0].count_of("/metrics") > probes + 3
    })
    .await;
    process.wait_for_available(engines.len()).await;
}

#[tokio::test]
async fn check_says_what_a_configuration_needs_of_a_limit_that_is_too_small() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("isotherm.yaml");
    let replicas = (0..1_000).map(|n| format!("'10.0.{}.{}:80'", n / 250, n % 250 + 1));
    let replicas = Vec::from_iter(replicas).join(", ");
    std::fs::write(
        &file,
        format!("pools: [{{ model: m, replicas: {{ static: [{replicas}] }} }}]"),
    )
    .unwrap();
    let check = |limit: u32| {
        let output = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "ulimit -n {limit}; exec \"$0\" check --config \"$1\""
            ))
            .arg(env!("CARGO_BIN_EXE_isotherm"))
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let warning = check(1_024);
    assert!(
        warning.contains("1334 file descriptors, and the limit is 1024"),
        "{warning}"
    );
    assert_eq!(check(2_048), "");
}
