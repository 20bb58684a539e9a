//! Statements with as many values as a list has.
//!
//! sqlx's own builder writes `?` for a value when the driver is `Any`, which PostgreSQL does not read; both databases read
//! `$1`.

use std::fmt::Write as _;

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, Arguments as _, AssertSqlSafe, Encode, Type};

use super::Store;
use super::address::Dialect;

/// Longest pause of a line and longest lease, with room to spare, in milliseconds. A time further ahead is of a clock that was
/// wrong, and counts as past.
const PAUSE_MS_MAX: i64 = 2 * 3_600_000;

/// A statement and its values.
#[derive(Default)]
pub(super) struct Statement {
    sql: String,
    arguments: AnyArguments,
}

impl Statement {
    /// Begins a statement with a text of this program.
    pub(super) fn new(sql: &'static str) -> Self {
        let mut statement = Self::default();
        statement.push(sql);
        statement
    }

    /// Appends a text of this program.
    pub(super) fn push(&mut self, sql: &'static str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    /// Appends a value.
    pub(super) fn bind<'v, T: Encode<'v, Any> + Type<Any>>(
        &mut self,
        value: T,
    ) -> sqlx::Result<&mut Self> {
        self.arguments.add(value).map_err(sqlx::Error::Encode)?;
        // Writing to a string does not fail.
        let _ = write!(self.sql, "${}", self.arguments.len());
        Ok(self)
    }

    /// Appends ` AND number IN (…)`.
    pub(super) fn bind_numbers(
        &mut self,
        numbers: impl IntoIterator<Item = i64>,
    ) -> sqlx::Result<&mut Self> {
        self.push(" AND number IN (");
        for (index, number) in numbers.into_iter().enumerate() {
            self.push(if index == 0 { "" } else { ", " }).bind(number)?;
        }
        Ok(self.push(")"))
    }

    /// Appends an expression for the time, as [`Store::time`] gives it.
    pub(super) fn push_time(&mut self, store: &Store) -> &mut Self {
        self.sql.push_str(&store.time());
        self
    }

    /// The statement, ready to run.
    pub(super) fn build(self) -> Query<'static, Any, AnyArguments> {
        // The text is made of constants and of numbers.
        sqlx::query_with(AssertSqlSafe(self.sql), self.arguments).persistent(false)
    }
}

impl Store {
    /// An expression for the time of the queue. PostgreSQL asks its own clock in each statement, so the clocks of workers do not
    /// matter. SQLite's clock is this machine's, which may step.
    pub(super) fn time(&self) -> String {
        match self.dialect {
            Dialect::Sqlite => self.now().to_string(),
            Dialect::Postgres => {
                "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)".to_owned()
            }
        }
    }

    /// A statement of this program, in which `{now}` stands for the time of the queue, `{ahead}` for the longest time that a
    /// pause or a lease may last, and `{skip_locked}` for a lock of the rows that skips those of others.
    pub(super) fn timed(&self, sql: &'static str) -> Query<'static, Any, AnyArguments> {
        let ahead = PAUSE_MS_MAX.to_string();
        let skip_locked = match self.dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => "FOR UPDATE SKIP LOCKED",
        };
        let sql = sql
            .replace("{now}", &self.time())
            .replace("{skip_locked}", skip_locked)
            .replace("{ahead}", &ahead);
        sqlx::query(AssertSqlSafe(sql)).persistent(self.dialect == Dialect::Postgres)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbered() {
        let mut statement = Statement::new("UPDATE t SET a = ");
        statement.bind("x").unwrap().bind_numbers([7, 8]).unwrap();
        assert_eq!(statement.sql, "UPDATE t SET a = $1 AND number IN ($2, $3)");
    }
}
