//! `isotherm envoy check`: known mistakes of Envoy configurations with Isotherm, each with its line and its remedy.
//!
//! Envoy accepts each of them. Every rule is a function over one connection manager or over all files together. The rules read
//! positions, so they work on the owner's text; a configuration dump has the positions of the dump.

mod bootstrap;
mod chain;
mod mistake;
mod paths;
mod route;
mod summary;
#[cfg(test)]
mod tests;

pub use mistake::{Mistake, Severity};
pub use summary::{Summary, summarize};

pub(crate) use chain::decompresses_responses;
pub(crate) use route::removes_internal_headers;

use crate::envoy::{self, Manager, Route};
use crate::yaml::{Node, ParseError, parse};

/// A file to check.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name, for messages.
    pub name: String,
    /// The file's text.
    pub text: String,
}

/// Checks files that one Envoy reads: a bootstrap and its discovery files, or a configuration dump.
pub fn check(sources: &[Source]) -> Result<Vec<Mistake>, (String, ParseError)> {
    let mut roots = Vec::new();
    for source in sources {
        let root = parse(&source.text).map_err(|error| (source.name.clone(), error))?;
        roots.push(root);
    }
    let mut findings = findings(&roots.iter().collect::<Vec<&Node>>());
    for (finding, at) in &mut findings {
        finding.file = sources
            .get(*at)
            .map(|source| source.name.clone())
            .unwrap_or_default();
    }
    Ok(findings.into_iter().map(|(finding, _)| finding).collect())
}

/// Whether a text is Envoy's own configuration, with Isotherm's filters in a listener.
#[must_use]
pub fn has_isotherm(text: &str) -> bool {
    parse(text).is_ok_and(|root| {
        let is_own = ["static_resources", "resources", "configs"];
        let mut managers = envoy::managers(&root).into_iter();
        is_own.iter().any(|name| root.get(name).is_some())
            && managers.any(|manager| manager.first_of_isotherm().is_some())
    })
}

/// The files from which a bootstrap gets listeners, routes and clusters.
#[must_use]
pub fn discovery_files(text: &str) -> Vec<String> {
    let Ok(root) = parse(text) else {
        return Vec::new();
    };
    let sources = root.all().into_iter();
    let paths = sources.filter_map(|node| node.str_at("path_config_source.path"));
    paths.map(str::to_owned).collect()
}

/// Checks one tree.
pub(crate) fn check_tree(root: &Node) -> Vec<Mistake> {
    findings(&[root])
        .into_iter()
        .map(|(finding, _)| finding)
        .collect()
}

/// The member of the filter `isotherm.request` that holds its own configuration.
const FILTER_CONFIGURATION: &str = "typed_config.config.configuration.value";

/// Input of the rules of one connection manager.
#[derive(Clone, Copy)]
struct Scope<'a> {
    manager: Manager<'a>,
    routes: &'a [Route<'a>],
    /// Names of the pools' clusters.
    pools: &'a [&'a str],
    /// Every file.
    roots: &'a [&'a Node],
}

impl<'a> Scope<'a> {
    /// The routes that lead to a pool.
    fn own(&self) -> impl Iterator<Item = &'a Route<'a>> {
        let pools = self.pools;
        self.routes
            .iter()
            .filter(move |route| route.is_of_isotherm(pools))
    }

    /// The paths whose API the filter's configuration names.
    fn configured_apis(&self) -> Vec<String> {
        let filters = self.manager.filters().iter();
        let texts = filters.filter_map(|filter| filter.str_at(FILTER_CONFIGURATION));
        let configurations = texts.filter_map(|text| parse(text).ok());
        configurations
            .flat_map(|configuration| {
                let apis = configuration.items_at("apis");
                let paths = apis.filter_map(|entry| entry.str_at("path"));
                paths.map(str::to_owned).collect::<Vec<_>>()
            })
            .collect()
    }

    fn cluster(&self, name: &str) -> Option<&'a Node> {
        self.roots.iter().find_map(|root| {
            root.all().into_iter().find(|node| {
                node.str_at("name") == Some(name)
                    && (node.get("connect_timeout").is_some()
                        || node.get("load_assignment").is_some())
            })
        })
    }
}

/// The rules of a connection manager.
const RULES: [fn(&Scope<'_>) -> Vec<Mistake>; 11] = [
    chain::order,
    chain::compression,
    chain::decompression,
    chain::not_enabled,
    chain::enabled_elsewhere,
    route::shadowed,
    route::one_of_several,
    route::times,
    route::shadows,
    route::rewritten,
    route::chosen_late,
];

/// Every finding with the index of its tree.
fn findings(roots: &[&Node]) -> Vec<(Mistake, usize)> {
    let pools = pools(roots);
    let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
    let mut found = Vec::new();
    for (at, root) in roots.iter().enumerate() {
        for manager in envoy::managers(root) {
            if manager.first_of_isotherm().is_none() {
                continue;
            }
            let (routes, of_tree) = routes(&manager, roots, at);
            let scope = Scope {
                manager,
                routes: &routes,
                pools: &pools,
                roots,
            };
            for rule in RULES {
                found.extend(rule(&scope).into_iter().map(|finding| {
                    let of_route = finding.is_of_route;
                    (finding, if of_route { of_tree } else { at })
                }));
            }
        }
    }
    found.extend(bootstrap::findings(roots));
    found.sort_by_key(|(finding, at)| (*at, finding.line));
    found.dedup();
    found
}

/// The routes of a manager, and the tree in which they stand: its own, or a discovery file's.
fn routes<'a>(manager: &Manager<'a>, roots: &[&'a Node], at: usize) -> (Vec<Route<'a>>, usize) {
    let own = manager.routes();
    if !own.is_empty() || !manager.has_remote_routes() {
        return (own, at);
    }
    for (at, root) in roots.iter().enumerate() {
        let remote = envoy::remote_hosts(root);
        if !remote.is_empty() {
            return (remote.iter().flat_map(|host| host.routes()).collect(), at);
        }
    }
    (own, at)
}

/// The clusters of pools: a header selects their hosts, or the filter names them.
fn pools(roots: &[&Node]) -> Vec<String> {
    let is_pool = |node: &&Node| {
        let policies = node.items_at("load_balancing_policy.policies");
        let mut messages = policies
            .filter_map(|policy| policy.at("typed_extension_config.typed_config"))
            .filter_map(Node::message);
        messages.any(|message| message.ends_with(".override_host.v3.OverrideHost"))
    };
    let nodes = roots.iter().flat_map(|root| root.all());
    let (mut names, mut texts) = (Vec::new(), Vec::new());
    for node in nodes {
        if is_pool(&node) {
            names.extend(node.str_at("name").map(str::to_owned));
        }
        if node.str_at("name") == Some(envoy::REQUEST_FILTER) {
            texts.extend(node.str_at(FILTER_CONFIGURATION));
        }
    }
    // A discovery file with the listeners alone has no clusters, but the filter names them.
    for configuration in texts.into_iter().filter_map(|text| parse(text).ok()) {
        let pools = configuration.items_at("pools");
        let pools = pools.filter_map(|pool| pool.str_at("cluster"));
        let all = pools.chain(configuration.str_at("default_cluster"));
        names.extend(all.map(str::to_owned));
    }
    names
}
