//! `isotherm record`: records live traffic of a running service as a trace.
//!
//! The service streams requests in the order in which they end, but a trace is in the order of arrival, and the mean bytes
//! per token are known only at the end. So the command first writes the requests into a file beside the trace and keeps
//! their positions in memory; then it reads them back in order. If the service stops, at Ctrl-C, or when the disk is full, the requests
//! so far become a trace all the same. On a full disk the file beside the trace first makes room for it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::client::{AdminClient, Connection};
use super::output;
use crate::admin::view::NewRecording;
use crate::recorder::event::{RecordedRequest, RecordingEvent, RecordingSummary};
use crate::recorder::trace::{Totals, TraceBuilder};

/// The longest line of the response, in bytes: a request with 320 blocks has 10 KB.
const LINE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that are written into the spool at once.
const TAIL_BYTES: usize = 64 * 1024;
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
    output::note("recording; Ctrl-C ends it early and keeps the requests so far");
    let end = tokio::select! {
        end = receive(response, &mut spool) => end.map(Some),
        interrupt = tokio::signal::ctrl_c() => interrupt.map(|()| None).map_err(Into::into),
    };
    // The requests so far make a trace, whatever ended the recording.
    let trace = spool
        .write_trace(&args.output)
        .with_context(|| format!("the requests stay in {}", spool.path.display()))?;
    spool.remove();
    let summary = end.as_ref().ok().and_then(Option::as_ref);
    output::note(&describe(&spool, trace.estimated, summary));
    output::print(&format!("{}\n", args.output.display()))?;
    if let Some(error) = trace.error {
        let (kept, all) = (trace.requests, spool.requests.len());
        return Err(anyhow!(error).context(format!(
            "{} has {kept} of {all} requests, the first ones; the others could not be written",
            args.output.display()
        )));
    }
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
                output::note(&format!("{} requests", spool.requests.len()));
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
    file: File,
    /// Bytes in the file.
    bytes: u64,
    /// Bytes behind those in the file.
    tail: Vec<u8>,
    requests: Vec<SpooledRequest>,
    totals: Totals,
}

/// The arrival time of a request, and its position in the spool.
struct SpooledRequest {
    at_ms: u64,
    start: u64,
    bytes: usize,
}

/// The trace as it was written.
#[derive(Default)]
struct WrittenTrace {
    requests: usize,
    bytes: u64,
    /// Requests whose output length is an estimate.
    estimated: usize,
    /// Why the other requests were not written.
    error: Option<io::Error>,
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
            file,
            bytes: 0,
            tail: Vec::new(),
            requests: Vec::new(),
            totals: Totals::default(),
        })
    }

    fn push(&mut self, request: &RecordedRequest) -> anyhow::Result<()> {
        let line = serde_json::to_vec(request)?;
        self.requests.push(SpooledRequest {
            at_ms: request.at_ms,
            start: self.bytes + self.tail.len() as u64,
            bytes: line.len(),
        });
        self.tail.extend_from_slice(&line);
        self.totals.add(request);
        if self.tail.len() < TAIL_BYTES {
            return Ok(());
        }
        // What cannot be written stays in the tail.
        let written = self.file.write_all_at(&self.tail, self.bytes);
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.bytes += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }

    /// Writes the trace. On a full disk, the requests go into memory and leave the file, which makes room for the trace.
    /// Fails when the file cannot be created, or the spool not be read.
    fn write_trace(&mut self, output: &Path) -> anyhow::Result<WrittenTrace> {
        self.requests.sort_by_key(|request| request.at_ms);
        let trace = File::create(output);
        let trace = trace.with_context(|| format!("cannot write {}", output.display()))?;
        let written = self.write_requests(&trace)?;
        if written.error.is_none() || self.bytes == 0 {
            return Ok(written);
        }
        self.move_into_memory()?;
        trace.set_len(0)?;
        self.write_requests(&trace)
    }

    /// Writes as many whole lines as can be written.
    fn write_requests(&self, trace: &File) -> anyhow::Result<WrittenTrace> {
        let mut builder = TraceBuilder::new(self.totals);
        let mut written = WrittenTrace::default();
        for request in &self.requests {
            let line = builder.line(&serde_json::from_slice(&self.read(request)?)?);
            let mut text = serde_json::to_vec(&line)?;
            text.push(b'\n');
            if let Err(error) = trace.write_all_at(&text, written.bytes) {
                trace.set_len(written.bytes)?;
                written.error = Some(error);
                break;
            }
            written.bytes += text.len() as u64;
            written.requests += 1;
            written.estimated += usize::from(line.output_estimated);
        }
        Ok(written)
    }

    fn read(&self, request: &SpooledRequest) -> io::Result<Vec<u8>> {
        let mut line = vec![0; request.bytes];
        match request.start.checked_sub(self.bytes) {
            Some(start) => {
                let start = usize::try_from(start).map_err(io::Error::other)?;
                let found = self.tail.get(start..start + request.bytes);
                line.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            }
            None => self.file.read_exact_at(&mut line, request.start)?,
        }
        Ok(line)
    }

    /// Moves the contents of the file into memory. The service bounds a recording.
    fn move_into_memory(&mut self) -> anyhow::Result<()> {
        let mut all = vec![0; usize::try_from(self.bytes)?];
        self.file.read_exact_at(&mut all, 0)?;
        all.append(&mut self.tail);
        (self.tail, self.bytes) = (all, 0);
        Ok(self.file.set_len(0)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_make_room_on_a_full_disk_give_the_same_trace() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("trace.jsonl");
        let mut spool = Spool::create(&output).unwrap();
        for at_ms in (0..3_000_u32).rev() {
            let request = RecordedRequest {
                at_ms: at_ms.into(),
                session: None,
                region: None,
                blocks: vec![(at_ms.into(), 256)],
                bytes: 300,
                prompt_tokens: Some(75),
                output_tokens: None,
                output_tokens_max: None,
            };
            spool.push(&request).unwrap();
        }
        assert!(spool.bytes > 0 && !spool.tail.is_empty());
        let written = spool.write_trace(&output).unwrap();
        assert_eq!((written.requests, written.estimated), (3_000, 3_000));
        let before = fs::read(&output).unwrap();
        spool.move_into_memory().unwrap();
        assert_eq!(fs::metadata(&spool.path).unwrap().len(), 0);
        spool.write_trace(&output).unwrap();
        assert_eq!(fs::read(&output).unwrap(), before);
    }
}
