//! Statements with as many values as a list has.
//!
//! sqlx's own builder writes `?` for a value when the driver is `Any`, which PostgreSQL does not read; both databases read
//! `$1`.

use std::fmt::Write as _;

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, Arguments as _, AssertSqlSafe, Encode, Type};

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

    /// The statement, ready to run.
    pub(super) fn build(self) -> Query<'static, Any, AnyArguments> {
        // The text is made of constants and of numbers.
        sqlx::query_with(AssertSqlSafe(self.sql), self.arguments).persistent(false)
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
