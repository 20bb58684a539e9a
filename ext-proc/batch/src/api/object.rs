//! Files and batches as OpenAI's API shows them.

use serde::Serialize;
use serde_json::Value;

use super::ApiError;
use crate::pace::UnixMs;
use crate::store::{BatchRow, FileRow};

/// A file as OpenAI's API shows it.
#[derive(Debug, Serialize)]
pub struct FileObject {
    id: String,
    object: &'static str,
    bytes: u64,
    created_at: i64,
    expires_at: Option<i64>,
    filename: String,
    purpose: String,
    status: &'static str,
}

/// A batch as OpenAI's API shows it.
#[derive(Debug, Serialize)]
pub struct BatchObject {
    id: String,
    object: &'static str,
    endpoint: &'static str,
    model: Option<String>,
    errors: Option<Value>,
    input_file_id: String,
    completion_window: String,
    status: &'static str,
    output_file_id: Option<String>,
    error_file_id: Option<String>,
    created_at: i64,
    in_progress_at: Option<i64>,
    expires_at: i64,
    finalizing_at: Option<i64>,
    completed_at: Option<i64>,
    failed_at: Option<i64>,
    expired_at: Option<i64>,
    cancelling_at: Option<i64>,
    cancelled_at: Option<i64>,
    request_counts: RequestCounts,
    metadata: Option<Value>,
}

#[derive(Debug, Serialize)]
struct RequestCounts {
    total: u64,
    completed: u64,
    failed: u64,
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub(super) struct Page<T> {
    object: &'static str,
    data: Vec<T>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// Response to a deletion.
#[derive(Debug, Serialize)]
pub(super) struct Deletion {
    pub(super) id: String,
    pub(super) object: &'static str,
    pub(super) deleted: bool,
}

impl<T> Page<T> {
    /// Makes a page of at most `limit` items out of `limit + 1` rows, whose names `id` gives.
    pub(super) fn new<R>(
        mut rows: Vec<R>,
        limit: u32,
        id: impl Fn(&R) -> String,
        item: impl Fn(R) -> T,
    ) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        Self {
            object: "list",
            first_id: rows.first().map(&id),
            last_id: rows.last().map(&id),
            data: rows.into_iter().map(item).collect(),
            has_more,
        }
    }
}

/// Checks the name behind which a list begins.
pub(super) fn cursor(after: &str) -> Result<&str, ApiError> {
    match after.contains('\0') {
        true => Err(ApiError::invalid(
            Some("after"),
            "`after` must be a name of the list before: it has a NUL.",
        )),
        false => Ok(after),
    }
}

impl From<FileRow> for FileObject {
    fn from(file: FileRow) -> Self {
        Self {
            id: file.id,
            object: "file",
            bytes: file.bytes,
            created_at: seconds(file.created_at),
            expires_at: file.expires_at.map(seconds),
            filename: file.name,
            purpose: file.purpose,
            status: "processed",
        }
    }
}

impl From<BatchRow> for BatchObject {
    fn from(batch: BatchRow) -> Self {
        let json = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        Self {
            id: batch.id,
            object: "batch",
            endpoint: batch.endpoint.path(),
            model: Some(batch.model).filter(|model| !model.is_empty()),
            errors: json(batch.errors),
            input_file_id: batch.input_file_id,
            completion_window: batch.window.to_string(),
            status: batch.status.into(),
            output_file_id: batch.output_file_id,
            error_file_id: batch.error_file_id,
            created_at: seconds(batch.created_at),
            in_progress_at: batch.in_progress_at.map(seconds),
            expires_at: seconds(batch.expires_at),
            finalizing_at: batch.finalizing_at.map(seconds),
            completed_at: batch.completed_at.map(seconds),
            failed_at: batch.failed_at.map(seconds),
            expired_at: batch.expired_at.map(seconds),
            cancelling_at: batch.cancelling_at.map(seconds),
            cancelled_at: batch.cancelled_at.map(seconds),
            request_counts: RequestCounts {
                total: batch.total,
                completed: batch.completed,
                failed: batch.failed,
            },
            metadata: json(batch.metadata),
        }
    }
}

fn seconds(time: UnixMs) -> i64 {
    time.div_euclid(1_000)
}
