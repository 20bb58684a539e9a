//! Taps one pool.
//!
//! A request's `RecordingEntry` lives in its ticket, so whatever ends the request ends the entry, and its drop is what sends the
//! record. The channel closes by itself when the recording takes no more requests and the last entry is gone: nobody has
//! to know who is still under way.
//!
//! Requests of other regions are theirs to record, and so is a request that came back from one already here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isotherm_fingerprint::Fingerprint;
use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::{Scope, SessionKey, Time};
use tokio::sync::mpsc;

use super::event::RecordedRequest;
use super::salt::Salt;
use crate::pool::RouteRequest;

/// Records that wait to be written. One is at most 6 KB, so all of them are at most 25 MB.
const RECORDS_MAX: usize = 4096;

/// What a pool asks for each request: whether it is recorded.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Whether there is a tape.
    on: AtomicBool,
    tape: Mutex<Option<Tape>>,
}

/// Where the recording that runs puts what it hears.
#[derive(Debug)]
struct Tape {
    records: mpsc::Sender<Record>,
    counts: Arc<Counts>,
    begun: Time,
    /// How many requests it still takes.
    left: u64,
}

#[derive(Debug, Default)]
struct Counts {
    dropped: AtomicU64,
    failed: AtomicU64,
    open: AtomicU64,
}

/// A recording; it ends when it is dropped.
#[derive(Debug)]
pub struct Recording {
    recorder: Arc<Recorder>,
    counts: Arc<Counts>,
    records: mpsc::Receiver<Record>,
}

/// Another recording of this pool is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingInProgress;

/// A request that is being recorded.
#[derive(Debug)]
pub(crate) struct RecordingEntry {
    records: mpsc::Sender<Record>,
    counts: Arc<Counts>,
    /// `None` once it is sent, or left out.
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
    /// Begins a recording of at most so many requests.
    ///
    /// # Errors
    ///
    /// When one is running.
    pub fn start(
        self: &Arc<Self>,
        now: Time,
        requests_max: u64,
    ) -> Result<Recording, RecordingInProgress> {
        let mut tape = self.lock();
        if tape.is_some() {
            return Err(RecordingInProgress);
        }
        let (sender, records) = mpsc::channel(RECORDS_MAX);
        let counts = Arc::new(Counts::default());
        *tape = Some(Tape {
            records: sender,
            counts: Arc::clone(&counts),
            begun: now,
            left: requests_max,
        });
        self.on.store(true, Ordering::Relaxed);
        Ok(Recording {
            recorder: Arc::clone(self),
            counts,
            records,
        })
    }

    /// A request came; the answer is its entry, if it is recorded.
    pub(crate) fn begin(
        &self,
        now: impl FnOnce() -> Time,
        ask: &RouteRequest,
    ) -> Option<Box<RecordingEntry>> {
        if !self.on.load(Ordering::Relaxed) {
            return None;
        }
        let own = match &ask.scope {
            Scope::Guest => false,
            Scope::Regions { tried } => tried.is_empty(),
            Scope::Home => true,
        };
        if !own {
            return None;
        }
        let mut slot = self.lock();
        let tape = slot.as_mut()?;
        tape.left = tape.left.checked_sub(1)?;
        let since = now().since(tape.begun);
        let entry = RecordingEntry {
            records: tape.records.clone(),
            counts: Arc::clone(&tape.counts),
            record: Some(Record {
                fingerprint: Arc::clone(&ask.fingerprint),
                session: ask.session,
                at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
                prompt_tokens: None,
                output_tokens: None,
                output_tokens_max: ask.output_tokens_max,
            }),
        };
        entry.counts.open.fetch_add(1, Ordering::Relaxed);
        if tape.left == 0 {
            self.on.store(false, Ordering::Relaxed);
            *slot = None;
        }
        Some(Box::new(entry))
    }

    /// Whether a recording takes requests.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Takes no more requests.
    fn stop(&self, counts: &Arc<Counts>) {
        let mut tape = self.lock();
        if tape
            .as_ref()
            .is_some_and(|tape| Arc::ptr_eq(&tape.counts, counts))
        {
            self.on.store(false, Ordering::Relaxed);
            *tape = None;
        }
    }

    /// Nothing in here is left half done by a panic of another thread.
    fn lock(&self) -> MutexGuard<'_, Option<Tape>> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recording {
    /// The next request that has ended; `None` once the recording takes no more and all have. Cancelling this loses
    /// nothing.
    pub async fn next(&mut self) -> Option<Record> {
        self.records.recv().await
    }

    /// Takes no more requests; those under way may still end.
    pub fn close(&self) {
        self.recorder.stop(&self.counts);
    }

    /// Whether it takes no more requests.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let tape = self.recorder.lock();
        !tape
            .as_ref()
            .is_some_and(|tape| Arc::ptr_eq(&tape.counts, &self.counts))
    }

    /// Requests that were left out because records came faster than they were taken.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Requests that were left out because the engine answered them with an error.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.counts.open.load(Ordering::Relaxed)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.close();
    }
}

impl RecordingEntry {
    /// The engine's answer has ended.
    pub(crate) fn finished(&mut self, outcome: &Outcome) {
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
    /// What is told of it.
    #[must_use]
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

#[cfg(test)]
mod tests;
