//! Records the live traffic of a pool as a trace that a simulator can replay: `isotherm record`.
//!
//! A record holds the arrival time of a request, the lengths of its prompt and its response, and the hashes of the prompt's
//! prefixes; the service has no text to record. Hashes could be matched against guessed prompts. Each recording
//! therefore keys them with a random [`salt`] that is stored nowhere: equal prefixes have equal ids within one
//! recording, and nothing can be compared across recordings.
//!
//! Without a recording, a request costs the load of one flag. A recorded request costs a copy of a few numbers and of a
//! pointer to its fingerprint; the reader of the recording hashes and writes. When the reader is too slow, records are
//! dropped and counted.
//!
//! The guard of a request owns its [`RecordingEntry`], and dropping the entry sends the record. The channel closes when
//! the recording takes no more requests and the last entry is gone.

pub mod event;
pub mod salt;
#[cfg(test)]
mod tests;
pub mod trace;
pub mod trace_line;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use isotherm_fingerprint::Fingerprint;
use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::{SessionKey, Time};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use event::{EndReason, RecordedRequest, RecordingSummary};
use salt::Salt;

/// Limit of records that wait for the reader. A record has at most 6 KB, so all of them have at most 25 MB.
const RECORDS_MAX: usize = 4096;

/// The tap of one pool.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Whether there is a tape.
    is_on: AtomicBool,
    tape: Mutex<Option<Tape>>,
}

/// The sending side of the current recording.
#[derive(Debug)]
struct Tape {
    records: mpsc::Sender<Record>,
    counts: Arc<RecordCounts>,
    start: Time,
    /// Requests that the recording still takes.
    requests_left: u64,
}

#[derive(Debug, Default)]
struct RecordCounts {
    dropped: AtomicU64,
    failed: AtomicU64,
    open: AtomicU64,
}

/// The reading side of a recording, which ends when this is dropped.
#[derive(Debug)]
pub struct RecordReader {
    recorder: Arc<Recorder>,
    counts: Arc<RecordCounts>,
    records: mpsc::Receiver<Record>,
}

/// Error: another recording of this pool is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingInProgress;

/// A request under way that is being recorded.
#[derive(Debug)]
pub(crate) struct RecordingEntry {
    records: mpsc::Sender<Record>,
    counts: Arc<RecordCounts>,
    /// `None` once the record is sent or left out.
    record: Option<Record>,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Record {
    fingerprint: Arc<Fingerprint>,
    session: Option<SessionKey>,
    at_ms: u64,
    prompt_tokens: Option<u32>,
    output_tokens: Option<u32>,
    output_tokens_max: Option<u32>,
}

impl Recorder {
    /// Starts a recording of at most `requests_max` requests.
    /// Fails when a recording is running.
    pub fn start(
        self: &Arc<Self>,
        now: Time,
        requests_max: u64,
    ) -> Result<RecordReader, RecordingInProgress> {
        let mut tape = self.tape.lock();
        if tape.is_some() {
            return Err(RecordingInProgress);
        }
        let (sender, records) = mpsc::channel(RECORDS_MAX);
        let counts = Arc::new(RecordCounts::default());
        *tape = Some(Tape {
            records: sender,
            counts: Arc::clone(&counts),
            start: now,
            requests_left: requests_max,
        });
        self.is_on.store(true, Ordering::Relaxed);
        Ok(RecordReader {
            recorder: Arc::clone(self),
            counts,
            records,
        })
    }

    /// Records a new request, if a recording is running. Calls `now` only then.
    pub(crate) fn begin(
        &self,
        now: impl FnOnce() -> Time,
        fingerprint: &Arc<Fingerprint>,
        session: Option<SessionKey>,
        output_tokens_max: Option<u32>,
    ) -> Option<Box<RecordingEntry>> {
        if !self.is_on() {
            return None;
        }
        let mut guard = self.tape.lock();
        let tape = guard.as_mut()?;
        tape.requests_left = tape.requests_left.checked_sub(1)?;
        let at = now().since(tape.start);
        let entry = RecordingEntry {
            records: tape.records.clone(),
            counts: Arc::clone(&tape.counts),
            record: Some(Record {
                fingerprint: Arc::clone(fingerprint),
                session,
                at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
                prompt_tokens: None,
                output_tokens: None,
                output_tokens_max,
            }),
        };
        entry.counts.open.fetch_add(1, Ordering::Relaxed);
        if tape.requests_left == 0 {
            self.is_on.store(false, Ordering::Relaxed);
            *guard = None;
        }
        Some(Box::new(entry))
    }

    /// Whether a recording takes requests.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }
}

impl RecordReader {
    /// Returns the next request that has ended; `None` once the recording takes no more requests and all have ended.
    /// Cancelling the call loses nothing.
    pub async fn next(&mut self) -> Option<Record> {
        self.records.recv().await
    }

    /// Takes no more requests; requests under way may still end.
    pub fn close(&self) {
        let mut tape = self.recorder.tape.lock();
        if self.is_reader_of(tape.as_ref()) {
            self.recorder.is_on.store(false, Ordering::Relaxed);
            *tape = None;
        }
    }

    /// Whether the recording takes no more requests.
    pub fn is_closed(&self) -> bool {
        !self.is_reader_of(self.recorder.tape.lock().as_ref())
    }

    /// Summarises a recording that ends for the reason `why`.
    pub fn summary(&self, why: EndReason, recorded: u64) -> RecordingSummary {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RecordingSummary {
            why,
            recorded,
            dropped: count(&self.counts.dropped),
            failed: count(&self.counts.failed),
            unfinished: count(&self.counts.open),
        }
    }

    fn is_reader_of(&self, tape: Option<&Tape>) -> bool {
        tape.is_some_and(|tape| Arc::ptr_eq(&tape.counts, &self.counts))
    }
}

impl Drop for RecordReader {
    fn drop(&mut self) {
        self.close();
    }
}

impl RecordingEntry {
    /// Adds the outcome of the response.
    pub(crate) fn finish(&mut self, outcome: &Outcome) {
        if !(200..300).contains(&outcome.status) {
            self.record = None;
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(record) = &mut self.record {
            record.prompt_tokens = outcome.prompt_tokens;
            record.output_tokens = outcome.completion_tokens;
        }
    }
}

impl Drop for RecordingEntry {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(record) = self.record.take()
            && let Err(mpsc::error::TrySendError::Full(_)) = self.records.try_send(record)
        {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Record {
    /// Replaces hashes by the ids of this recording.
    pub fn salted(&self, salt: &Salt, region: Option<&str>) -> RecordedRequest {
        let blocks = self.fingerprint.blocks().iter();
        RecordedRequest {
            at_ms: self.at_ms,
            session: self.session.map(|key| salt.session(key.0)),
            region: region.map(str::to_owned),
            blocks: blocks
                .map(|block| (salt.prefix(block.hash), block.end_bytes))
                .collect(),
            bytes: self.fingerprint.total_bytes(),
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            output_tokens_max: self.output_tokens_max,
        }
    }
}
