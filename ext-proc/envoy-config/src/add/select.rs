//! The routes that the operator names.
//!
//! A name is a route's prefix, path, expression or own name. Where several routes of a virtual host have the same one, those
//! without further conditions count, and those with conditions that lead to the same clusters. The others stay.

use crate::envoy::{Manager, Route, VirtualHost};

use super::Request;

/// Why the named routes cannot be taken.
#[derive(Debug)]
pub(super) enum Reason {
    /// No route has this name.
    Unknown(String),
    /// The routes of this name answer themselves.
    NoCluster(String),
    /// Routes of this name lead to different clusters.
    Ambiguous(String, Vec<String>),
}

/// Finds the routes, with their connection managers. Says in `kept` which routes of the same match stay.
pub(super) fn routes<'a>(
    managers: &[Manager<'a>],
    request: &Request,
    kept: &mut Vec<String>,
) -> Result<Vec<(Manager<'a>, Route<'a>)>, Reason> {
    let mut selected: Vec<(Manager<'a>, Route<'a>)> = Vec::new();
    for name in &request.routes {
        let mut found = Vec::new();
        let mut has_answer = false;
        for manager in managers {
            for host in hosts(manager, request) {
                let named: Vec<Route<'a>> = host
                    .routes()
                    .into_iter()
                    .filter(|route| is_named(route, name))
                    .collect();
                has_answer |= !named.is_empty();
                let chosen = of_host(name, named, request, kept)?;
                found.extend(chosen.into_iter().map(|route| (*manager, route)));
            }
        }
        let clusters = |(_, route): &(Manager<'a>, Route<'a>)| route.clusters();
        let is_one = found.windows(2).all(|pair| match pair {
            [one, other] => clusters(one) == clusters(other),
            _ => true,
        });
        if !is_one && request.virtual_host.is_none() && request.to.is_none() {
            let all = found.iter().map(|(_, route)| route.describe()).collect();
            return Err(Reason::Ambiguous(name.clone(), all));
        }
        match (found.is_empty(), has_answer) {
            (true, true) => return Err(Reason::NoCluster(name.clone())),
            (true, false) => return Err(Reason::Unknown(name.clone())),
            (false, _) => selected.extend(found),
        }
    }
    Ok(selected)
}

fn hosts<'a>(manager: &Manager<'a>, request: &Request) -> Vec<VirtualHost<'a>> {
    let wanted = request.virtual_host.as_deref();
    let hosts = manager.hosts().into_iter();
    hosts
        .filter(|host| wanted.is_none_or(|wanted| host.name() == wanted))
        .collect()
}

fn is_named(route: &Route<'_>, name: &str) -> bool {
    route.specifier() == name || route.node.str_at("name") == Some(name)
}

/// The routes of one virtual host.
fn of_host<'a>(
    name: &str,
    named: Vec<Route<'a>>,
    request: &Request,
    kept: &mut Vec<String>,
) -> Result<Vec<Route<'a>>, Reason> {
    let leads = |route: &Route<'a>| match &request.to {
        Some(to) => route.clusters().contains(&to.as_str()),
        None => route.destination().is_some(),
    };
    let (candidates, others): (Vec<Route<'a>>, Vec<Route<'a>>) = named.into_iter().partition(leads);
    kept.extend(
        others
            .iter()
            .map(|route| format!("kept: {}", route.describe())),
    );
    let Some(first) = candidates
        .iter()
        .find(|route| !route.has_conditions())
        .or(candidates.first())
    else {
        return Ok(Vec::new());
    };
    let clusters = first.clusters();
    let is_plain = !first.has_conditions();
    let (chosen, others): (Vec<Route<'a>>, Vec<Route<'a>>) = candidates
        .iter()
        .partition(|route| route.clusters() == clusters);
    let is_ambiguous = others
        .iter()
        .any(|route| !is_plain || !route.has_conditions());
    if is_ambiguous {
        let all = candidates.iter().map(Route::describe).collect();
        return Err(Reason::Ambiguous(name.to_owned(), all));
    }
    kept.extend(others.iter().map(|route| {
        format!(
            "kept: {}. `--to CLUSTER` names the cluster whose routes change.",
            route.describe()
        )
    }));
    Ok(chosen)
}
