//! The log of a running service that reloads its file: it has changes, and nothing else.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use crate::fake::{FakeEngine, vllm, wait_until};

const WAIT_MAX: Duration = Duration::from_secs(30);

/// A service of its own process, and the lines of its log.
struct Process {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    /// Lines read so far.
    read: Vec<String>,
}

impl Process {
    fn start(file: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_isotherm"))
            .args(["serve", "--config", file.to_str().unwrap()])
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let read = Vec::new();
        Self { child, log, read }
    }

    /// Reads lines until one has `part`, and returns it.
    async fn wait_for(&mut self, part: &str) -> String {
        loop {
            let line = timeout(WAIT_MAX, self.log.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no {part} in {:#?}", self.read));
            let line = line
                .unwrap()
                .unwrap_or_else(|| panic!("ended before {part}"));
            self.read.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }

    async fn hangup(&self) {
        let pid = self.child.id().unwrap().to_string();
        let status = Command::new("kill").args(["-HUP", &pid]).status().await;
        assert!(status.unwrap().success());
    }
}

#[tokio::test]
async fn a_reload_logs_an_engine_once_and_an_option_with_both_values() {
    let engine = FakeEngine::start(vllm(0)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("isotherm.yaml");
    let write = |drain_ms: u32, length_max: u32| {
        let text = format!(
            "listen: ['127.0.0.1:0']\nadmin: {{listen: '127.0.0.1:0'}}\ndrain_ms_max: {drain_ms}\npools:\n  - model: a\n    \
             queue: {{length_max: {length_max}}}\n    probe: {{interval_ms: 10}}\n    replicas: {{static: ['{}']}}\n",
            engine.addr
        );
        std::fs::write(&file, text).unwrap();
    };
    write(1_000, 10);
    let mut service = Process::start(&file);
    service.wait_for("detected the engine").await;
    write(2_000, 20);
    service.hangup().await;
    let line = service.wait_for("only a restart applies").await;
    for part in ["drain_ms_max", "1000", "2000"] {
        assert!(line.contains(part), "{line}");
    }
    let before = engine.request_count();
    wait_until("probed again", || engine.request_count() > before + 3).await;
    write(1_000, 30);
    service.hangup().await;
    let line = service.wait_for("has the running value again").await;
    assert!(line.contains("drain_ms_max"), "{line}");
    let detected = service
        .read
        .iter()
        .filter(|line| line.contains("detected the engine"));
    assert_eq!(detected.count(), 1, "{:#?}", service.read);
}
