//! Files: uploaded input, and the output and error files of batches.

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::statement::Statement;
use super::{Store, StoreResult, count, stored};
use crate::pace::UnixMs;

/// State of a file whose lines still arrive.
const UPLOADING: &str = "uploading";
/// State of a file that is complete.
const PROCESSED: &str = "processed";

/// A new file.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Name of the file, `file-…`.
    pub id: String,
    /// Client that owns the file.
    pub owner: String,
    /// Name that the client gives the file.
    pub name: String,
}

/// The order of a list of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOrder {
    /// Newest files first.
    NewestFirst,
    /// Oldest files first.
    OldestFirst,
}

const NEWEST_FIRST: &str = "SELECT * FROM isotherm_files WHERE owner = $1 AND status = $2
    AND (purpose = $3 OR $3 = '') AND (created_at < $4 OR (created_at = $4 AND id < $5))
    ORDER BY created_at DESC, id DESC LIMIT $6";
const OLDEST_FIRST: &str = "SELECT * FROM isotherm_files WHERE owner = $1 AND status = $2
    AND (purpose = $3 OR $3 = '') AND (created_at > $4 OR (created_at = $4 AND id > $5))
    ORDER BY created_at, id LIMIT $6";

/// A complete file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    /// Name of the file, `file-…`.
    pub id: String,
    /// `batch` or `batch_output`.
    pub purpose: String,
    /// Name that the client gave the file.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of lines.
    pub lines: u64,
    /// Time of the upload, or of the batch's end.
    pub created_at: UnixMs,
    /// Time after which the file goes.
    pub expires_at: Option<UnixMs>,
    /// Batch whose results the file has, and whether these are the successful ones.
    pub(super) results_of: Option<(String, bool)>,
}

impl FileRow {
    pub(super) fn read(row: &AnyRow) -> StoreResult<Self> {
        let batch: Option<String> = row.try_get("batch_id")?;
        let is_success: Option<i64> = row.try_get("is_success")?;
        Ok(Self {
            id: row.try_get("id")?,
            purpose: row.try_get("purpose")?,
            name: row.try_get("name")?,
            bytes: count(row, "bytes")?,
            lines: count(row, "lines")?,
            created_at: row.try_get("created_at")?,
            expires_at: row.try_get("expires_at")?,
            results_of: batch.map(|batch| (batch, is_success == Some(1))),
        })
    }
}

impl Store {
    /// Begins a file; its lines follow by `append_lines`.
    pub(super) async fn begin_file(&self, file: &NewFile) -> StoreResult<()> {
        let insert = "INSERT INTO isotherm_files (id, owner, purpose, name, status, bytes, lines, created_at)
            VALUES ($1, $2, 'batch', $3, $4, 0, 0, {now})";
        let insert = self
            .timed(insert)
            .bind(&file.id)
            .bind(&file.owner)
            .bind(&file.name)
            .bind(UPLOADING);
        self.write(insert).await?;
        Ok(())
    }

    /// Appends lines to a file, whose size grows by them; `first` is the number of the first of them.
    pub(super) async fn append_lines(
        &self,
        file: &str,
        first: i64,
        lines: &[Vec<u8>],
    ) -> StoreResult<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut insert =
            Statement::new("INSERT INTO isotherm_file_lines (file_id, number, content) VALUES ");
        for (number, line) in (first..).zip(lines) {
            insert.push(if number == first { "(" } else { ", (" });
            insert.bind(file)?.push(", ").bind(number)?;
            insert.push(", ").bind(line.as_slice())?.push(")");
        }
        let bytes: usize = lines.iter().map(Vec::len).sum();
        let grow = "UPDATE isotherm_files SET bytes = bytes + $1 WHERE id = $2";
        let grow = sqlx::query(grow).bind(stored(bytes as u64)).bind(file);
        let mut transaction = self.begin().await?;
        insert.build().execute(&mut *transaction).await?;
        grow.execute(&mut *transaction).await?;
        transaction.commit().await
    }

    /// Completes a file.
    pub(super) async fn finish_file(
        &self,
        file: &str,
        bytes: u64,
        lines: u64,
        expires_at: Option<UnixMs>,
    ) -> StoreResult<()> {
        let update = "UPDATE isotherm_files SET bytes = $1, lines = $2, status = $3, expires_at = $4 WHERE id = $5";
        let update = sqlx::query(update)
            .bind(stored(bytes))
            .bind(stored(lines))
            .bind(PROCESSED)
            .bind(expires_at)
            .bind(file);
        self.write(update).await?;
        Ok(())
    }

    /// A complete file of an owner.
    pub async fn file(&self, owner: &str, id: &str) -> StoreResult<Option<FileRow>> {
        // PostgreSQL has no text with a NUL, so nothing has such a name.
        if id.contains('\0') {
            return Ok(None);
        }
        let select = "SELECT * FROM isotherm_files WHERE id = $1 AND owner = $2 AND status = $3";
        let select = sqlx::query(select).bind(id).bind(owner).bind(PROCESSED);
        let row = select.fetch_optional(&self.pool).await?;
        row.map(|row| FileRow::read(&row)).transpose()
    }

    /// Complete files of an owner in an order, after the file `after`, of one purpose or of all.
    pub async fn files(
        &self,
        owner: &str,
        purpose: Option<&str>,
        (order, after): (FileOrder, Option<&FileRow>),
        limit: u32,
    ) -> StoreResult<Vec<FileRow>> {
        let (select, start) = match order {
            FileOrder::NewestFirst => (NEWEST_FIRST, UnixMs::MAX),
            FileOrder::OldestFirst => (OLDEST_FIRST, UnixMs::MIN),
        };
        let select = sqlx::query(select)
            .bind(owner)
            .bind(PROCESSED)
            .bind(purpose.unwrap_or_default())
            .bind(after.map_or(start, |file| file.created_at))
            .bind(after.map_or_else(String::new, |file| file.id.clone()))
            .bind(i64::from(limit));
        let rows = select.fetch_all(&self.pool).await?;
        rows.iter().map(FileRow::read).collect()
    }

    /// Whether a batch that is not finished reads the file.
    pub async fn is_in_use(&self, file: &str) -> StoreResult<bool> {
        let select = "SELECT COUNT(*) AS batches FROM isotherm_batches WHERE input_file_id = $1
            AND status IN ('validating', 'in_progress', 'finalizing', 'cancelling')";
        let row = sqlx::query(select).bind(file).fetch_one(&self.pool).await?;
        Ok(count(&row, "batches")? > 0)
    }

    /// Deletes a file and its content.
    pub async fn delete_file(&self, id: &str) -> StoreResult<()> {
        let mut transaction = self.begin().await?;
        let results = "UPDATE isotherm_requests SET result = NULL
            WHERE batch_id = (SELECT batch_id FROM isotherm_files WHERE id = $1)
            AND is_success = (SELECT is_success FROM isotherm_files WHERE id = $1)";
        let shrink = "UPDATE isotherm_batches SET bytes = bytes - (SELECT bytes FROM isotherm_files WHERE id = $1)
            WHERE id = (SELECT batch_id FROM isotherm_files WHERE id = $1)";
        for statement in [
            results,
            shrink,
            "DELETE FROM isotherm_file_lines WHERE file_id = $1",
            "DELETE FROM isotherm_files WHERE id = $1",
        ] {
            sqlx::query(statement)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await
    }

    /// Names of files that have expired, or whose upload never ended, without the files that a batch still reads.
    pub async fn expired_files(&self, limit: u32) -> StoreResult<Vec<String>> {
        /// Time after which an upload is taken for dead, in milliseconds: longer than any upload may take.
        const UPLOAD_MS_MAX: i64 = 3_600_000;
        let select = "SELECT id FROM isotherm_files AS file WHERE (expires_at < {now} OR (status = $1 AND created_at < {now} - $2))
            AND NOT EXISTS (SELECT 1 FROM isotherm_batches WHERE input_file_id = file.id
                AND status IN ('validating', 'in_progress', 'finalizing', 'cancelling')) LIMIT $3";
        let select = self
            .timed(select)
            .bind(UPLOADING)
            .bind(UPLOAD_MS_MAX)
            .bind(i64::from(limit));
        let rows = select.fetch_all(&self.pool).await?;
        rows.iter().map(|row| Ok(row.try_get("id")?)).collect()
    }
}
