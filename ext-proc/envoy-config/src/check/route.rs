//! Rules of routes.

use crate::envoy::{Route, millis};
use crate::limits::{ATTEMPT_TIMES, QUEUE_WAIT_MS};
use crate::yaml::Node;

use super::{Mistake, Scope, paths};

/// A route in front of Isotherm's takes the paths of the APIs.
pub(super) fn shadowed(scope: &Scope<'_>) -> Vec<Mistake> {
    let mut found = Vec::new();
    for (at, own) in scope.routes.iter().enumerate() {
        if !own.is_of_isotherm(scope.pools) {
            continue;
        }
        let apis = paths::apis(own);
        let earlier = scope.routes.iter().take(at).filter(|route| {
            route.host.node.site == own.host.node.site
                && !route.has_conditions()
                && !route.is_of_isotherm(scope.pools)
        });
        for route in earlier {
            let taken: Vec<&String> = apis
                .iter()
                .filter(|path| paths::takes(route, path))
                .collect();
            // A single API at another cluster is the owner's intention; the chat is not.
            let has_chat = taken.iter().any(|path| path.ends_with("/chat/completions"));
            if taken.len() < 2 && !has_chat {
                continue;
            }
            let is_whole = taken.len() == apis.len();
            let share = if is_whole {
                "every API".to_owned()
            } else {
                format!("{} APIs", taken.len())
            };
            let hazard = format!(
                "the route takes {share} before the route of Isotherm in line {}: these requests go by the old way",
                own.node.line
            );
            let remedy = "remove it, move it behind the route of Isotherm, or name it: `isotherm envoy add --route PREFIX`";
            found.push(
                Mistake::error("route-shadows-isotherm", route.node.line, hazard, remedy)
                    .of_route(),
            );
        }
    }
    found.dedup();
    found
}

/// Settings on one of several routes with one match: filters in front see the route without the header of Isotherm.
pub(super) fn one_of_several(scope: &Scope<'_>) -> Vec<Mistake> {
    let own: Vec<&Route<'_>> = scope.own().collect();
    let mut found = Vec::new();
    for (at, one) in own.iter().enumerate() {
        for other in own.iter().skip(at + 1) {
            let is_twin =
                own_match(one) == own_match(other) && one.host.node.site == other.host.node.site;
            if is_twin {
                found.extend(differences(one, other));
            }
        }
    }
    found
}

/// The match of a route without the header that Isotherm's filters add.
fn own_match(route: &Route<'_>) -> Option<Node> {
    let mut matched = route.node.get("match")?.clone();
    let headers = matched.items_at("headers");
    let headers = headers.filter(|header| {
        let is_added = header.str_at("name") == Some(crate::envoy::CLUSTER_HEADER);
        !(is_added && header.get("present_match").is_some_and(Node::is_true))
    });
    let headers: Vec<Node> = headers.cloned().collect();
    matched.remove("headers");
    if !headers.is_empty() {
        matched.set("headers", Node::list(headers));
    }
    Some(matched)
}

fn differences(one: &Route<'_>, other: &Route<'_>) -> Vec<Mistake> {
    let remedy = "one route is enough: `isotherm envoy add` writes it; or give both routes the same settings";
    let mut found = Vec::new();
    let filters = |route: &Route<'_>| -> Vec<String> {
        let own = route.node.get("typed_per_filter_config");
        let names = own.into_iter().flat_map(Node::members);
        let names = names.filter(|member| !member.name.starts_with(crate::envoy::FILTER_PREFIX));
        names.map(|member| member.name.clone()).collect()
    };
    let (of_one, of_other) = (filters(one), filters(other));
    for (route, own, twin, others) in [
        (one, &of_one, other, &of_other),
        (other, &of_other, one, &of_one),
    ] {
        for name in own.iter().filter(|name| !others.contains(name)) {
            let hazard = format!(
                "security: {name} is set here, and not on the route in line {} with the same match. Filters in front of Isotherm \
                 see only one of the two, so the requirement may not apply",
                twin.node.line
            );
            found.push(
                Mistake::error("setting-on-one-route", route.node.line, hazard, remedy).of_route(),
            );
        }
    }
    let settings = |route: &Route<'_>| {
        let of_route = ["request_headers_to_add", "request_headers_to_remove"];
        let of_route = of_route.map(|name| route.node.get(name).cloned());
        let of_action = [
            "rate_limits",
            "cors",
            "timeout",
            "prefix_rewrite",
            "regex_rewrite",
        ];
        let of_action =
            of_action.map(|name| route.action().and_then(|action| action.get(name)).cloned());
        (of_route, of_action)
    };
    if settings(one) != settings(other) {
        let hazard = format!(
            "the route and the one in line {} have the same match and different settings: filters in front see only one of them",
            other.node.line
        );
        found.push(
            Mistake::warning("setting-on-one-route", one.node.line, hazard, remedy).of_route(),
        );
    }
    found
}

/// Times that end requests which wait or run.
pub(super) fn times(scope: &Scope<'_>) -> Vec<Mistake> {
    let mut found = Vec::new();
    for route in scope.own() {
        let Some(action) = route.action() else {
            continue;
        };
        for name in ATTEMPT_TIMES {
            let policy = route.inherited("retry_policy");
            if let Some(member) = policy.and_then(|policy| policy.member(name)) {
                let hazard = format!(
                    "`{name}` ends a request that a replica computes: it is computed again elsewhere, and the healthy \
                                      replica counts as failed"
                );
                let remedy = "remove it; the filter and the service find replicas that hang";
                found.push(
                    Mistake::error("attempt-timeout", member.line, hazard, remedy).of_route(),
                );
            }
        }
        let time = |node: &Node| node.as_str().and_then(millis);
        let timeout = action.get("timeout");
        let is_short = |ms: f64| ms > 0.0 && ms <= QUEUE_WAIT_MS;
        let remedy = "set `timeout: 0s`: `stream_idle_timeout` bounds silence";
        match timeout {
            None => {
                let hazard = "the route has no `timeout`, and Envoy's default is 15 s: longer answers and waits in the queue end with 504";
                found.push(
                    Mistake::error("short-timeout", action_line(route, action), hazard, remedy)
                        .of_route(),
                );
            }
            Some(own) if time(own).is_some_and(is_short) => {
                let hazard = "the route's timeout is not longer than a wait in the service's queue (30 s by default)";
                found.push(Mistake::error("short-timeout", own.line, hazard, remedy).of_route());
            }
            Some(_) => {}
        }
        let silence = action
            .get("idle_timeout")
            .or(scope.manager.node.get("stream_idle_timeout"));
        if let Some(own) = silence.filter(|own| time(own).is_some_and(is_short)) {
            let hazard = "a request that is silent in the service's queue (30 s by default) ends";
            let remedy = "set `idle_timeout: 3600s` on the route";
            found.push(Mistake::error("short-timeout", own.line, hazard, remedy));
        }
    }
    found.dedup();
    found
}

fn action_line(route: &Route<'_>, action: &Node) -> usize {
    if action.line == 0 {
        route.node.line
    } else {
        action.line
    }
}

/// Shadows that would see internal headers.
pub(super) fn shadows(scope: &Scope<'_>) -> Vec<Mistake> {
    let mut found = Vec::new();
    for route in scope.own() {
        let policies = route.inherited("request_mirror_policies");
        for policy in policies.into_iter().flat_map(Node::items) {
            let name = policy.str_at("cluster").unwrap_or_default();
            if scope.cluster(name).is_some_and(removes_internal_headers) {
                continue;
            }
            let hazard = format!(
                "the shadow {name} sees the session key, the cluster and the address of the replica"
            );
            let remedy = "give its cluster the upstream filter isotherm.internal_headers, as the pool's cluster has it";
            found.push(
                Mistake::warning("shadow-sees-headers", policy.line, hazard, remedy).of_route(),
            );
        }
    }
    found
}

/// Whether a cluster removes internal headers from its requests.
pub(crate) fn removes_internal_headers(cluster: &Node) -> bool {
    let options = cluster.get("typed_extension_protocol_options");
    let filters =
        options.and_then(|options| options.get(crate::envoy::HTTP_OPTIONS)?.get("http_filters"));
    filters
        .into_iter()
        .flat_map(Node::items)
        .any(|filter| filter.str_at("name") == Some("isotherm.internal_headers"))
}

/// Paths that are no API before the rewrite.
pub(super) fn rewritten(scope: &Scope<'_>) -> Vec<Mistake> {
    let rewrites = [
        "prefix_rewrite",
        "regex_rewrite",
        "path_rewrite",
        "path_rewrite_policy",
    ];
    let mut found = Vec::new();
    for route in scope.own() {
        let rewrite = rewrites
            .iter()
            .find_map(|name| route.action()?.member(name));
        let mut configured = scope.configured_apis().into_iter();
        let is_unread =
            paths::apis(route).is_empty() && !configured.any(|path| paths::takes(route, &path));
        if let (Some(rewrite), true) = (rewrite, is_unread) {
            let hazard = format!(
                "`{}` makes the path of an API behind the filter, which sees {}: prompts are not read",
                rewrite.name,
                route.specifier()
            );
            let remedy =
                "set `apis` of the filter to the path and its API, or rewrite the prefix only";
            found.push(Mistake::warning("path-is-no-api", rewrite.line, hazard, remedy).of_route());
        }
    }
    found
}

/// A route that a filter in front chooses by a header: Envoy has built the chain by then, without the disabled filters.
pub(super) fn chosen_late(scope: &Scope<'_>) -> Vec<Mistake> {
    let is_disabled = scope.manager.filters().iter().any(|filter| {
        crate::envoy::is_of_isotherm(filter) && filter.get("disabled").is_some_and(Node::is_true)
    });
    let Some(chooser) = super::chain::chooses_routes(scope).filter(|_| is_disabled) else {
        return Vec::new();
    };
    let by_header = scope.own().filter(|own| {
        let has_header = own.node.at("match.headers").is_some();
        let others = scope.routes.iter().filter(|route| {
            route.host.node.site == own.host.node.site
                && route.specifier_member() == own.specifier_member()
                && !route.is_of_isotherm(scope.pools)
        });
        has_header && others.into_iter().next().is_some()
    });
    let findings = by_header.map(|route| {
        let hazard = format!(
            "the route asks for a header. Where {chooser} sets it, Envoy has left the disabled filters out by the route before"
        );
        let remedy = "let the client or the early header mutation set the header, or give the engines a path or a host of their own";
        Mistake::warning("route-chosen-late", route.node.line, hazard, remedy).of_route()
    });
    findings.collect()
}
