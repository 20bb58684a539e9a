//! `isotherm record`: records live traffic of a running service as a trace.
//!
//! The service streams requests in the order in which they end, but a trace is in the order of arrival, and the mean bytes
//! per token are known only at the end. So the command first writes the requests into a file beside the trace and keeps
//! their positions in memory; then it reads them back in order. If the service stops, or at Ctrl-C, the requests so far
//! become a trace all the same.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::client::{AdminClient, Connection};
use crate::admin::view::NewRecording;
use crate::recorder::event::{RecordedRequest, RecordingEvent, RecordingSummary};
use crate::recorder::trace::{Totals, TraceBuilder};

/// The longest line of the response, in bytes: a request with 320 blocks has 10 KB.
const LINE_BYTES_MAX: usize = 1024 * 1024;
/// The interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(super) struct Record {
    #[command(flatten)]
    connection: Connection,
    /// Model of the pool; may be left out if there is one pool.
    #[arg(long, value_name = "MODEL")]
    pool: Option<String>,
    /// File for the trace.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Most requests of the recording.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    requests: u64,
    /// Longest duration of the recording.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    duration: u64,
}

pub(super) async fn run(args: Record) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.connection)?;
    let new = NewRecording {
        pool: args.pool,
        requests: args.requests,
        seconds: args.duration,
    };
    let mut spool = Spool::create(&args.output)?;
    let response = client.stream("/api/recording", &new).await;
    let response = response.inspect_err(|_| spool.remove())?;
    eprintln!("recording; Ctrl-C ends it early and keeps the requests so far");
    let end = tokio::select! {
        end = receive(response, &mut spool) => end.map(Some),
        interrupt = tokio::signal::ctrl_c() => interrupt.map(|()| None).map_err(Into::into),
    };
    // The requests so far make a trace, whatever ended the recording.
    let estimated = spool.write_trace(&args.output)?;
    spool.remove();
    let summary = end.as_ref().ok().and_then(Option::as_ref);
    eprintln!("{}", describe(&spool, estimated, summary));
    println!("{}", args.output.display());
    end.map(|_| ExitCode::SUCCESS)
}

/// Writes every request of the response into the spool, until the service reports the end.
async fn receive(mut response: Incoming, spool: &mut Spool) -> anyhow::Result<RecordingSummary> {
    let mut rest: Vec<u8> = Vec::new();
    let mut progress = tokio::time::interval(PROGRESS_INTERVAL);
    progress.tick().await;
    loop {
        let frame = tokio::select! {
            frame = response.frame() => frame,
            _ = progress.tick() => {
                eprintln!("{} requests", spool.requests.len());
                continue;
            }
        };
        let frame = frame.context("the service stopped in the middle of the recording")?;
        let frame = frame.context("the recording broke off")?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let event = serde_json::from_slice(&line).context(
                "the response is not understood: do service and command have the same version?",
            )?;
            match event {
                RecordingEvent::Request(request) => spool.push(&request)?,
                RecordingEvent::End(summary) => return Ok(summary),
            }
        }
        if rest.len() > LINE_BYTES_MAX {
            bail!("the service sends lines of more than {LINE_BYTES_MAX} bytes");
        }
    }
}

/// A file of requests in the order in which they ended.
struct Spool {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    requests: Vec<SpooledRequest>,
    totals: Totals,
}

/// The arrival time of a request, and its position in the spool.
struct SpooledRequest {
    at_ms: u64,
    start: u64,
    bytes: usize,
}

impl Spool {
    fn create(output: &Path) -> anyhow::Result<Self> {
        let mut path = output.as_os_str().to_owned();
        path.push(".part");
        let path = PathBuf::from(path);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path,
            file: BufWriter::new(file),
            bytes: 0,
            requests: Vec::new(),
            totals: Totals::default(),
        })
    }

    fn push(&mut self, request: &RecordedRequest) -> anyhow::Result<()> {
        let line = serde_json::to_vec(request)?;
        let written = self.file.write_all(&line);
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.requests.push(SpooledRequest {
            at_ms: request.at_ms,
            start: self.bytes,
            bytes: line.len(),
        });
        self.bytes += line.len() as u64;
        self.totals.add(request);
        Ok(())
    }

    /// Writes the trace. Returns the number of requests whose output length is an estimate.
    fn write_trace(&mut self, output: &Path) -> anyhow::Result<usize> {
        self.file.flush()?;
        self.requests.sort_by_key(|request| request.at_ms);
        let trace = File::create(output);
        let trace = trace.with_context(|| format!("cannot write {}", output.display()))?;
        let mut trace = BufWriter::new(trace);
        let mut builder = TraceBuilder::new(self.totals);
        let mut estimated = 0;
        for request in &self.requests {
            let mut line = vec![0; request.bytes];
            self.file
                .get_ref()
                .read_exact_at(&mut line, request.start)?;
            let line = builder.line(&serde_json::from_slice(&line)?);
            estimated += usize::from(line.output_estimated);
            serde_json::to_writer(&mut trace, &line)?;
            trace.write_all(b"\n")?;
        }
        trace.flush()?;
        Ok(estimated)
    }

    /// Removes the file. A file that stays behind does no harm.
    fn remove(&self) {
        drop(fs::remove_file(&self.path));
    }
}

fn describe(spool: &Spool, estimated: usize, end: Option<&RecordingSummary>) -> String {
    let mut parts = vec![format!(
        "{} requests with {:.2} bytes per prompt token",
        spool.requests.len(),
        spool.totals.token_bytes()
    )];
    if estimated > 0 {
        parts.push(format!(
            "the engines did not report the output length of {estimated} responses, which are estimated"
        ));
    }
    if let Some(end) = end {
        for (count, reason) in [
            (end.dropped, "they ended faster than this command read"),
            (end.failed, "the engine responded with an error"),
            (end.unfinished, "they had not ended"),
        ] {
            if count > 0 {
                parts.push(format!("{count} left out: {reason}"));
            }
        }
        parts.push(end.why.as_str().to_owned());
    }
    parts.join("; ")
}
