//! A batch from a file of this machine, as `isotherm batch run` makes it.
//!
//! The batch is found again by the path of its output and the content of its input: the same command after a crash goes on
//! with it. Rejected: a file beside the output with the batch's name, which a crash could leave behind half written.

use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use twox_hash::XxHash3_64;

use crate::completion_window::CompletionWindow;
use crate::endpoint::Endpoint;
use crate::id::random_id;
use crate::limits::{Limits, OWNER_WITHOUT_KEY};
use crate::line::{LineError, RequestLine, is_blank};
use crate::store::{BatchRow, FileSink, NewBatch, NewFile, SinkError, Store, StoreError};

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file of requests.
#[derive(Debug)]
pub struct InputFile {
    path: PathBuf,
    endpoint: Endpoint,
    digest: String,
}

/// A new batch of this machine.
#[derive(Debug)]
pub struct Submission<'a> {
    /// Requests.
    pub input: &'a InputFile,
    /// Path of the output.
    pub output_path: &'a str,
    /// Time for all requests.
    pub window: CompletionWindow,
    /// Bounds.
    pub limits: &'a Limits,
}

/// Error of a submission.
#[derive(Debug, thiserror::Error)]
pub enum SubmissionError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// The first line is no request, so the path of the requests is unknown.
    #[error("line {line}: {error}")]
    Line {
        /// Number of the line.
        line: u64,
        /// The mistake.
        error: LineError,
    },
    /// No request at all.
    #[error("the file has no request")]
    Empty,
    /// The file does not fit, or the database fails.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The database fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output belongs to a batch with another input.
    #[error("the output belongs to the batch {0}, which has another input")]
    OtherInput(String),
}

impl InputFile {
    /// Reads a file once: its first request says where all of them go, and the digest of its content finds the batch of an
    /// earlier run.
    ///
    /// # Errors
    /// The file cannot be read, or its first line is no request.
    pub async fn read(path: &Path) -> Result<Self, SubmissionError> {
        let endpoint = first_endpoint(path).await?;
        let mut file = File::open(path).await?;
        let mut hasher = XxHash3_64::default();
        let (mut chunk, mut bytes) = (vec![0; CHUNK_BYTES], 0_u64);
        loop {
            let length = file.read(&mut chunk).await?;
            if length == 0 {
                break;
            }
            hasher.write(chunk.get(..length).unwrap_or_default());
            bytes += length as u64;
        }
        Ok(Self {
            path: path.to_owned(),
            endpoint,
            digest: format!("{bytes}-{:016x}", hasher.finish()),
        })
    }
}

/// The path of the first request.
async fn first_endpoint(path: &Path) -> Result<Endpoint, SubmissionError> {
    /// Longest first line, in bytes.
    const LINE_BYTES_MAX: u64 = 64 << 20;
    let mut reader = BufReader::new(File::open(path).await?);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        let mut bounded = (&mut reader).take(LINE_BYTES_MAX);
        if bounded.read_until(b'\n', &mut line).await? == 0 {
            return Err(SubmissionError::Empty);
        }
        number += 1;
        if !is_blank(&line) {
            let request = RequestLine::parse(&line);
            let request = request.map_err(|error| SubmissionError::Line {
                line: number,
                error,
            })?;
            return Ok(request.endpoint);
        }
    }
}

impl Submission<'_> {
    /// Finds the batch of an earlier run, or makes one. Returns whether it is new.
    ///
    /// # Errors
    /// The input does not fit, the output belongs to another batch, or the database fails.
    pub async fn submit(&self, store: &Store) -> Result<(BatchRow, bool), SubmissionError> {
        let metadata = json!({ "digest": self.input.digest }).to_string();
        if let Some(batch) = store.undelivered_batch(self.output_path).await? {
            if batch.metadata.as_ref() == Some(&metadata) {
                return Ok((batch, false));
            }
            if !batch.status.is_final() {
                return Err(SubmissionError::OtherInput(batch.id));
            }
        }
        let file = NewFile {
            id: random_id("file-"),
            owner: OWNER_WITHOUT_KEY.to_owned(),
            name: file_name(&self.input.path),
        };
        if let Err(error) = self.upload(store, &file).await {
            // What was written goes at once, or else with the files that never ended.
            let _ = store.delete_file(&file.id).await;
            return Err(error);
        }
        let batch = NewBatch {
            id: random_id("batch_"),
            owner: file.owner,
            endpoint: self.input.endpoint,
            input_file_id: file.id,
            window: self.window,
            metadata: Some(metadata),
            output_ttl_s: None,
            output_path: Some(self.output_path.to_owned()),
        };
        store.create_batch(&batch).await?;
        let row = store.batch(None, &batch.id).await?;
        row.map(|row| (row, true))
            .ok_or(SubmissionError::Store(StoreError::Unknown("batch")))
    }

    async fn upload(&self, store: &Store, file: &NewFile) -> Result<(), SubmissionError> {
        let mut input = File::open(&self.input.path).await?;
        let mut sink = FileSink::begin(store, file, self.limits).await?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = input.read(&mut chunk).await?;
            if length == 0 {
                break;
            }
            sink.write(chunk.get(..length).unwrap_or_default()).await?;
        }
        sink.finish(None).await?;
        Ok(())
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.chars()
        .take(crate::limits::FILE_NAME_CHARACTERS_MAX)
        .collect()
}
