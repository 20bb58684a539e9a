//! The lines of batches: claims by lease, and one result for each line.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::statement::Statement;
use super::transaction::WriteTransaction;
use super::{Store, StoreResult, stored};
use crate::pace::Priority;

/// A line of a batch: the batch, and the number of the line in its input file, from 1.
pub type LineKey = (String, i64);

/// A line of a new batch.
#[derive(Clone, Debug)]
pub struct NewRequest {
    /// Number of the line in the input file.
    pub number: i64,
    /// The caller's name of the request.
    pub custom_id: String,
}

/// A line that a worker holds.
#[derive(Clone, Debug)]
pub struct ClaimedLine {
    /// Number of the line in the input file.
    pub number: i64,
    /// The caller's name of the request.
    pub custom_id: String,
    /// Failures that are the line's own.
    pub failures: u32,
    /// Failures while the gateway served no other request either.
    pub outages: u32,
    /// Whether the lease of another worker on the line has ended.
    pub is_taken_over: bool,
    /// The line of the input file.
    pub content: Vec<u8>,
}

/// A line without a result that no worker holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedLine {
    /// Number of the line in the input file.
    pub number: i64,
    /// The caller's name of the request.
    pub custom_id: String,
}

/// Whether a result goes to the output file or to the error file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// A response of status 2xx.
    Success,
    /// A response with an error, or an error in place of the response.
    Error,
    /// No response, because the batch has expired or was cancelled.
    Unfinished,
}

/// News of a worker about a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineUpdate {
    /// The result of the line: one line of the output or error file, with its line feed.
    Result {
        /// File of the result.
        kind: ResultKind,
        /// Text of the result.
        text: Vec<u8>,
    },
    /// Another attempt after a pause.
    Retry {
        /// Time until the next attempt, in milliseconds.
        after_ms: i64,
        /// Failures that are the line's own, so far.
        failures: u32,
        /// Failures of the gateway, so far.
        outages: u32,
    },
}

/// Free lines of a batch. PostgreSQL skips lines that another worker is claiming.
const FREE_LINES: &str =
    "SELECT number, custom_id, failures, outages, worker FROM isotherm_requests
    WHERE batch_id = $1 AND done_at IS NULL AND (ready_at <= {now} OR ready_at > {now} + {ahead})
    AND EXISTS (SELECT 1 FROM isotherm_batches WHERE id = $1 AND status = 'in_progress')
    ORDER BY number LIMIT $2 {skip_locked}";

/// A claim of lines: by which worker, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) worker: &'a str,
    pub(crate) batch: &'a str,
    pub(crate) input_file: &'a str,
    pub(crate) priority: Priority,
    pub(crate) lease_ms: i64,
    pub(crate) count: usize,
}

impl Store {
    /// Adds the lines of a batch that is being validated. Lines that are there already stay.
    pub(crate) async fn add_requests(&self, batch: &str, lines: &[NewRequest]) -> StoreResult<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut insert = Statement::new(
            "INSERT INTO isotherm_requests (batch_id, number, custom_id, ready_at, is_promoted, failures, outages) VALUES ",
        );
        for (index, line) in lines.iter().enumerate() {
            insert.push(if index == 0 { "(" } else { ", (" });
            insert.bind(batch)?.push(", ").bind(line.number)?;
            insert.push(", ").bind(line.custom_id.as_str())?;
            insert.push(", 0, 0, 0, 0)");
        }
        insert.push(" ON CONFLICT (batch_id, number) DO NOTHING");
        self.write(insert.build()).await?;
        Ok(())
    }

    /// Claims free lines of a batch, lowest numbers first. No other worker gets them until the lease ends.
    pub(crate) async fn claim_lines(&self, claim: &Claim<'_>) -> StoreResult<Vec<ClaimedLine>> {
        let mut transaction = self.begin().await?;
        let free = self
            .timed(FREE_LINES)
            .bind(claim.batch)
            .bind(i64::try_from(claim.count).unwrap_or(i64::MAX));
        let rows = free.fetch_all(&mut *transaction).await?;
        let mut lines = BTreeMap::new();
        for row in &rows {
            let line = read_claimed(row, claim.worker)?;
            lines.insert(line.number, line);
        }
        if !lines.is_empty() {
            let mut update = Statement::new("UPDATE isotherm_requests SET worker = ");
            update.bind(claim.worker)?.push(", is_promoted = ");
            update.bind(i64::from(claim.priority == Priority::Interactive))?;
            update.push(", ready_at = ").push_time(self).push(" + ");
            update.bind(claim.lease_ms)?;
            update.push(" WHERE batch_id = ").bind(claim.batch)?;
            update.bind_numbers(lines.keys().copied())?;
            update.build().execute(&mut *transaction).await?;
            let mut select =
                Statement::new("SELECT number, content FROM isotherm_file_lines WHERE file_id = ");
            select.bind(claim.input_file)?;
            select.bind_numbers(lines.keys().copied())?;
            for row in select.build().fetch_all(&mut *transaction).await? {
                let number: i64 = row.try_get("number")?;
                if let Some(line) = lines.get_mut(&number) {
                    line.content = row.try_get("content")?;
                }
            }
        }
        transaction.commit().await?;
        Ok(lines.into_values().collect())
    }

    /// Extends the leases of lines that a worker still holds.
    pub(crate) async fn renew_leases(
        &self,
        worker: &str,
        lines: &BTreeSet<LineKey>,
        lease_ms: i64,
    ) -> StoreResult<()> {
        let mut batches: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for (batch, number) in lines {
            batches.entry(batch).or_default().push(*number);
        }
        for (batch, numbers) in batches {
            let mut update = Statement::new("UPDATE isotherm_requests SET ready_at = ");
            update.push_time(self).push(" + ").bind(lease_ms)?;
            update
                .push(" WHERE done_at IS NULL AND worker = ")
                .bind(worker)?;
            update.push(" AND batch_id = ").bind(batch)?;
            update.bind_numbers(numbers)?;
            self.write(update.build()).await?;
        }
        Ok(())
    }

    /// Writes what a worker found out about lines, all or nothing. A line that has a result keeps it. Writing the same
    /// updates again changes nothing, so an update whose commit is in doubt is written again.
    pub(crate) async fn write_updates(
        &self,
        worker: &str,
        updates: &[(LineKey, LineUpdate)],
    ) -> StoreResult<()> {
        // The same order in every transaction, so that two of them cannot wait for each other.
        let mut updates: Vec<&(LineKey, LineUpdate)> = updates.iter().collect();
        updates.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut transaction = self.begin().await?;
        let mut results: BTreeMap<&str, [i64; 4]> = BTreeMap::new();
        for ((batch, number), update) in updates {
            match update {
                LineUpdate::Result { kind, text } => {
                    let key = (batch.as_str(), *number);
                    if self
                        .write_result(&mut transaction, key, *kind, text)
                        .await?
                    {
                        let [successes, errors, unfinished, bytes] =
                            results.entry(batch).or_default();
                        *successes += i64::from(*kind == ResultKind::Success);
                        *errors += i64::from(*kind != ResultKind::Success);
                        *unfinished += i64::from(*kind == ResultKind::Unfinished);
                        *bytes += stored(text.len() as u64);
                    }
                }
                LineUpdate::Retry {
                    after_ms,
                    failures,
                    outages,
                } => {
                    let update = "UPDATE isotherm_requests SET ready_at = {now} + $1, failures = $2, outages = $3, worker = NULL
                        WHERE batch_id = $4 AND number = $5 AND done_at IS NULL AND worker = $6";
                    let update = self
                        .timed(update)
                        .bind(after_ms)
                        .bind(i64::from(*failures))
                        .bind(i64::from(*outages))
                        .bind(batch)
                        .bind(number)
                        .bind(worker);
                    update.execute(&mut *transaction).await?;
                }
            }
        }
        for (batch, [successes, errors, unfinished, bytes]) in results {
            let update =
                "UPDATE isotherm_batches SET completed = completed + $1, failed = failed + $2,
                unfinished = unfinished + $3, bytes = bytes + $4 WHERE id = $5";
            let update = sqlx::query(update)
                .bind(successes)
                .bind(errors)
                .bind(unfinished)
                .bind(bytes)
                .bind(batch);
            update.execute(&mut *transaction).await?;
        }
        transaction.commit().await
    }

    /// Writes the result of a line, unless the line has one. Returns whether it did.
    async fn write_result(
        &self,
        transaction: &mut WriteTransaction,
        (batch, number): (&str, i64),
        kind: ResultKind,
        text: &[u8],
    ) -> StoreResult<bool> {
        let update =
            "UPDATE isotherm_requests SET done_at = {now}, is_success = $1, result = $2, worker = NULL
            WHERE batch_id = $3 AND number = $4 AND done_at IS NULL";
        let update = self
            .timed(update)
            .bind(i64::from(kind == ResultKind::Success))
            .bind(text.to_vec())
            .bind(batch)
            .bind(number);
        Ok(update.execute(&mut **transaction).await?.rows_affected() > 0)
    }

    /// Lines of a batch that have no result and that no worker holds, whose next attempt may be due or not.
    pub(crate) async fn unfinished_lines(
        &self,
        batch: &str,
        limit: u32,
    ) -> StoreResult<Vec<UnfinishedLine>> {
        let select = "SELECT number, custom_id FROM isotherm_requests WHERE batch_id = $1 AND done_at IS NULL
            AND (worker IS NULL OR ready_at <= {now} OR ready_at > {now} + {ahead}) ORDER BY number LIMIT $2";
        let select = self.timed(select).bind(batch).bind(i64::from(limit));
        let rows = select.fetch_all(&self.pool).await?;
        let line = |row: &AnyRow| {
            Ok(UnfinishedLine {
                number: row.try_get("number")?,
                custom_id: row.try_get("custom_id")?,
            })
        };
        rows.iter().map(line).collect()
    }

    /// Removes lines of a batch whose input file has mistakes.
    pub(crate) async fn remove_requests(&self, batch: &str) -> StoreResult<()> {
        let delete = "DELETE FROM isotherm_requests WHERE batch_id = $1";
        self.write(sqlx::query(delete).bind(batch)).await?;
        Ok(())
    }
}

fn read_claimed(row: &AnyRow, worker: &str) -> StoreResult<ClaimedLine> {
    let counter = |column: &str| -> StoreResult<u32> {
        let value: i64 = row.try_get(column)?;
        Ok(u32::try_from(value).unwrap_or(u32::MAX))
    };
    let holder: Option<String> = row.try_get("worker")?;
    Ok(ClaimedLine {
        is_taken_over: holder.is_some_and(|holder| holder != worker),
        number: row.try_get("number")?,
        custom_id: row.try_get("custom_id")?,
        failures: counter("failures")?,
        outages: counter("outages")?,
        content: Vec::new(),
    })
}
