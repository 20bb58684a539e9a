//! `isotherm record`.
//!
//! Requests arrive in the order in which they end, and a trace is in the order in which they came; and how long a token
//! is shows at the end. So what arrives goes into a file beside the trace first, with its positions kept in memory, and is
//! read back from there in order. What is there when the service goes away, or at Ctrl-C, becomes a trace all the same.

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

/// The longest line of the service's answer, in bytes: one with 320 blocks has 10 KB.
const LINE_BYTES_MAX: usize = 1024 * 1024;
/// Interval of progress messages.
const PROGRESS: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(super) struct Record {
    #[command(flatten)]
    connection: Connection,
    /// The pool, by its model; may be left out where there is one pool.
    #[arg(long, value_name = "MODEL")]
    pool: Option<String>,
    /// Where the trace goes.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Ends after so many requests.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    requests: u64,
    /// Ends after so many seconds.
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
    let mut tape = Tape::create(&args.output)?;
    let answer = client.stream("/api/recording", &new).await;
    let answer = answer.inspect_err(|_| tape.remove())?;
    eprintln!("recording; Ctrl-C ends it early, and keeps what there is");
    let ending = tokio::select! {
        ending = listen(answer, &mut tape) => ending,
        pressed = tokio::signal::ctrl_c() => pressed.map(|()| None).map_err(Into::into),
    };
    // What was heard so far is worth a trace, however it ended.
    let written = tape.write(&args.output)?;
    tape.remove();
    eprintln!(
        "{}",
        told(&written, ending.as_ref().ok().and_then(Option::as_ref))
    );
    println!("{}", args.output.display());
    ending.map(|_| ExitCode::SUCCESS)
}

/// Takes everything that the service says, until it says that this was all.
async fn listen(mut answer: Incoming, tape: &mut Tape) -> anyhow::Result<Option<RecordingSummary>> {
    let mut rest: Vec<u8> = Vec::new();
    let mut progress = tokio::time::interval(PROGRESS);
    progress.tick().await;
    loop {
        let frame = tokio::select! {
            frame = answer.frame() => frame,
            _ = progress.tick() => {
                eprintln!("{} requests", tape.positions.len());
                continue;
            }
        };
        let frame = frame.context("the service went away in the middle of the recording")?;
        let frame = frame.context("the recording broke off")?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let said = serde_json::from_slice(&line);
            match said.context("the service says what this version does not understand")? {
                RecordingEvent::Request(recorded) => tape.push(&recorded)?,
                RecordingEvent::End(ending) => return Ok(Some(ending)),
            }
        }
        if rest.len() > LINE_BYTES_MAX {
            bail!("the service sends lines of more than {LINE_BYTES_MAX} bytes");
        }
    }
}

/// Lines received, in order.
struct Tape {
    path: PathBuf,
    file: BufWriter<File>,
    length: u64,
    positions: Vec<RequestPosition>,
    totals: Totals,
}

/// Where a request is: when it came, in milliseconds, and where it stands in the file, in bytes.
struct RequestPosition {
    at_ms: u64,
    start: u64,
    length: usize,
}

/// Totals of a recorded trace.
struct Written {
    lines: usize,
    estimated: usize,
    token_bytes: f64,
}

impl Tape {
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
            length: 0,
            positions: Vec::new(),
            totals: Totals::default(),
        })
    }

    fn push(&mut self, recorded: &RecordedRequest) -> anyhow::Result<()> {
        let line = serde_json::to_vec(recorded)?;
        let wrong = || format!("cannot write {}", self.path.display());
        self.file.write_all(&line).with_context(wrong)?;
        self.positions.push(RequestPosition {
            at_ms: recorded.at_ms,
            start: self.length,
            length: line.len(),
        });
        self.length += line.len() as u64;
        self.totals.add(recorded);
        Ok(())
    }

    /// Writes the trace.
    fn write(&mut self, output: &Path) -> anyhow::Result<Written> {
        self.file.flush()?;
        self.positions.sort_by_key(|place| place.at_ms);
        let trace = File::create(output);
        let trace = trace.with_context(|| format!("cannot write {}", output.display()))?;
        let mut trace = BufWriter::new(trace);
        let mut assembler = TraceBuilder::new(self.totals);
        let mut written = Written {
            lines: self.positions.len(),
            estimated: 0,
            token_bytes: self.totals.token_bytes(),
        };
        for place in &self.positions {
            let mut line = vec![0; place.length];
            self.file.get_ref().read_exact_at(&mut line, place.start)?;
            let line = assembler.line(&serde_json::from_slice(&line)?);
            written.estimated += usize::from(line.output_estimated);
            serde_json::to_writer(&mut trace, &line)?;
            trace.write_all(b"\n")?;
        }
        trace.flush()?;
        Ok(written)
    }

    /// A file that stays behind is no harm.
    fn remove(&self) {
        drop(fs::remove_file(&self.path));
    }
}

fn told(written: &Written, ending: Option<&RecordingSummary>) -> String {
    let mut text = format!(
        "{} requests; a token of their prompts has {:.2} bytes",
        written.lines, written.token_bytes
    );
    if written.estimated > 0 {
        text.push_str(&format!(
            "; the engines did not tell how long {} answers were, these are guessed",
            written.estimated
        ));
    }
    let Some(ending) = ending else {
        return text;
    };
    for (count, what) in [
        (ending.dropped, "left out, for they came too fast"),
        (
            ending.failed,
            "left out, for the engine answered with an error",
        ),
        (ending.unfinished, "left out, for they had not ended"),
    ] {
        if count > 0 {
            text.push_str(&format!("; {count} {what}"));
        }
    }
    text.push_str(&format!("; {}", ending.why.as_str()));
    text
}
