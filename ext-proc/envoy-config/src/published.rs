//! The paths that clients use where a route publishes the engines under another prefix.

use isotherm_fingerprint::paths::DEFAULT_PATHS;

use crate::envoy::Route;

/// The paths that the filter and the service must allow; empty where their defaults are enough.
pub(crate) fn published<'a, 'b: 'a>(routes: impl Iterator<Item = &'a Route<'b>>) -> Vec<String> {
    let mut needed: Vec<String> = Vec::new();
    let mut has_default = false;
    for path in routes.flat_map(of_route) {
        if DEFAULT_PATHS.contains(&path.as_str()) {
            has_default = true;
        } else if !needed.contains(&path) {
            needed.push(path);
        }
    }
    if has_default && !needed.is_empty() {
        needed.splice(0..0, DEFAULT_PATHS.map(str::to_owned));
    }
    needed
}

/// The public paths of a route whose path at the engine is one of the defaults.
pub(crate) fn of_route(route: &Route<'_>) -> Vec<String> {
    let Some((kind, public)) = route.specifier_member() else {
        return Vec::new();
    };
    let rewrite = route
        .action()
        .and_then(|action| action.str_at("prefix_rewrite"));
    match (kind, rewrite) {
        ("prefix" | "path_separated_prefix", Some(inner)) => {
            // `/llm` for `/` is meant for `/llm/v1/...`; engines read `//v1/...` as `/v1/...`.
            let is_loose = inner.ends_with('/') && !public.ends_with('/');
            let slash = if is_loose { "/" } else { "" };
            let rests = DEFAULT_PATHS
                .iter()
                .filter_map(|path| path.strip_prefix(inner));
            rests.map(|rest| format!("{public}{slash}{rest}")).collect()
        }
        ("prefix" | "path_separated_prefix", None) => {
            let below: Vec<String> = DEFAULT_PATHS
                .iter()
                .filter(|path| path.starts_with(public))
                .map(|path| (*path).to_owned())
                .collect();
            if below.is_empty() {
                // The engines serve under the prefix themselves.
                let prefix = public.trim_end_matches('/');
                return DEFAULT_PATHS
                    .iter()
                    .map(|path| format!("{prefix}{path}"))
                    .collect();
            }
            below
        }
        ("path", _) => vec![public.to_owned()],
        _ => Vec::new(),
    }
}
