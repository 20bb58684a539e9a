//! Logs: one line per event on standard error, as text for a person at a terminal and as JSON for everything else.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// What is logged unless somebody says otherwise.
pub const DEFAULT_FILTER: &str = "info";

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be read.
    #[error(
        "`{filter}` is not a log filter ({why}); write a level (error, warn, info, debug, trace), \
         or levels by module, such as `info,isotherm_ext_proc::frontends=debug`"
    )]
    Filter {
        /// As it was given.
        filter: String,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody has set up logging already.
    #[error("logging is set up already: {0}")]
    Twice(String),
}

/// Starts logging what `filter` lets through.
///
/// # Errors
///
/// When the filter cannot be read, or logging runs already.
pub fn init(filter: &str) -> Result<(), LogError> {
    let filter = parse(filter)?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr);
    let started = if stderr().is_terminal() {
        lines.try_init()
    } else {
        lines.json().flatten_event(true).try_init()
    };
    started.map_err(|error| LogError::Twice(error.to_string()))
}

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::builder()
        .parse(filter)
        .map_err(|error| LogError::Filter {
            filter: filter.to_owned(),
            why: error.to_string(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_levels_by_module() {
        assert!(parse("debug").is_ok());
        assert!(parse("info,isotherm_ext_proc::frontends=debug").is_ok());
        let error = parse("isotherm=loud").unwrap_err().to_string();
        assert!(error.contains("isotherm=loud"), "{error}");
    }
}
