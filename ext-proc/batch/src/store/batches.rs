//! Batches: their state as OpenAI's API shows it.

use std::str::FromStr as _;

use sqlx::Row as _;
use sqlx::any::AnyRow;
use strum::{Display, EnumString, IntoStaticStr};

use super::{ROW_BYTES, Store, StoreError, StoreResult, count, stored};
use crate::completion_window::CompletionWindow;
use crate::endpoint::Endpoint;
use crate::pace::UnixMs;

/// The state of a batch, as OpenAI names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum BatchStatus {
    /// The input file is being checked.
    Validating,
    /// The input file has mistakes.
    Failed,
    /// Lines are being sent.
    InProgress,
    /// Every line has a result, or the deadline has passed.
    Finalizing,
    /// Every line has a result.
    Completed,
    /// The deadline passed before every line had a response.
    Expired,
    /// Lines at the gateway are awaited, no others are sent.
    Cancelling,
    /// The batch was cancelled.
    Cancelled,
}

impl BatchStatus {
    /// Whether the batch changes no more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Failed | Self::Completed | Self::Expired | Self::Cancelled => true,
            Self::Validating | Self::InProgress | Self::Finalizing | Self::Cancelling => false,
        }
    }
}

/// A new batch.
#[derive(Clone, Debug)]
pub struct NewBatch {
    /// Name of the batch, `batch_…`.
    pub id: String,
    /// Client that owns the batch.
    pub owner: String,
    /// Path of every request.
    pub endpoint: Endpoint,
    /// File with the requests.
    pub input_file_id: String,
    /// Time for all requests.
    pub window: CompletionWindow,
    /// The caller's notes, as a JSON object.
    pub metadata: Option<String>,
    /// Time that the output files stay, in seconds.
    pub output_ttl_s: Option<u64>,
    /// File into which `isotherm batch run` writes the output.
    pub output_path: Option<String>,
}

/// A batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchRow {
    /// Name of the batch, `batch_…`.
    pub id: String,
    /// Client that owns the batch.
    pub owner: String,
    /// Path of every request.
    pub endpoint: Endpoint,
    /// Model of every request; empty until the input is checked.
    pub model: String,
    /// State.
    pub status: BatchStatus,
    /// File with the requests.
    pub input_file_id: String,
    /// File with the responses.
    pub output_file_id: Option<String>,
    /// File with the errors.
    pub error_file_id: Option<String>,
    /// Time for all requests.
    pub window: CompletionWindow,
    /// Creation.
    pub created_at: UnixMs,
    /// End of the check.
    pub in_progress_at: Option<UnixMs>,
    /// Deadline.
    pub expires_at: UnixMs,
    /// Begin of `finalizing`.
    pub finalizing_at: Option<UnixMs>,
    /// Time of `completed`.
    pub completed_at: Option<UnixMs>,
    /// Time of `failed`.
    pub failed_at: Option<UnixMs>,
    /// Time of `expired`, or of the deadline while the batch is `finalizing`.
    pub expired_at: Option<UnixMs>,
    /// Begin of `cancelling`.
    pub cancelling_at: Option<UnixMs>,
    /// Time of `cancelled`.
    pub cancelled_at: Option<UnixMs>,
    /// Number of lines.
    pub total: u64,
    /// Lines with a response of status 2xx.
    pub completed: u64,
    /// Lines with an error.
    pub failed: u64,
    /// Mistakes of the input file, as JSON.
    pub errors: Option<String>,
    /// The caller's notes, as a JSON object.
    pub metadata: Option<String>,
    /// Time that the output files stay, in seconds.
    pub output_ttl_s: Option<u64>,
    /// File into which `isotherm batch run` writes the output.
    pub output_path: Option<String>,
}

impl BatchRow {
    pub(super) fn read(row: &AnyRow) -> StoreResult<Self> {
        let status: String = row.try_get("status")?;
        let endpoint: String = row.try_get("endpoint")?;
        let ttl: Option<i64> = row.try_get("output_ttl_s")?;
        Ok(Self {
            id: row.try_get("id")?,
            owner: row.try_get("owner")?,
            endpoint: Endpoint::from_path(&endpoint).ok_or(StoreError::Unknown("endpoint"))?,
            model: row.try_get("model")?,
            status: BatchStatus::from_str(&status).map_err(|_| StoreError::Unknown("status"))?,
            input_file_id: row.try_get("input_file_id")?,
            output_file_id: row.try_get("output_file_id")?,
            error_file_id: row.try_get("error_file_id")?,
            window: CompletionWindow::from_seconds(row.try_get("window_s")?),
            created_at: row.try_get("created_at")?,
            in_progress_at: row.try_get("in_progress_at")?,
            expires_at: row.try_get("expires_at")?,
            finalizing_at: row.try_get("finalizing_at")?,
            completed_at: row.try_get("completed_at")?,
            failed_at: row.try_get("failed_at")?,
            expired_at: row.try_get("expired_at")?,
            cancelling_at: row.try_get("cancelling_at")?,
            cancelled_at: row.try_get("cancelled_at")?,
            total: count(row, "total")?,
            completed: count(row, "completed")?,
            failed: count(row, "failed")?,
            errors: row.try_get("errors")?,
            metadata: row.try_get("metadata")?,
            output_ttl_s: ttl.and_then(|ttl| u64::try_from(ttl).ok()),
            output_path: row.try_get("output_path")?,
        })
    }

    /// Lines without a result.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.total.saturating_sub(self.completed + self.failed)
    }
}

impl Store {
    /// Creates a batch in the state `validating`.
    pub async fn create_batch(&self, batch: &NewBatch) -> StoreResult<()> {
        let insert = "INSERT INTO isotherm_batches (id, owner, endpoint, model, status, input_file_id, window_s,
                created_at, expires_at, total, completed, failed, unfinished, metadata, output_ttl_s, output_path, is_delivered, steward_until, bytes)
            VALUES ($1, $2, $3, '', 'validating', $4, $5, {now}, {now} + $6, 0, 0, 0, 0, $7, $8, $9, 0, 0,
                COALESCE((SELECT lines * $10 FROM isotherm_files WHERE id = $4), 0))";
        let insert = self
            .timed(insert)
            .bind(&batch.id)
            .bind(&batch.owner)
            .bind(batch.endpoint.path())
            .bind(&batch.input_file_id)
            .bind(batch.window.seconds())
            .bind(batch.window.milliseconds())
            .bind(batch.metadata.clone())
            .bind(batch.output_ttl_s.map(stored))
            .bind(batch.output_path.clone())
            .bind(stored(ROW_BYTES));
        self.write(insert).await?;
        Ok(())
    }

    /// A batch of an owner, or of any owner.
    pub async fn batch(&self, owner: Option<&str>, id: &str) -> StoreResult<Option<BatchRow>> {
        // PostgreSQL has no text with a NUL, so nothing has such a name.
        if id.contains('\0') {
            return Ok(None);
        }
        let select = "SELECT * FROM isotherm_batches WHERE id = $1 AND (owner = $2 OR $2 = '')";
        let select = sqlx::query(select).bind(id).bind(owner.unwrap_or_default());
        let row = select.fetch_optional(&self.pool).await?;
        row.map(|row| BatchRow::read(&row)).transpose()
    }

    /// Batches of an owner or of all owners, newest first, after the batch `after`.
    pub async fn batches(
        &self,
        owner: Option<&str>,
        after: Option<&BatchRow>,
        limit: u32,
    ) -> StoreResult<Vec<BatchRow>> {
        let select = "SELECT * FROM isotherm_batches WHERE (owner = $1 OR $1 = '')
            AND (created_at < $2 OR (created_at = $2 AND id < $3)) ORDER BY created_at DESC, id DESC LIMIT $4";
        let select = sqlx::query(select)
            .bind(owner.unwrap_or_default())
            .bind(after.map_or(UnixMs::MAX, |batch| batch.created_at))
            .bind(after.map_or_else(String::new, |batch| batch.id.clone()))
            .bind(i64::from(limit));
        let rows = select.fetch_all(&self.pool).await?;
        rows.iter().map(BatchRow::read).collect()
    }

    /// The batch of `isotherm batch run` that writes to a file and has not written it yet.
    pub async fn undelivered_batch(&self, output_path: &str) -> StoreResult<Option<BatchRow>> {
        let select = "SELECT * FROM isotherm_batches WHERE output_path = $1 AND is_delivered = 0
            ORDER BY created_at DESC LIMIT 1";
        let select = sqlx::query(select).bind(output_path);
        let row = select.fetch_optional(&self.pool).await?;
        row.map(|row| BatchRow::read(&row)).transpose()
    }

    /// Records that `isotherm batch run` has written the files of a batch.
    pub async fn mark_delivered(&self, id: &str) -> StoreResult<()> {
        let update = "UPDATE isotherm_batches SET is_delivered = 1 WHERE id = $1";
        self.write(sqlx::query(update).bind(id)).await?;
        Ok(())
    }

    /// Batches whose lines are being sent: the first of each owner by deadline, then the second of each, and so on.
    pub async fn active_batches(&self, limit: u32) -> StoreResult<Vec<BatchRow>> {
        let select = "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY owner ORDER BY expires_at, id) AS owner_turn
            FROM isotherm_batches WHERE status = 'in_progress') AS active ORDER BY owner_turn, expires_at, id LIMIT $1";
        let select = sqlx::query(select).bind(i64::from(limit));
        let rows = select.fetch_all(&self.pool).await?;
        rows.iter().map(BatchRow::read).collect()
    }

    /// Asks for the end of a batch. Returns whether the batch could still be cancelled.
    pub async fn cancel_batch(&self, id: &str) -> StoreResult<bool> {
        let update = "UPDATE isotherm_batches SET status = 'cancelling', cancelling_at = {now}
            WHERE id = $1 AND status IN ('validating', 'in_progress')";
        let update = self.timed(update).bind(id);
        Ok(self.write(update).await? > 0)
    }
}
