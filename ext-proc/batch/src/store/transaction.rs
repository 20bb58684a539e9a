//! A transaction that writes.
//!
//! SQLite rolls a transaction back by itself when the disk is full, an I/O operation fails or memory is short. Then sqlx
//! cannot roll back, counts the transaction as open for ever, and every later use of the connection fails. So a connection
//! whose transaction does not end in order is closed, and the pool opens another.

use std::ops::{Deref, DerefMut};

use sqlx::any::AnyArguments;
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Executor as _};

use super::{Store, StoreResult};

/// A transaction that writes. Dropped without its end, it closes its connection, and the database rolls it back.
pub(super) struct WriteTransaction {
    connection: PoolConnection<Any>,
    has_ended: bool,
}

impl Store {
    /// Writes by one statement. Returns the number of rows that it changed.
    pub(super) async fn write(&self, statement: Query<'_, Any, AnyArguments>) -> StoreResult<u64> {
        let mut transaction = self.begin().await?;
        let result = statement.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(result.rows_affected())
    }
}

impl WriteTransaction {
    /// A transaction that begins with the next statement, `BEGIN`.
    pub(super) fn new(connection: PoolConnection<Any>) -> Self {
        Self {
            connection,
            has_ended: false,
        }
    }

    /// Makes the changes durable.
    pub(super) async fn commit(self) -> StoreResult<()> {
        self.end("COMMIT").await
    }

    /// Takes the changes back.
    pub(super) async fn roll_back(self) -> StoreResult<()> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, statement: &'static str) -> StoreResult<()> {
        self.connection.execute(statement).await?;
        self.has_ended = true;
        Ok(())
    }
}

impl Deref for WriteTransaction {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.connection
    }
}

impl DerefMut for WriteTransaction {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.connection
    }
}

impl Drop for WriteTransaction {
    fn drop(&mut self) {
        if !self.has_ended {
            self.connection.close_on_drop();
        }
    }
}
