//! The health of the database, as the API and the log tell it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use strum::{Display, IntoStaticStr, VariantArray};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Store, StoreError, StoreResult};

/// Interval of checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Longest wait for an answer of the database.
const CHECK_TIME_MAX: Duration = Duration::from_secs(10);

/// A reason for which the queue does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, IntoStaticStr, VariantArray)]
pub enum DatabaseProblem {
    /// SQLite's file is another one, or none.
    #[strum(to_string = "the file of the database was deleted or replaced: restart the queue")]
    FileGone,
    /// A page of the database is not what was written.
    #[strum(to_string = "the database is damaged: restore it from a copy")]
    Damaged,
    /// No answer in time.
    #[strum(to_string = "the database does not answer")]
    NoAnswer,
    /// A write failed.
    #[strum(to_string = "the database takes no writes: it may be read-only, or its disk full")]
    NoWrites,
}

/// The health of the database, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct DatabaseHealth {
    problem: Option<DatabaseProblem>,
    /// Time of the last statement of the worker that failed.
    failed_at: Option<Instant>,
    /// Number of failed statements and checks.
    failures: u64,
}

/// SQLite's file, as it was when the store opened.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl DatabaseFile {
    /// The file at a path; `None` where the database is in memory.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        let identity = identity(&path.metadata().ok()?);
        Some(Self { path, identity })
    }

    fn is_there(&self) -> bool {
        let metadata = self.path.metadata();
        metadata.is_ok_and(|metadata| identity(&metadata) == self.identity)
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Store {
    /// The reason for which the queue does not work, if there is one.
    #[must_use]
    pub fn problem(&self) -> Option<DatabaseProblem> {
        self.health.lock().problem
    }

    /// Number of statements and checks that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.health.lock().failures
    }

    /// Learns from an error of any statement. A check may find room on a disk that is full, and reads no damaged page of a few
    /// lines.
    pub(crate) fn note(&self, error: &StoreError) {
        let is_damaged = is_damage(error);
        if matches!(error, StoreError::Database { .. }) {
            {
                let mut health = self.health.lock();
                health.failed_at = Some(Instant::now());
                health.failures += 1;
            }
            match is_damaged {
                true => self.set_problem(Some(DatabaseProblem::Damaged)),
                false if self.problem().is_none() => {
                    self.set_problem(Some(DatabaseProblem::NoWrites));
                }
                false => {} // the check knows more
            }
        }
    }

    /// Whether a statement of the worker failed since the check before.
    fn has_failed_lately(&self) -> bool {
        let failed_at = self.health.lock().failed_at;
        failed_at.is_some_and(|at| at.elapsed() < CHECK_INTERVAL)
    }

    /// Checks the database now and then, until `stop` is cancelled.
    pub async fn follow_health(self, stop: CancellationToken) {
        loop {
            let written = timeout(CHECK_TIME_MAX, self.write_nothing()).await;
            let problem = match written {
                // A write may succeed, or fail in any way, in a file that no other process sees.
                _ if self.file.as_ref().is_some_and(|file| !file.is_there()) => {
                    Some(DatabaseProblem::FileGone)
                }
                Ok(Ok(())) if self.has_failed_lately() => Some(DatabaseProblem::NoWrites),
                Ok(Ok(())) => None,
                // The worker stops with this error.
                Ok(Err(StoreError::Newer { .. } | StoreError::Older { .. })) => return,
                Ok(Err(error)) if is_damage(&error) => Some(DatabaseProblem::Damaged),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a write to the database failed");
                    Some(DatabaseProblem::NoWrites)
                }
                Err(_) => Some(DatabaseProblem::NoAnswer),
            };
            self.health.lock().failures += u64::from(problem.is_some());
            self.set_problem(problem);
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Writes to the database what it has already.
    async fn write_nothing(&self) -> StoreResult<()> {
        let mut transaction = self.begin().await?;
        let update = sqlx::query("UPDATE isotherm_schema SET version = version");
        update.execute(&mut *transaction).await?;
        transaction.commit().await
    }

    fn set_problem(&self, problem: Option<DatabaseProblem>) {
        let mut health = self.health.lock();
        // Damage stays: a later statement may read other pages.
        if health.problem == problem || health.problem == Some(DatabaseProblem::Damaged) {
            return;
        }
        health.problem = problem;
        match problem {
            Some(problem) => tracing::warn!("{problem}"),
            None => tracing::info!("the database works again"),
        }
    }
}

/// Whether an error says that the content of the database is not what was written.
fn is_damage(error: &StoreError) -> bool {
    /// SQLite's `CORRUPT` and `NOTADB`; an extended code has them in its low byte.
    const SQLITE: [u32; 2] = [11, 26];
    /// PostgreSQL's `data_corrupted` and `index_corrupted`.
    const POSTGRES: [&str; 2] = ["XX001", "XX002"];
    let StoreError::Database { cause } = error else {
        return false;
    };
    let code = cause.as_database_error().and_then(|error| error.code());
    let Some(code) = code else { return false };
    let number: Option<u32> = code.parse().ok();
    POSTGRES.contains(&code.as_ref()) || number.is_some_and(|code| SQLITE.contains(&(code & 0xff)))
}
