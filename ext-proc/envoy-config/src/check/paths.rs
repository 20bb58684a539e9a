//! The paths that a route takes.

use isotherm_fingerprint::Api;
use isotherm_fingerprint::paths::DEFAULT_PATHS;
use regex::Regex;

use crate::envoy::Route;
use crate::published::of_route;

/// The paths of inference APIs that clients use by way of a route.
pub(super) fn apis(route: &Route<'_>) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for path in of_route(route)
        .into_iter()
        .chain(DEFAULT_PATHS.map(str::to_owned))
    {
        if Api::from_path(&path).is_some() && takes(route, &path) && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Whether a route matches a path, whatever else it asks for.
pub(super) fn takes(route: &Route<'_>, path: &str) -> bool {
    match route.specifier_member() {
        Some(("prefix", prefix)) => path.starts_with(prefix),
        Some(("path", whole)) => path == whole,
        Some(("path_separated_prefix", prefix)) => {
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        Some(("safe_regex", expression)) => {
            // An expression that this crate cannot read is one of which it says nothing.
            let whole = Regex::new(&format!("^(?:{expression})$"));
            whole.is_ok_and(|whole| whole.is_match(path))
        }
        _ => false,
    }
}
