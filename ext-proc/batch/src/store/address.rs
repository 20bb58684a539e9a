//! The address of a database: a file (SQLite), or a server (PostgreSQL).

use std::path::{Path, PathBuf};

/// A database's kind of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

/// The address of a database, as `--database` gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DatabaseAddress {
    pub(super) dialect: Dialect,
    /// The address as sqlx reads it.
    pub(super) url: String,
    /// SQLite's file.
    pub(super) file: Option<PathBuf>,
}

impl DatabaseAddress {
    pub(super) fn parse(database: &str) -> Self {
        if database.starts_with("postgres:") || database.starts_with("postgresql:") {
            return Self {
                dialect: Dialect::Postgres,
                url: database.to_owned(),
                file: None,
            };
        }
        let file = database.strip_prefix("sqlite:").unwrap_or(database);
        let file = file.strip_prefix("//").unwrap_or(file);
        let (file, query) = file.split_once('?').unwrap_or((file, "mode=rwc"));
        let escaped: String = Path::new(file)
            .to_string_lossy()
            .replace('%', "%25")
            .replace('?', "%3f")
            .replace('#', "%23");
        Self {
            dialect: Dialect::Sqlite,
            url: format!("sqlite://{escaped}?{query}"),
            file: Some(PathBuf::from(file)),
        }
    }

    /// The file, or the URL without the password of its user.
    pub(super) fn without_password(&self) -> String {
        if let Some(file) = &self.file {
            return file.display().to_string();
        }
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return self.url.clone();
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        match authority.rsplit_once('@') {
            Some((user, host)) => {
                let user = user.split(':').next().unwrap_or_default();
                format!("{scheme}://{user}@{host}{path}")
            }
            None => self.url.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_file_or_a_url() {
        for (text, url, file) in [
            ("queue.db", "sqlite://queue.db?mode=rwc", "queue.db"),
            (
                "/var/queue.db",
                "sqlite:///var/queue.db?mode=rwc",
                "/var/queue.db",
            ),
            ("sqlite:a%b.db", "sqlite://a%25b.db?mode=rwc", "a%b.db"),
        ] {
            let address = DatabaseAddress::parse(text);
            assert_eq!(
                (address.dialect, address.url.as_str()),
                (Dialect::Sqlite, url)
            );
            assert_eq!(address.file, Some(PathBuf::from(file)));
        }
        for url in ["postgres://h/d", "postgresql://h/d"] {
            assert_eq!(DatabaseAddress::parse(url).dialect, Dialect::Postgres);
        }
    }

    #[test]
    fn errors_show_no_password() {
        let shown = DatabaseAddress::parse("postgres://user:secret@host:5432/db");
        assert_eq!(shown.without_password(), "postgres://user@host:5432/db");
        let file = DatabaseAddress::parse("queue.db");
        assert_eq!(file.without_password(), "queue.db");
    }
}
