//! Use of the queue's bounds, by all owners and by one.

use sqlx::any::AnyRow;

use super::{Store, StoreResult, count};
use crate::limits::Usage;

/// Bytes that count for the row of a line, beside its `custom_id` and its result.
pub(crate) const ROW_BYTES: u64 = 256;

/// Use of the storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageUse {
    /// Bytes of files, of running uploads, and of the lines and results of batches.
    pub bytes: Usage,
    /// Number of files.
    pub files: Usage,
}

/// Batches that are not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenBatches {
    /// Number of batches.
    pub batches: Usage,
    /// Lines without a result.
    pub lines: Usage,
}

impl Store {
    /// The storage in use, by all owners and by one.
    pub async fn storage_used(&self, owner: &str) -> StoreResult<StorageUse> {
        // The bytes of output files are results of their batches.
        let files = "SELECT COUNT(*) AS all_files, COUNT(CASE WHEN owner = $1 THEN 1 END) AS owner_files,
            CAST(COALESCE(SUM(CASE WHEN batch_id IS NULL THEN bytes END), 0) AS BIGINT) AS all_bytes,
            CAST(COALESCE(SUM(CASE WHEN batch_id IS NULL AND owner = $1 THEN bytes END), 0) AS BIGINT) AS owner_bytes
            FROM isotherm_files";
        let files = sqlx::query(files).bind(owner).fetch_one(&self.pool).await?;
        let batches = "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS all_bytes,
            CAST(COALESCE(SUM(CASE WHEN owner = $1 THEN bytes END), 0) AS BIGINT) AS owner_bytes FROM isotherm_batches";
        let batches = sqlx::query(batches)
            .bind(owner)
            .fetch_one(&self.pool)
            .await?;
        let (in_files, in_batches) = (bytes(&files)?, bytes(&batches)?);
        Ok(StorageUse {
            bytes: Usage {
                all: in_files.all.saturating_add(in_batches.all),
                owner: in_files.owner.saturating_add(in_batches.owner),
            },
            files: Usage {
                all: count(&files, "all_files")?,
                owner: count(&files, "owner_files")?,
            },
        })
    }

    /// The batches that are not finished, of all owners and of one. A batch that is not validated yet has the lines of its file.
    pub async fn open_batches(&self, owner: &str) -> StoreResult<OpenBatches> {
        let select = "SELECT COUNT(*) AS all_batches, COUNT(CASE WHEN owner = $1 THEN 1 END) AS owner_batches,
            CAST(COALESCE(SUM(lines), 0) AS BIGINT) AS all_lines,
            CAST(COALESCE(SUM(CASE WHEN owner = $1 THEN lines END), 0) AS BIGINT) AS owner_lines
            FROM (SELECT batch.owner, CASE WHEN batch.status = 'validating' THEN file.lines
                    ELSE batch.total - batch.completed - batch.failed END AS lines
                FROM isotherm_batches AS batch LEFT JOIN isotherm_files AS file ON file.id = batch.input_file_id
                WHERE batch.status IN ('validating', 'in_progress', 'finalizing', 'cancelling')) AS open_batches";
        let row = sqlx::query(select)
            .bind(owner)
            .fetch_one(&self.pool)
            .await?;
        Ok(OpenBatches {
            batches: Usage {
                all: count(&row, "all_batches")?,
                owner: count(&row, "owner_batches")?,
            },
            lines: Usage {
                all: count(&row, "all_lines")?,
                owner: count(&row, "owner_lines")?,
            },
        })
    }
}

fn bytes(row: &AnyRow) -> StoreResult<Usage> {
    Ok(Usage {
        all: count(row, "all_bytes")?,
        owner: count(row, "owner_bytes")?,
    })
}
