//! The state of the queue in a database: SQLite in one file, or PostgreSQL for workers on several machines.
//!
//! Both speak the same statements through sqlx's `Any` driver, but for the claim of lines ([`requests`]): PostgreSQL skips
//! rows that another worker locks, and SQLite has one writer at a time. Rejected: an own trait with two implementations,
//! which would be tested half as much each.

mod address;
mod backup;
mod batches;
mod census;
mod clock;
mod content;
mod files;
mod health;
mod migration;
mod requests;
mod schema;
mod sink;
mod statement;
mod stewardship;
#[cfg(test)]
mod tests;
mod transaction;
mod usage;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::{AnyPool, ConnectOptions as _, Executor as _, Row as _};
use tokio::sync::SetOnce;

use address::{DatabaseAddress, Dialect};
use clock::Clock;
use health::{DatabaseFile, DatabaseHealth};

pub use batches::{BatchRow, BatchStatus, NewBatch};
pub use census::QueueCensus;
pub use content::FilePosition;
pub use files::{FileOrder, FileRow, NewFile};
pub use health::DatabaseProblem;
pub(crate) use requests::Claim;
pub use requests::{ClaimedLine, LineKey, LineUpdate, NewRequest, ResultKind, UnfinishedLine};
pub use sink::{FileSink, SinkError};
pub use stewardship::StewardTask;
pub(crate) use stewardship::StewardTurn;
pub(crate) use usage::ROW_BYTES;
pub use usage::{OpenBatches, StorageUse};

/// Most connections of one process to PostgreSQL.
const CONNECTIONS_MAX: u32 = 8;
/// Longest wait for a connection.
const ACQUIRE_TIME_MAX: Duration = Duration::from_secs(10);

/// The state of the queue. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Store {
    pool: AnyPool,
    dialect: Dialect,
    clock: Arc<Clock>,
    /// SQLite's file.
    file: Option<Arc<DatabaseFile>>,
    health: Arc<Mutex<DatabaseHealth>>,
    steps: &'static [schema::Step],
    /// Version of the tables, once it is no more the one that this store knows.
    other_version: Arc<SetOnce<i64>>,
}

/// Error of the database, or of a request to it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be opened.
    #[error(
        "the database {url} cannot be opened: {cause}; --database gives a file, or `postgres://user@host/database`"
    )]
    Open {
        /// Address without its password.
        url: String,
        /// Cause.
        cause: sqlx::Error,
    },
    /// No queue.
    #[error(
        "{0} has no queue of batch work: --database names the one that `isotherm batch run` or `serve` uses"
    )]
    Missing(String),
    /// Tables of a later version.
    #[error(
        "a newer program has migrated the database: its tables are of version {stored}, and this program knows those up to \
         {known}: use the newer program"
    )]
    Newer {
        /// Version in the database.
        stored: i64,
        /// Version of this program.
        known: i64,
    },
    /// Tables of an earlier version, where the caller migrates nothing.
    #[error(
        "the database has tables of version {stored}, and this program those of version {known}: `isotherm batch serve`, \
         `work` or `run` of this program migrates them"
    )]
    Older {
        /// Version in the database.
        stored: i64,
        /// Version of this program.
        known: i64,
    },
    /// A statement failed.
    #[error("the database failed: {cause}")]
    Database {
        /// Cause.
        cause: sqlx::Error,
    },
    /// A copy of a database that is no file.
    #[error("this copies the file of SQLite: use `pg_dump` for PostgreSQL")]
    NotAFile,
    /// A value in the database is not one that this program writes.
    #[error("the database has an unknown {0}: was it changed by another program?")]
    Unknown(&'static str),
}

impl From<sqlx::Error> for StoreError {
    fn from(cause: sqlx::Error) -> Self {
        Self::Database { cause }
    }
}

/// Result of the store.
pub type StoreResult<T> = Result<T, StoreError>;

impl Store {
    /// Opens the database at a URL (`sqlite:FILE`, `postgres://…`) or in a file. Creates its tables where they are missing, and
    /// migrates those of an earlier version. A password stands in the URL, in `PGPASSWORD` or in `~/.pgpass`.
    ///
    /// # Errors
    /// The database cannot be opened, or a newer program has migrated it.
    pub async fn open(database: &str) -> StoreResult<Self> {
        Self::open_with(database, schema::STEPS).await
    }

    async fn open_with(database: &str, steps: &'static [schema::Step]) -> StoreResult<Self> {
        let address = DatabaseAddress::parse(database);
        let mut store = Self::connect(&address, SQLITE_SETTINGS).await?;
        store.steps = steps;
        store.migrate().await?;
        Ok(store)
    }

    /// Opens a database that has a queue, and changes nothing in it.
    ///
    /// # Errors
    /// The database has no queue, cannot be opened, or has tables of another version.
    pub async fn open_existing(database: &str) -> StoreResult<Self> {
        let address = DatabaseAddress::parse(database);
        let missing = || StoreError::Missing(address.without_password());
        if address.file.as_ref().is_some_and(|file| !file.exists()) {
            return Err(missing());
        }
        let store = Self::connect(&address, SQLITE_TIMEOUT).await?;
        let stored = store
            .stored_version(&mut *store.pool.acquire().await?)
            .await?;
        let Some(stored) = stored else {
            store.close().await;
            return Err(missing());
        };
        match stored == store.known_version() {
            true => Ok(store),
            false => Err(store.unknown_version(stored)),
        }
    }

    /// Opens the database, with settings for each connection to SQLite.
    async fn connect(address: &DatabaseAddress, settings: &'static str) -> StoreResult<Self> {
        // A second call finds the drivers installed.
        let _ =
            sqlx::any::install_drivers(&[sqlx::sqlite::any::DRIVER, sqlx::postgres::any::DRIVER]);
        let open_error = |cause| StoreError::Open {
            url: address.without_password(),
            cause,
        };
        let options: AnyConnectOptions = address.url.parse().map_err(open_error)?;
        let options = options.disable_statement_logging();
        let pool = pool_options(address.dialect, settings);
        let pool = pool.connect_with(options).await;
        let mut store = Self {
            pool: pool.map_err(open_error)?,
            dialect: address.dialect,
            clock: Arc::new(Clock::new(clock::wall_clock())),
            file: None,
            health: Arc::default(),
            steps: schema::STEPS,
            other_version: Arc::default(),
        };
        store.file = address
            .file
            .as_deref()
            .and_then(DatabaseFile::of)
            .map(Arc::new);
        store.clock = Arc::new(Clock::new(store.read_clock().await?));
        Ok(store)
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// A second process waits for the first. Nothing else changes.
const SQLITE_TIMEOUT: &str = "PRAGMA busy_timeout = 30000; PRAGMA synchronous = FULL;";

fn pool_options(dialect: Dialect, settings: &'static str) -> AnyPoolOptions {
    let options = AnyPoolOptions::new()
        .max_connections(CONNECTIONS_MAX)
        .acquire_timeout(ACQUIRE_TIME_MAX);
    match dialect {
        Dialect::Sqlite => options.after_connect(move |connection, _| {
            Box::pin(async move { connection.execute(settings).await.map(|_| ()) })
        }),
        // After a failover a connection may stay at a server that takes no writes (SQLSTATE 25006). The question replaces
        // the pool's own test, and costs as much.
        Dialect::Postgres => options
            .test_before_acquire(false)
            .before_acquire(|connection, _| {
                Box::pin(async move {
                    let row = connection.fetch_one("SHOW transaction_read_only").await?;
                    let is_read_only: String = row.try_get(0)?;
                    Ok(is_read_only == "off")
                })
            }),
    }
}

/// Settings of each connection to SQLite. Readers do not block the writer (WAL), a commit is on the disk when it returns,
/// and a second process waits for the first.
const SQLITE_SETTINGS: &str =
    "PRAGMA busy_timeout = 30000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;";

/// Reads a column that counts.
fn count(row: &AnyRow, column: &str) -> StoreResult<u64> {
    let value: i64 = row.try_get(column)?;
    Ok(u64::try_from(value).unwrap_or(0))
}

/// Writes a count.
fn stored(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
