//! Tables of the queue, for SQLite and PostgreSQL.
//!
//! | table | rows |
//! | --- | --- |
//! | `isotherm_files` | uploaded files, and the output and error files of finished batches |
//! | `isotherm_file_lines` | the lines of uploaded files, byte for byte |
//! | `isotherm_batches` | batches, with the number of their results |
//! | `isotherm_requests` | the lines of batches: who works on each, and its one result |
//! | `isotherm_workers` | the spare capacity that each worker measures |
//!
//! Times are in milliseconds since the Unix epoch. A request is free while `done_at` is null and `ready_at` has passed. A
//! lease is a `ready_at` in the future with a `worker`. A result is written only where `done_at` is null: so a line has
//! exactly one, whatever workers crash or come back.
//!
//! A change of the tables is written twice: into [`TABLES`], and as a further step of [`STEPS`].
//!
//! Output files have no lines of their own: they are the results of their batch, in the order of the input.

use super::address::Dialect;

/// A step from one version of the tables to the next.
pub(super) type Step = &'static [&'static str];

/// The steps from version 1: the first makes version 2.
pub(super) const STEPS: &[Step] = &[FROM_VERSION_1];

/// Statements that create the tables of the version after the last step. `BLOB` stands for the dialect's type of bytes.
pub(super) const TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS isotherm_schema (version BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS isotherm_files (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, purpose TEXT NOT NULL, name TEXT NOT NULL, status TEXT NOT NULL,
        bytes BIGINT NOT NULL, lines BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT,
        batch_id TEXT, is_success BIGINT)",
    "CREATE INDEX IF NOT EXISTS isotherm_files_batch ON isotherm_files (batch_id)",
    "CREATE TABLE IF NOT EXISTS isotherm_file_lines (
        file_id TEXT NOT NULL, number BIGINT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (file_id, number))",
    "CREATE TABLE IF NOT EXISTS isotherm_batches (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, endpoint TEXT NOT NULL, model TEXT NOT NULL, status TEXT NOT NULL,
        input_file_id TEXT NOT NULL, output_file_id TEXT, error_file_id TEXT, window_s BIGINT NOT NULL,
        created_at BIGINT NOT NULL, in_progress_at BIGINT, expires_at BIGINT NOT NULL, finalizing_at BIGINT,
        completed_at BIGINT, failed_at BIGINT, expired_at BIGINT, cancelling_at BIGINT, cancelled_at BIGINT,
        total BIGINT NOT NULL, completed BIGINT NOT NULL, failed BIGINT NOT NULL, unfinished BIGINT NOT NULL,
        errors TEXT, metadata TEXT, output_ttl_s BIGINT, output_path TEXT, is_delivered BIGINT NOT NULL,
        steward TEXT, steward_until BIGINT NOT NULL, bytes BIGINT NOT NULL DEFAULT 0)",
    "CREATE INDEX IF NOT EXISTS isotherm_batches_status ON isotherm_batches (status, expires_at)",
    "CREATE INDEX IF NOT EXISTS isotherm_batches_owner ON isotherm_batches (owner, created_at, id)",
    "CREATE TABLE IF NOT EXISTS isotherm_requests (
        batch_id TEXT NOT NULL, number BIGINT NOT NULL, custom_id TEXT NOT NULL, ready_at BIGINT NOT NULL,
        worker TEXT, is_promoted BIGINT NOT NULL, failures BIGINT NOT NULL, outages BIGINT NOT NULL,
        done_at BIGINT, is_success BIGINT, result BLOB, PRIMARY KEY (batch_id, number))",
    "CREATE INDEX IF NOT EXISTS isotherm_requests_open ON isotherm_requests (batch_id, number) WHERE done_at IS NULL",
    "CREATE TABLE IF NOT EXISTS isotherm_workers (
        worker TEXT NOT NULL, model TEXT NOT NULL, spare_milli_per_s BIGINT, seen_at BIGINT NOT NULL,
        PRIMARY KEY (worker, model))",
];

/// Statements that make the tables of version 1 those of version 2: batches know the size of their lines and results.
const FROM_VERSION_1: Step = &[
    "ALTER TABLE isotherm_batches ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0",
    "UPDATE isotherm_batches SET bytes = (SELECT CAST(COALESCE(SUM(256 + OCTET_LENGTH(custom_id)
        + COALESCE(OCTET_LENGTH(result), 0)), 0) AS BIGINT) FROM isotherm_requests WHERE batch_id = isotherm_batches.id)",
];

/// Whether SQLite has the tables.
pub(super) const TABLES_SQLITE: &str = "SELECT COUNT(*) AS tables FROM sqlite_master WHERE type = 'table' AND name = 'isotherm_schema'";
/// Whether PostgreSQL has the tables.
pub(super) const TABLES_POSTGRES: &str = "SELECT COUNT(*) AS tables FROM pg_catalog.pg_tables
    WHERE tablename = 'isotherm_schema' AND schemaname = ANY (current_schemas(false))";

/// Statements in a dialect.
pub(super) fn in_dialect(
    statements: &'static [&'static str],
    dialect: Dialect,
) -> impl Iterator<Item = String> {
    statements.iter().map(move |statement| match dialect {
        Dialect::Sqlite => (*statement).to_owned(),
        Dialect::Postgres => statement.replace(" BLOB", " BYTEA"),
    })
}
