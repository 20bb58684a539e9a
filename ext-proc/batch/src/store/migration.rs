//! The version of the tables: created, brought forward, and watched.
//!
//! A program migrates an older database when it opens it, in one transaction. Every transaction that writes holds a lock
//! which the migration takes alone, and reads the version under it. So a migration waits for the writes that have begun, and
//! a worker of an older program writes nothing afterwards: it stops. What it had in memory is sent again by others when its
//! leases end. SQLite's only writer needs no other lock.

use sqlx::{AnyConnection, AssertSqlSafe, Executor as _, Row as _};

use super::address::Dialect;
use super::transaction::WriteTransaction;
use super::{Store, StoreError, StoreResult, count, schema};

/// Begins a transaction that writes, and reads the version. The number of the lock is "isotherm" in ASCII.
const BEGIN_POSTGRES: &str =
    "BEGIN; SELECT 1 FROM pg_advisory_xact_lock_shared(7598539542062527085);
    SELECT version FROM isotherm_schema";
/// A transaction that reads first and writes later could not get the lock then.
const BEGIN_SQLITE: &str = "BEGIN IMMEDIATE; SELECT version FROM isotherm_schema";
/// Begins a migration.
const MIGRATE_POSTGRES: &str = "BEGIN; SELECT 1 FROM pg_advisory_xact_lock(7598539542062527085)";
const MIGRATE_SQLITE: &str = "BEGIN IMMEDIATE";

impl Store {
    /// Version of the tables that this program knows.
    #[expect(clippy::cast_possible_wrap, reason = "there are a few steps")]
    pub(super) fn known_version(&self) -> i64 {
        self.steps.len() as i64 + 1
    }

    /// Version of the tables; `None` where there are none.
    pub(super) async fn stored_version(
        &self,
        connection: &mut AnyConnection,
    ) -> StoreResult<Option<i64>> {
        let tables = match self.dialect {
            Dialect::Sqlite => schema::TABLES_SQLITE,
            Dialect::Postgres => schema::TABLES_POSTGRES,
        };
        let tables = connection.fetch_one(tables).await?;
        if count(&tables, "tables")? == 0 {
            return Ok(None);
        }
        let row = connection.fetch_one("SELECT version FROM isotherm_schema");
        Ok(Some(row.await?.try_get(0)?))
    }

    /// Creates the tables, or takes the steps from their version to the last one.
    pub(super) async fn migrate(&self) -> StoreResult<()> {
        let known = self.known_version();
        let mut connection = self.pool.acquire().await?;
        if self.stored_version(&mut connection).await? == Some(known) {
            return Ok(()); // without the lock, so that no other worker waits
        }
        let begin = match self.dialect {
            Dialect::Sqlite => MIGRATE_SQLITE,
            Dialect::Postgres => MIGRATE_POSTGRES,
        };
        let mut transaction = WriteTransaction::new(connection);
        transaction.execute(begin).await?;
        let stored = self.stored_version(&mut transaction).await?;
        let steps = match stored {
            None => &[schema::TABLES][..],
            Some(stored) if stored > known => return Err(self.unknown_version(stored)),
            Some(stored) => {
                let taken = usize::try_from(stored).ok().and_then(|n| n.checked_sub(1));
                let steps = taken.and_then(|taken| self.steps.get(taken..));
                steps.ok_or(StoreError::Unknown("version"))?
            }
        };
        for statement in steps
            .iter()
            .flat_map(|s| schema::in_dialect(s, self.dialect))
        {
            // The statements are constants of this program.
            transaction.execute(AssertSqlSafe(statement)).await?;
        }
        let version = match stored {
            None => "INSERT INTO isotherm_schema (version) VALUES ($1)",
            Some(_) => "UPDATE isotherm_schema SET version = $1",
        };
        let version = sqlx::query(version).bind(known);
        version.execute(&mut *transaction).await?;
        transaction.commit().await?;
        if let Some(stored) = stored.filter(|stored| *stored != known) {
            tracing::info!(from = stored, to = known, "the database was migrated");
        }
        Ok(())
    }

    /// Begins a transaction that writes.
    pub(super) async fn begin(&self) -> StoreResult<WriteTransaction> {
        let begin = match self.dialect {
            Dialect::Sqlite => BEGIN_SQLITE,
            Dialect::Postgres => BEGIN_POSTGRES,
        };
        let mut transaction = WriteTransaction::new(self.pool.acquire().await?);
        let rows = transaction.fetch_all(begin).await?;
        let version = rows.last().ok_or(StoreError::Unknown("version"))?;
        let (known, stored) = (self.known_version(), version.try_get("version")?);
        if stored != known {
            let _ = self.other_version.set(stored); // it may be set already
            return Err(self.unknown_version(stored));
        }
        Ok(transaction)
    }

    /// Resolves when another program has migrated the database: from then on this store writes nothing.
    pub async fn retired(&self) -> StoreError {
        self.unknown_version(*self.other_version.wait().await)
    }

    /// The error for tables of another version.
    pub(super) fn unknown_version(&self, stored: i64) -> StoreError {
        let known = self.known_version();
        match stored > known {
            true => StoreError::Newer { stored, known },
            false => StoreError::Older { stored, known },
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    /// The steps of a later program. A second run of its last one would fail.
    const LATER: &[schema::Step] = &[
        schema::STEPS[0],
        &["ALTER TABLE isotherm_workers ADD COLUMN pace BLOB"],
        &[
            "UPDATE isotherm_workers SET pace = NULL",
            "ALTER TABLE isotherm_workers ADD COLUMN note TEXT",
        ],
    ];

    #[tokio::test(flavor = "multi_thread")]
    async fn programs_that_start_at_once_take_each_step_once() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("queue.db").display().to_string();
        let store = Store::open(&database).await.unwrap();
        let mut opening = JoinSet::new();
        for _ in 0..8 {
            let database = database.clone();
            opening.spawn(async move { Store::open_with(&database, LATER).await });
        }
        for opened in opening.join_all().await {
            let later = opened.unwrap();
            let report = later.report_spare_rate("w", "m", None).await;
            assert_eq!(report.unwrap().workers, 1);
            let mut connection = later.pool.acquire().await.unwrap();
            let stored = later.stored_version(&mut connection).await.unwrap();
            assert_eq!(stored, Some(4));
            let columns = connection.fetch_one("SELECT pace, note FROM isotherm_workers");
            columns.await.unwrap();
        }
        let error = store.report_spare_rate("old", "m", None).await.unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Newer {
                    stored: 4,
                    known: 2
                }
            ),
            "{error}"
        );
        assert_eq!(store.retired().await.to_string(), error.to_string());
    }
}
