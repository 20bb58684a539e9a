//! The paths that clients use where a route publishes the engines under other paths than their own.

use std::fmt::Write as _;

use isotherm_fingerprint::Api;
use isotherm_fingerprint::paths::DEFAULT_PATHS;
use regex::Regex;

use crate::envoy::Route;
use crate::yaml::{Node, Style, flow};

/// The paths that the filter and the service must allow.
#[derive(Clone, Debug, Default)]
pub(crate) struct PublishedPaths {
    /// The paths by name; empty where the defaults are enough.
    pub(crate) allowed: Vec<String>,
    /// The paths whose own ends do not tell their API, since the route rewrites them.
    pub(crate) apis: Vec<(String, Api)>,
}

impl PublishedPaths {
    /// The members of the service's configuration; empty where its defaults are enough.
    pub(crate) fn of_service(&self) -> String {
        let mut text = String::new();
        if !self.allowed.is_empty() {
            let paths = self.allowed.iter();
            let quoted: Vec<String> = paths.map(|path| quoted(path)).collect();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "paths: [{}]", quoted.join(", "));
        }
        if !self.apis.is_empty() {
            text.push_str("apis:\n");
        }
        for (path, api) in &self.apis {
            let path = quoted(path);
            let _ = writeln!(text, "  - {{ path: {path}, api: {} }}", api.name());
        }
        text
    }
}

/// A path as YAML, whatever characters it has.
fn quoted(path: &str) -> String {
    flow(&Node::quoted(path), Style::Yaml)
}

/// A path that clients use, and the path at the engine.
struct PublicPath {
    public: String,
    inner: String,
}

impl PublicPath {
    fn same(path: impl Into<String>) -> Self {
        let path = path.into();
        Self {
            inner: path.clone(),
            public: path,
        }
    }

    /// The API, where the filter cannot tell it by the public path.
    fn hidden_api(&self) -> Option<Api> {
        Api::from_path(&self.inner).filter(|_| Api::from_path(&self.public).is_none())
    }
}

/// The paths that routes publish.
pub(crate) fn published<'a, 'b: 'a>(routes: impl Iterator<Item = &'a Route<'b>>) -> PublishedPaths {
    let mut published = PublishedPaths::default();
    let mut has_default = false;
    for path in routes.flat_map(paths) {
        if let Some(api) = path.hidden_api() {
            let entry = (path.public.clone(), api);
            if !published.apis.contains(&entry) {
                published.apis.push(entry);
            }
        }
        if DEFAULT_PATHS.contains(&path.public.as_str()) {
            has_default = true;
        } else if !published.allowed.contains(&path.public) {
            published.allowed.push(path.public);
        }
    }
    if has_default && !published.allowed.is_empty() {
        published
            .allowed
            .splice(0..0, DEFAULT_PATHS.map(str::to_owned));
    }
    published
}

/// The public paths of a route whose path at the engine is one of the defaults.
pub(crate) fn of_route(route: &Route<'_>) -> Vec<String> {
    paths(route).into_iter().map(|path| path.public).collect()
}

fn paths(route: &Route<'_>) -> Vec<PublicPath> {
    let Some((kind, public)) = route.specifier_member() else {
        return Vec::new();
    };
    let action = route.action();
    let rewrite = action.and_then(|action| action.str_at("prefix_rewrite"));
    match (kind, rewrite) {
        ("prefix" | "path_separated_prefix", Some(inner)) => {
            // `/llm` for `/` is meant for `/llm/v1/...`; engines read `//v1/...` as `/v1/...`.
            let is_loose = inner.ends_with('/') && !public.ends_with('/');
            let slash = if is_loose { "/" } else { "" };
            let below = DEFAULT_PATHS.iter().filter_map(|path| {
                let rest = path.strip_prefix(inner)?;
                Some(PublicPath {
                    public: format!("{public}{slash}{rest}"),
                    inner: (*path).to_owned(),
                })
            });
            below.collect()
        }
        ("prefix" | "path_separated_prefix", None) => unchanged(public),
        ("path", Some(inner)) => vec![PublicPath {
            public: public.to_owned(),
            inner: inner.to_owned(),
        }],
        ("path", None) => {
            let by_expression = action
                .and_then(|action| action.get("regex_rewrite"))
                .and_then(|rewrite| rewritten(public, rewrite));
            let inner = by_expression.unwrap_or_else(|| public.to_owned());
            vec![PublicPath {
                public: public.to_owned(),
                inner,
            }]
        }
        _ => Vec::new(),
    }
}

/// The default paths below a prefix that the route does not rewrite.
fn unchanged(public: &str) -> Vec<PublicPath> {
    let below: Vec<PublicPath> = DEFAULT_PATHS
        .iter()
        .filter(|path| path.starts_with(public))
        .map(|path| PublicPath::same(*path))
        .collect();
    if !below.is_empty() {
        return below;
    }
    // The engines serve under the prefix themselves.
    let prefix = public.trim_end_matches('/');
    let paths = DEFAULT_PATHS.iter();
    paths
        .map(|path| PublicPath::same(format!("{prefix}{path}")))
        .collect()
}

/// A path after Envoy's `regex_rewrite`. `None` for an expression that this crate cannot read.
fn rewritten(path: &str, rewrite: &Node) -> Option<String> {
    let expression = Regex::new(rewrite.str_at("pattern.regex")?).ok()?;
    // RE2 writes a group as `\1`, this library as `${1}`, and a `$` of the text as `$$`.
    let group = Regex::new(r"\\(\d)").ok()?;
    let text = rewrite.str_at("substitution")?.replace('$', "$$");
    let substitution = group.replace_all(&text, "$${$1}");
    Some(
        expression
            .replace_all(path, substitution.as_ref())
            .into_owned(),
    )
}
