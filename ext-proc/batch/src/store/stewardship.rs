//! Steps of a batch that one process at a time takes: validation, the end of a batch, and the removal of old state.

use sqlx::Row as _;

use super::transaction::WriteTransaction;
use super::{BatchRow, BatchStatus, ROW_BYTES, Store, StoreResult, count, stored};
use crate::id::random_id;
use crate::pace::UnixMs;

/// The next batch with a step to take: of the owner after the last one, as owners take turns, and then the one that waits for the
/// longest. A deadline must have passed by the database's clock and by this process's.
const NEXT_TASK: &str = "SELECT id FROM isotherm_batches WHERE (id = $1 OR $1 = '')
    AND (steward_until <= {now} OR steward_until > {now} + {ahead} OR steward = $2) AND (
        status IN ('validating', 'finalizing', 'cancelling')
        OR (status = 'in_progress' AND ((expires_at <= {now} AND expires_at <= $3) OR completed + failed >= total)))
    ORDER BY CASE WHEN owner > $4 THEN 0 ELSE 1 END, owner, steward_until, expires_at LIMIT 1";

/// A process that takes steps, and the owner of the batch of its last step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StewardTurn<'a> {
    pub(crate) name: &'a str,
    pub(crate) last_owner: &'a str,
}

/// A batch with a step to take.
#[derive(Clone, Debug, PartialEq)]
pub enum StewardTask {
    /// Check the input file.
    Validate(BatchRow),
    /// Give the lines that are left an error, and make the files.
    Finish(BatchRow),
}

impl StewardTask {
    /// The batch of the step.
    #[must_use]
    pub fn batch(&self) -> &BatchRow {
        match self {
            Self::Validate(batch) | Self::Finish(batch) => batch,
        }
    }
}

impl Store {
    /// Claims a batch that is new, complete, expired or cancelled; `only` limits it to one batch.
    pub(crate) async fn claim_steward_task(
        &self,
        steward: &StewardTurn<'_>,
        only: Option<&str>,
        lease_ms: i64,
    ) -> StoreResult<Option<StewardTask>> {
        let select = self
            .timed(NEXT_TASK)
            .bind(only.unwrap_or_default())
            .bind(steward.name)
            .bind(self.deadline_limit())
            .bind(steward.last_owner);
        let Some(row) = select.fetch_optional(&self.pool).await? else {
            return Ok(None);
        };
        let id: String = row.try_get("id")?;
        if !self.hold_batch(steward.name, &id, lease_ms).await? {
            return Ok(None);
        }
        let batch = self.batch(None, &id).await?;
        Ok(batch.and_then(|batch| match batch.status {
            BatchStatus::Validating => Some(StewardTask::Validate(batch)),
            BatchStatus::Failed
            | BatchStatus::Completed
            | BatchStatus::Expired
            | BatchStatus::Cancelled => None,
            BatchStatus::InProgress | BatchStatus::Finalizing | BatchStatus::Cancelling => {
                Some(StewardTask::Finish(batch))
            }
        }))
    }

    /// The latest deadline that has passed for certain; none while the time is in doubt.
    fn deadline_limit(&self) -> UnixMs {
        match self.is_time_confirmed() {
            true => self.now(),
            false => UnixMs::MIN,
        }
    }

    /// Takes or extends the lease of a batch. Returns whether this process has it.
    pub(crate) async fn hold_batch(
        &self,
        steward: &str,
        batch: &str,
        lease_ms: i64,
    ) -> StoreResult<bool> {
        let update = "UPDATE isotherm_batches SET steward = $1, steward_until = {now} + $2
            WHERE id = $3 AND (steward_until <= {now} OR steward_until > {now} + {ahead} OR steward = $1)";
        let update = self.timed(update).bind(steward).bind(lease_ms).bind(batch);
        Ok(self.write(update).await? > 0)
    }

    /// Ends the validation of a batch: its lines may be sent.
    pub(crate) async fn start_batch(
        &self,
        batch: &str,
        model: &str,
        total: u64,
    ) -> StoreResult<()> {
        let update = "UPDATE isotherm_batches SET status = 'in_progress', in_progress_at = {now}, model = $1, total = $2,
            steward_until = 0 WHERE id = $3 AND status = 'validating'";
        let update = self
            .timed(update)
            .bind(model)
            .bind(stored(total))
            .bind(batch);
        let mut transaction = self.begin().await?;
        let started = update.execute(&mut *transaction).await?.rows_affected();
        if started == 0 {
            // Cancelled meanwhile: the lines count all the same, and get their errors.
            let update = "UPDATE isotherm_batches SET model = $1, total = $2, steward_until = 0
                WHERE id = $3 AND status = 'cancelling'";
            let update = sqlx::query(update)
                .bind(model)
                .bind(stored(total))
                .bind(batch);
            update.execute(&mut *transaction).await?;
        }
        let size = "UPDATE isotherm_batches SET bytes = (SELECT CAST(COALESCE(SUM($1 + OCTET_LENGTH(custom_id)), 0) AS BIGINT)
            FROM isotherm_requests WHERE batch_id = $2) WHERE id = $2 AND completed + failed = 0";
        let size = sqlx::query(size).bind(stored(ROW_BYTES)).bind(batch);
        size.execute(&mut *transaction).await?;
        transaction.commit().await
    }

    /// Ends the validation of a batch whose input file has mistakes.
    pub(crate) async fn fail_batch(&self, batch: &str, errors: &str) -> StoreResult<()> {
        self.remove_requests(batch).await?;
        let update = "UPDATE isotherm_batches SET status = 'failed', failed_at = {now}, errors = $1, total = 0, bytes = 0, steward_until = 0
            WHERE id = $2 AND status = 'validating'";
        let update = self.timed(update).bind(errors).bind(batch);
        self.write(update).await?;
        Ok(())
    }

    /// Begins the end of a batch: no line of it is claimed from now on.
    pub(crate) async fn begin_finish(&self, batch: &BatchRow) -> StoreResult<()> {
        let update = "UPDATE isotherm_batches SET status = 'finalizing', finalizing_at = {now},
            expired_at = CASE WHEN $1 > 0 THEN {now} END WHERE id = $2 AND status = 'in_progress'";
        let update = self
            .timed(update)
            .bind(stored(batch.remaining()))
            .bind(&batch.id);
        self.write(update).await?;
        Ok(())
    }

    /// Ends a batch if every line has a result: counts, makes the output files, sets the last state. Returns whether it
    /// did.
    pub(crate) async fn finish_batch(&self, batch: &BatchRow) -> StoreResult<bool> {
        let mut transaction = self.begin().await?;
        let open = "SELECT COUNT(*) AS lines FROM isotherm_requests WHERE batch_id = $1 AND done_at IS NULL";
        let open = sqlx::query(open)
            .bind(&batch.id)
            .fetch_one(&mut *transaction)
            .await?;
        if count(&open, "lines")? > 0 {
            transaction.roll_back().await?;
            return Ok(false);
        }
        let mut files = [None, None];
        for (file, is_success) in files.iter_mut().zip([true, false]) {
            *file = self.make_file(&mut transaction, batch, is_success).await?;
        }
        let [output, errors] = files;
        let (status, update) = match (batch.cancelling_at, batch.expired_at) {
            (Some(_), _) => (BatchStatus::Cancelled, FINISH_CANCELLED),
            (None, Some(_)) if has_unfinished_line(&mut transaction, &batch.id).await? => {
                (BatchStatus::Expired, FINISH_EXPIRED)
            }
            (None, _) => (BatchStatus::Completed, FINISH_COMPLETED),
        };
        let status: &'static str = status.into();
        let update = self
            .timed(update)
            .bind(status)
            .bind(output)
            .bind(errors)
            .bind(&batch.id);
        if update.execute(&mut *transaction).await?.rows_affected() == 0 {
            // Another process was faster.
            transaction.roll_back().await?;
            return Ok(false);
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Makes the output or the error file of a batch; `None` if it would be empty.
    async fn make_file(
        &self,
        transaction: &mut WriteTransaction,
        batch: &BatchRow,
        is_success: bool,
    ) -> StoreResult<Option<String>> {
        let select =
            "SELECT COUNT(*) AS lines, CAST(COALESCE(SUM(LENGTH(result)), 0) AS BIGINT) AS bytes
        FROM isotherm_requests WHERE batch_id = $1 AND is_success = $2";
        let select = sqlx::query(select)
            .bind(&batch.id)
            .bind(i64::from(is_success));
        let row = select.fetch_one(&mut **transaction).await?;
        let (lines, bytes) = (count(&row, "lines")?, count(&row, "bytes")?);
        if lines == 0 {
            return Ok(None);
        }
        let id = random_id("file-");
        let kind = if is_success { "output" } else { "error" };
        let insert = "INSERT INTO isotherm_files (id, owner, purpose, name, status, bytes, lines, created_at, expires_at, batch_id,
            is_success) VALUES ($1, $2, 'batch_output', $3, 'processed', $4, $5, {now}, {now} + $6, $7, $8)";
        let insert = self
            .timed(insert)
            .bind(&id)
            .bind(&batch.owner)
            .bind(format!("{}_{kind}.jsonl", batch.id))
            .bind(stored(bytes))
            .bind(stored(lines))
            .bind(
                batch
                    .output_ttl_s
                    .map(|ttl_s| stored(ttl_s).saturating_mul(1_000)),
            )
            .bind(&batch.id)
            .bind(i64::from(is_success));
        insert.execute(&mut **transaction).await?;
        Ok(Some(id))
    }

    /// Removes finished batches with their lines and output files, `limit` at most. Returns how many.
    pub(crate) async fn remove_old_batches(
        &self,
        finished_before: UnixMs,
        limit: u32,
    ) -> StoreResult<usize> {
        let select = "SELECT id FROM isotherm_batches WHERE status IN ('completed', 'failed', 'expired', 'cancelled')
            AND COALESCE(completed_at, failed_at, cancelled_at, expired_at) < $1 LIMIT $2";
        let select = sqlx::query(select)
            .bind(finished_before)
            .bind(i64::from(limit));
        let rows = select.fetch_all(&self.pool).await?;
        for row in &rows {
            let id: String = row.try_get("id")?;
            let mut transaction = self.begin().await?;
            for statement in [
                "DELETE FROM isotherm_requests WHERE batch_id = $1",
                "DELETE FROM isotherm_files WHERE batch_id = $1",
                "DELETE FROM isotherm_batches WHERE id = $1",
            ] {
                sqlx::query(statement)
                    .bind(&id)
                    .execute(&mut *transaction)
                    .await?;
            }
            transaction.commit().await?;
        }
        Ok(rows.len())
    }
}

const FINISH_CANCELLED: &str =
    "UPDATE isotherm_batches SET status = $1, cancelled_at = {now}, output_file_id = $2,
    error_file_id = $3, steward_until = 0 WHERE id = $4 AND status = 'cancelling'";
const FINISH_EXPIRED: &str =
    "UPDATE isotherm_batches SET status = $1, expired_at = {now}, output_file_id = $2,
    error_file_id = $3, steward_until = 0 WHERE id = $4 AND status = 'finalizing'";
const FINISH_COMPLETED: &str = "UPDATE isotherm_batches SET status = $1, completed_at = {now}, expired_at = NULL,
    output_file_id = $2, error_file_id = $3, steward_until = 0 WHERE id = $4 AND status = 'finalizing'";

/// Whether a line of the batch has no response because the deadline passed.
async fn has_unfinished_line(transaction: &mut WriteTransaction, batch: &str) -> StoreResult<bool> {
    let select = "SELECT unfinished FROM isotherm_batches WHERE id = $1";
    let row = sqlx::query(select)
        .bind(batch)
        .fetch_one(&mut **transaction)
        .await?;
    Ok(count(&row, "unfinished")? > 0)
}
