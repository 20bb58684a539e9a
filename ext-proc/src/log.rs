//! Logs: one line per event on standard error, as text on a terminal and as JSON elsewhere.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// The default log filter.
pub const DEFAULT_FILTER: &str = "info";

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not valid.
    #[error(
        "`{filter}` is not a log filter ({why}); write a level (error, warn, info, debug, trace), \
         or levels by module, such as `info,isotherm_ext_proc::frontends=debug`"
    )]
    Filter {
        /// The filter.
        filter: String,
        /// Reason of the error.
        why: String,
    },
    /// Logging has started already.
    #[error("logging has started already: {0}")]
    AlreadyStarted(String),
}

/// Starts to log the events that `filter` selects.
///
/// # Errors
///
/// When the filter is not valid, or logging has started already.
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
    started.map_err(|error| LogError::AlreadyStarted(error.to_string()))
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
