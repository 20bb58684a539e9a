//! Logs: one line per event on standard error, as text on a terminal and as JSON elsewhere.

use std::io::{IsTerminal, stderr};

use anyhow::anyhow;
use tracing_subscriber::EnvFilter;

/// The default log filter.
pub const DEFAULT_FILTER: &str = "info";

/// Levels of libraries that a filter does not name. The library for Kubernetes logs each retry as an error, while the
/// service logs each problem once.
const LIBRARY_LEVELS: &str = "kube_client=off,kube_runtime=off";

/// Starts to log the events that `filter` selects.
/// Fails when the filter is not valid, or logging has started already.
pub fn init(filter: &str) -> anyhow::Result<()> {
    let filter = parse(filter)?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr);
    let started = if stderr().is_terminal() {
        lines.try_init()
    } else {
        lines.json().flatten_event(true).try_init()
    };
    started.map_err(|error| anyhow!("logging has started already: {error}"))
}

fn parse(filter: &str) -> anyhow::Result<EnvFilter> {
    // A later directive for the same module wins.
    let directives = format!("{LIBRARY_LEVELS},{filter}");
    EnvFilter::builder().parse(directives).map_err(|error| {
        anyhow!(
            "`{filter}` is not a log filter ({error}); write a level (error, warn, info, debug, trace), \
             or levels by module, such as `info,isotherm_ext_proc::frontends=debug`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_or_levels_by_module() {
        assert!(parse("debug").is_ok());
        assert!(parse("info,isotherm_ext_proc::frontends=debug").is_ok());
        assert!(parse("").is_ok());
        let error = parse("isotherm=loud").unwrap_err().to_string();
        assert!(error.contains("isotherm=loud"), "{error}");
    }

    #[test]
    fn retries_of_libraries_are_logged_only_where_the_filter_names_them() {
        let levels = |filter: &str| parse(filter).unwrap().to_string();
        assert!(levels("debug").contains("kube_client=off"));
        let named = levels("info,kube_client=debug");
        assert!(
            named.contains("kube_client=debug") && !named.contains("kube_client=off"),
            "{named}"
        );
    }
}
