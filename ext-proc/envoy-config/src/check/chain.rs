//! Rules of the chain of HTTP filters.

use crate::envoy::{self, REQUEST_FILTER, filter_message};
use crate::yaml::Node;

use super::{Mistake, Scope};

/// Filters that may reject a request or answer it.
const REJECTING: [&str; 17] = [
    "adaptive_concurrency",
    "admission_control",
    "api_key_auth",
    "basic_auth",
    "buffer",
    "cors",
    "csrf",
    "ext_authz",
    "fault",
    "jwt_authn",
    "local_ratelimit",
    "oauth2",
    "oauth",
    "ratelimit",
    "rate_limit_quota",
    "rbac",
    "thrift_to_metadata",
];

/// Filters that may rewrite the body of a request.
const REWRITING: [&str; 11] = [
    "aws_lambda",
    "connect_grpc_bridge",
    "dynamic_modules",
    "ext_proc",
    "golang",
    "grpc_http1_bridge",
    "grpc_http1_reverse_bridge",
    "grpc_json_transcoder",
    "grpc_json_reverse_transcoder",
    "lua",
    "wasm",
];

/// The kind of a filter: `jwt_authn` of `envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication`.
fn kind(filter: &Node) -> &str {
    let kind = filter_message(filter).strip_prefix("envoy.extensions.filters.http.");
    kind.and_then(|rest| rest.split('.').next())
        .unwrap_or_default()
}

/// Filters behind Isotherm's first one, its own left out.
fn behind<'a>(scope: &Scope<'a>) -> impl Iterator<Item = &'a Node> {
    let first = scope.manager.first_of_isotherm().unwrap_or_default();
    let filters = scope.manager.filters().iter().skip(first);
    filters.filter(|filter| !envoy::is_of_isotherm(filter))
}

/// Filters in front of Isotherm's first one.
fn in_front<'a>(scope: &Scope<'a>) -> impl Iterator<Item = &'a Node> {
    let first = scope.manager.first_of_isotherm().unwrap_or_default();
    scope.manager.filters().iter().take(first)
}

fn name(filter: &Node) -> &str {
    filter.str_at("name").unwrap_or_default()
}

/// A filter in front of Isotherm that may set headers and choose the route anew.
pub(super) fn chooses_routes<'a>(scope: &Scope<'a>) -> Option<&'a str> {
    let choosers = [
        "ext_proc",
        "ext_authz",
        "lua",
        "wasm",
        "golang",
        "dynamic_modules",
    ];
    let mut found = in_front(scope).filter(|filter| choosers.contains(&kind(filter)));
    found.next().map(name)
}

/// Authentication, limits and rewriting of bodies belong in front.
pub(super) fn order(scope: &Scope<'_>) -> Vec<Mistake> {
    let mut found = Vec::new();
    for filter in behind(scope) {
        let name = name(filter);
        let remedy = "move it in front of isotherm.request";
        if REJECTING.contains(&kind(filter)) {
            let hazard = format!(
                "{name} stands behind Isotherm: a request that it rejects takes a place at a replica first"
            );
            found.push(Mistake::error(
                "rejected-behind",
                filter.line,
                hazard,
                remedy,
            ));
        } else if REWRITING.contains(&kind(filter)) {
            let hazard = format!(
                "{name} stands behind Isotherm: a body that it rewrites is not the one whose prefix the service knows"
            );
            found.push(Mistake::error(
                "body-rewritten-behind",
                filter.line,
                hazard,
                remedy,
            ));
        } else if kind(filter) == "decompressor" && decompresses(filter, "request_direction_config")
        {
            let hazard = format!(
                "{name} stands behind Isotherm: the filter cannot read compressed requests"
            );
            found.push(Mistake::error(
                "body-rewritten-behind",
                filter.line,
                hazard,
                remedy,
            ));
        }
    }
    found
}

/// Response compression behind Isotherm hides usage from the filter.
pub(super) fn compression(scope: &Scope<'_>) -> Vec<Mistake> {
    let compressors = behind(scope).filter(|filter| kind(filter) == "compressor");
    let findings = compressors.map(|filter| {
        let hazard = format!(
            "{} compresses responses before the filter sees them: usage is lost",
            name(filter)
        );
        let remedy = "move it in front of isotherm.request";
        Mistake::warning("compression-behind", filter.line, hazard, remedy)
    });
    findings.collect()
}

/// A response decompressor in front, or a header that asks an engine for compression.
pub(super) fn decompression(scope: &Scope<'_>) -> Vec<Mistake> {
    let decompressor = in_front(scope).find(|filter| decompresses_responses(filter));
    let mut found = Vec::new();
    for route in scope.own() {
        let levels = [route.node, route.host.node, route.host.table];
        let is_encoding = |text: Option<&str>| {
            text.is_some_and(|name| name.eq_ignore_ascii_case("accept-encoding"))
        };
        let is_removed = levels.iter().any(|level| {
            let mut removed = level.items_at("request_headers_to_remove");
            removed.any(|name| is_encoding(name.as_str()))
        });
        let added = levels
            .iter()
            .flat_map(|level| level.items_at("request_headers_to_add"));
        let mut added = added.filter(|header| is_encoding(header.str_at("header.key")));
        let remedy = "add `request_headers_to_remove: [accept-encoding]` to the route";
        if let (Some(filter), false) = (decompressor, is_removed) {
            let hazard = format!(
                "{} decompresses responses behind the filter's back: the filter sees them compressed, and usage is lost",
                name(filter)
            );
            found.push(Mistake::warning(
                "compressed-responses",
                filter.line,
                hazard,
                remedy,
            ));
        }
        if let Some(header) = added.next() {
            let hazard = "the route asks the engine for compression: the filter cannot read usage";
            let remedy = "remove the header accept-encoding from `request_headers_to_add`";
            found.push(
                Mistake::warning("compressed-responses", header.line, hazard, remedy).of_route(),
            );
        }
    }
    found.dedup();
    found
}

/// Whether a filter decompresses responses.
pub(crate) fn decompresses_responses(filter: &Node) -> bool {
    kind(filter) == "decompressor" && decompresses(filter, "response_direction_config")
}

fn decompresses(filter: &Node, direction: &str) -> bool {
    let enabled = filter.at(&format!(
        "typed_config.{direction}.common_config.enabled.default_value"
    ));
    enabled.and_then(Node::as_str) != Some("false")
}

/// Filters that are disabled in the chain and on a route of Isotherm.
pub(super) fn not_enabled(scope: &Scope<'_>) -> Vec<Mistake> {
    let disabled: Vec<&Node> = scope
        .manager
        .filters()
        .iter()
        .filter(|filter| {
            envoy::is_of_isotherm(filter) && filter.get("disabled").is_some_and(Node::is_true)
        })
        .collect();
    if disabled.is_empty() || scope.routes.is_empty() {
        return Vec::new();
    }
    let remedy = "enable each filter in `typed_per_filter_config` of the route: \
                  { \"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {} }";
    let mut found = Vec::new();
    for route in scope.own() {
        let missing = disabled.iter().map(|filter| name(filter));
        let missing: Vec<&str> = missing
            .filter(|name| route.enables(name) != Some(true))
            .collect();
        if !missing.is_empty() {
            let hazard = format!(
                "the route leads to a pool, and does not enable {}",
                missing.join(", ")
            );
            found.push(Mistake::error("not-enabled", route.node.line, hazard, remedy).of_route());
        }
    }
    if scope.own().next().is_none() {
        let line = disabled.first().map_or(1, |filter| filter.line);
        let hazard = "the filters are disabled, and no route leads to a pool";
        found.push(Mistake::error(
            "not-enabled",
            line,
            hazard,
            "`isotherm envoy add --route PREFIX` shows such a route",
        ));
    }
    found
}

/// Filters that run for other applications.
pub(super) fn enabled_elsewhere(scope: &Scope<'_>) -> Vec<Mistake> {
    let mut filters = scope.manager.filters().iter();
    let request = filters.find(|filter| filter.str_at("name") == Some(REQUEST_FILTER));
    let Some(request) = request else {
        return Vec::new();
    };
    let is_on = !request.get("disabled").is_some_and(Node::is_true);
    let others = scope
        .routes
        .iter()
        .filter(|route| !route.clusters().is_empty() && !route.is_of_isotherm(scope.pools));
    let mistaken = others.filter(|route| route.enables(REQUEST_FILTER).unwrap_or(is_on));
    let findings = mistaken.map(|route| {
        let hazard = format!(
            "the filters run on a route of another application (to {}): its requests are held, queued or rejected",
            route.clusters().join(", ")
        );
        let remedy = "set `disabled: true` on each filter in the chain, and enable the filters on the routes to the pools";
        Mistake::error("enabled-elsewhere", route.node.line, hazard, remedy).of_route()
    });
    findings.collect()
}
