//! A copy of the database while workers use it.

use super::address::Dialect;
use super::{Store, StoreError, StoreResult};

impl Store {
    /// Copies SQLite's database into a new file: the state at one moment, with what still stands in the write-ahead log alone.
    /// Workers go on meanwhile.
    ///
    /// # Errors
    /// The file exists or cannot be written, or the database is PostgreSQL.
    pub async fn back_up(&self, file: &str) -> StoreResult<()> {
        if self.dialect == Dialect::Postgres {
            return Err(StoreError::NotAFile);
        }
        let copy = sqlx::query("VACUUM INTO $1").bind(file.to_owned());
        copy.execute(&self.pool).await?;
        // SQLite leaves this to the system.
        let copy = tokio::fs::File::open(file).await;
        let synced = match copy {
            Ok(copy) => copy.sync_all().await,
            Err(error) => Err(error),
        };
        Ok(synced.map_err(sqlx::Error::Io)?)
    }
}
