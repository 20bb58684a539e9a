//! What is wrong with a configuration file: all of it, each mistake with its option and its line.
//!
//! A reader who gets one mistake per attempt restarts a service ten times; so nothing here stops at the first.

use std::fmt;
use std::path::PathBuf;

/// Where something stands in a file; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLocation {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where it stands; `None` when the file as a whole is at fault (it cannot be read).
    pub location: Option<SourceLocation>,
    /// Which option, such as `pools[1].probe.interval_ms`; empty for the file as a whole.
    pub option: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(SourceLocation { line, column }) = self.location {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.option.is_empty() {
            write!(f, "{}: ", self.option)?;
        }
        f.write_str(&self.message)
    }
}

/// Every mistake of one file, in the order of its lines. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// Which file, where it was one.
    pub file: Option<PathBuf>,
    /// The mistakes.
    pub errors: Vec<ConfigError>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.errors.len();
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        match &self.file {
            Some(file) => write!(f, "{}: {count} {noun}", file.display())?,
            None => write!(f, "configuration: {count} {noun}")?,
        }
        for error in &self.errors {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Gathers mistakes while a file is read.
#[derive(Debug, Default)]
pub(super) struct Errors(Vec<ConfigError>);

impl Errors {
    /// Notes one mistake.
    pub(super) fn add(
        &mut self,
        location: Option<SourceLocation>,
        option: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.0.push(ConfigError {
            location,
            option: option.into(),
            message: message.into(),
        });
    }

    /// `value` when there was no mistake, else all of them in the order of their lines.
    pub(super) fn into_result<T>(mut self, value: T) -> Result<T, ConfigErrors> {
        if self.0.is_empty() {
            return Ok(value);
        }
        self.0.sort_by_key(|error| error.location);
        Err(ConfigErrors {
            file: None,
            errors: self.0,
        })
    }
}
