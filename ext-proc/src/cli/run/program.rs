//! A program that `isotherm run` starts, watches and starts again.
//!
//! The program leads a process group, so that Ctrl-C at a terminal reaches the supervisor alone. Each line that it writes
//! goes to the supervisor's log, behind the name of the program. A log whose reader has stopped loses lines and delays
//! nothing.

use std::env;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use hyper::Request;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing_appender::non_blocking::NonBlocking;

use crate::backoff::Backoff;
use crate::cli::supervised;
use crate::http_client::HttpClient;

/// Longest time from a start to readiness.
const READY_MAX: Duration = Duration::from_secs(60);
/// Interval at which a starting program is asked whether it is ready.
const READY_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for the answer to that question.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// First and longest pause before a program is started again.
const PAUSE: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
/// A program that ran for this long starts again after the first pause.
const STEADY: Duration = Duration::from_secs(60);
/// Longest wait for the last lines of a program that has ended.
const OUTPUT_MAX: Duration = Duration::from_secs(1);
/// The longest piece of a line that is written at once, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// A program, running or about to.
#[derive(Debug)]
pub(super) struct Program {
    name: &'static str,
    command: Vec<OsString>,
    /// URL that has status 200 when the program is ready.
    ready: String,
    log: NonBlocking,
    child: Option<Child>,
    /// Copies of the program's output into the log.
    outputs: JoinSet<()>,
    started: Instant,
    backoff: Backoff,
}

impl Program {
    /// A program that does not run yet.
    pub(super) fn new(
        name: &'static str,
        command: Vec<OsString>,
        ready: String,
        log: NonBlocking,
    ) -> Self {
        let [min, max] = PAUSE;
        Self {
            name,
            command,
            ready,
            log,
            child: None,
            outputs: JoinSet::new(),
            started: Instant::now(),
            backoff: Backoff::new(min, max),
        }
    }

    /// The process, while it runs.
    pub(super) fn process(&self) -> Option<Pid> {
        let id = self.child.as_ref()?.id()?;
        Pid::from_raw(i32::try_from(id).ok()?)
    }

    /// Starts the program, and waits until it is ready.
    pub(super) async fn start(&mut self) -> anyhow::Result<()> {
        self.started = Instant::now();
        let mut child = self.spawn()?;
        tokio::select! {
            ended = child.wait() => {
                self.finish_outputs().await;
                bail!("{} has ended before it was ready: {}", self.name, cause(ended));
            }
            ready = timeout(READY_MAX, is_ready(&self.ready)) => ready.with_context(|| {
                format!("{} is not ready after {} s", self.name, READY_MAX.as_secs())
            })?,
        }
        tracing::info!(program = self.name, process = child.id(), "runs");
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the program ends by itself.
    pub(super) async fn ended(&mut self) {
        if let Some(child) = &mut self.child {
            let cause = cause(child.wait().await);
            tracing::error!(program = self.name, cause, "has ended and is started again");
        }
        self.child = None;
    }

    /// Starts the program until it is ready, with a growing pause before each attempt.
    pub(super) async fn start_again(&mut self) {
        if self.started.elapsed() >= STEADY {
            self.backoff.reset();
        }
        loop {
            self.backoff.wait().await;
            match self.start().await {
                Ok(()) => return,
                Err(error) => tracing::error!(error = format!("{error:#}"), "a start has failed"),
            }
        }
    }

    /// Ends the program (`SIGTERM`); after `limit` kills it.
    pub(super) async fn stop(&mut self, limit: Duration) {
        if let Some(process) = self.process() {
            // The process may have ended by itself.
            let _ = kill_process(process, Signal::TERM);
        }
        let Some(mut child) = self.child.take() else {
            return;
        };
        if timeout(limit, child.wait()).await.is_err() {
            tracing::warn!(program = self.name, "does not end and is killed");
            let _ = child.kill().await;
        }
        self.finish_outputs().await;
    }

    /// Waits for the last lines of a program that has ended.
    async fn finish_outputs(&mut self) {
        let all = async { while self.outputs.join_next().await.is_some() {} };
        // A process that the program has left behind may keep the output open.
        let _ = timeout(OUTPUT_MAX, all).await;
    }

    fn spawn(&mut self) -> anyhow::Result<Child> {
        let own = env::current_exe().context("the path of this program cannot be found")?;
        let mut command = Command::new(own);
        command
            .args(supervised::arguments(&self.command))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn();
        let mut child = child.with_context(|| format!("cannot start {}", self.name))?;
        if let Some(output) = child.stdout.take() {
            self.outputs
                .spawn(copy_lines(self.name, output, self.log.clone()));
        }
        if let Some(output) = child.stderr.take() {
            self.outputs
                .spawn(copy_lines(self.name, output, self.log.clone()));
        }
        Ok(child)
    }
}

fn cause(ended: std::io::Result<ExitStatus>) -> String {
    match ended {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Waits until a page has status 200.
async fn is_ready(url: &str) {
    let http = HttpClient::new();
    loop {
        if let Ok(request) = Request::get(url).body(Bytes::new()) {
            let answer = http.fetch(request, ANSWER_MAX, ANSWER_BYTES_MAX).await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
        }
        sleep(READY_INTERVAL).await;
    }
}

/// Copies the lines of a program until it closes its output. A line is one write, so that lines do not mix.
async fn copy_lines(name: &'static str, output: impl AsyncRead + Unpin, mut log: NonBlocking) {
    let mut output = BufReader::new(output);
    let prefix = format!("{name}: ");
    loop {
        let mut line = prefix.clone().into_bytes();
        let mut piece = (&mut output).take(LINE_BYTES_MAX);
        match piece.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        // The log counts the lines that it loses.
        let _ = log.write_all(&line);
    }
}
