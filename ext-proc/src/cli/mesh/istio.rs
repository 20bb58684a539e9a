//! Hazards of Istio's resources.

use serde_json::Value;

use super::envoy;
use super::filter::{self, ENVOY_BUFFER_BYTES, FilterUse};
use super::inference_pool;
use super::manifests::{Document, Manifests};
use super::rule::{Occurrence, Rule};
use super::walk;

/// The limit that the profile `EDGE` of Istio 1.31 sets on gateways.
const EDGE_BUFFER_BYTES: u64 = 32 * 1024;

const EXT_PROC: &str = "envoy.filters.http.ext_proc";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "headers-not-held",
        hazard: "Istio's WasmPlugin cannot set `allow_on_headers_stop_iteration`: the filter reads no prompts",
        remedy: "load the filter by an EnvoyFilter, as in deploy/mesh/istio.yaml",
        find: headers_not_held,
    },
    Rule {
        name: "filter-behind-ext-proc",
        hazard: "the EnvoyFilter puts the filter behind the InferencePool's ext_proc: the service decides before the prompt is read",
        remedy: "use `operation: INSERT_BEFORE` with `subFilter.name: envoy.filters.http.ext_proc`, or INSERT_FIRST",
        find: filter_behind_ext_proc,
    },
    Rule {
        name: "buffer-below-filter",
        hazard: "Envoy answers 413 to a body that the filter still holds: ",
        remedy: "set `request_body_buffer_limit` by an EnvoyFilter for VIRTUAL_HOST, as in deploy/mesh/istio.yaml",
        find: buffer_below_filter,
    },
    Rule {
        name: "picker-dropped",
        hazard: "CORS or a fault on a route of an InferencePool: Istio drops the endpoint picker from that route",
        remedy: "put CORS on the engines or in front of the gateway, and faults on other routes",
        find: picker_dropped,
    },
];

fn headers_not_held(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let plugins = filter::in_resources(manifests, "WasmPlugin", "spec", "pluginConfig");
    let extensions =
        filter::in_resources(manifests, "TrafficExtension", "spec.wasm", "pluginConfig");
    let requests = plugins.chain(extensions).filter(FilterUse::holds_headers);
    requests.map(|found| found.document.into()).collect()
}

/// The patches of an EnvoyFilter.
fn patches(document: &Document) -> impl Iterator<Item = &Value> {
    walk::list(&document.root, "spec.configPatches")
}

/// Whether a patch inserts the request role: by itself, or by the name of an extension's configuration.
fn inserts_request_role(document: &Document, patch: &Value) -> bool {
    let reads_prompt = |value: &Value| {
        filter::in_envoy(document, value)
            .iter()
            .any(FilterUse::is_request)
    };
    let is_extension = |patch: &&Value| walk::text(patch, "applyTo") == Some("EXTENSION_CONFIG");
    let name = walk::text(patch, "patch.value.name");
    let mut extensions = patches(document)
        .filter(is_extension)
        .filter(|extension| reads_prompt(extension));
    !is_extension(&patch)
        && (reads_prompt(patch)
            || extensions.any(|extension| walk::text(extension, "patch.value.name") == name))
}

fn filter_behind_ext_proc(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let asks_picker = manifests.of_kind("InferencePool").next().is_some()
        || manifests
            .of_kind("EnvoyFilter")
            .flat_map(patches)
            .any(|patch| {
                walk::text(patch, "match.listener.filterChain.filter.subFilter.name")
                    == Some(EXT_PROC)
            });
    let filters = manifests.of_kind("EnvoyFilter").filter(|_| asks_picker);
    let behind = filters.filter(|document| {
        patches(document).any(|patch| inserts_request_role(document, patch) && !is_in_front(patch))
    });
    behind.map(Occurrence::from).collect()
}

/// Whether a patch inserts its filter in front of ext_proc.
fn is_in_front(patch: &Value) -> bool {
    let anchor = walk::text(patch, "match.listener.filterChain.filter.subFilter.name");
    match walk::text(patch, "patch.operation") {
        Some("INSERT_FIRST") => true,
        Some("INSERT_BEFORE") => anchor.is_none() || anchor == Some(EXT_PROC),
        _ => false,
    }
}

fn buffer_below_filter(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let limits = manifests
        .of_kind("EnvoyFilter")
        .flat_map(patches)
        .filter_map(patched_limit);
    let limit = limits.min().unwrap_or_else(|| gateway_limit(manifests));
    let mut occurrences = Vec::new();
    for document in manifests.of_kind("EnvoyFilter") {
        let uses = filter::in_envoy(document, &document.root);
        let requests = uses.iter().filter(|found| found.is_request());
        if let Some(held) = requests
            .map(FilterUse::held_bytes)
            .max()
            .filter(|held| *held > limit)
        {
            let detail = format!("the filter holds {held} bytes, and the limit is {limit}");
            occurrences.push(Occurrence::new(document, detail));
        }
    }
    occurrences
}

/// The limit that a patch sets on virtual hosts or routes.
fn patched_limit(patch: &Value) -> Option<u64> {
    envoy::buffer_limit(walk::at(patch, "patch.value")?)
}

/// The limit of gateways without a patch.
fn gateway_limit(manifests: &Manifests) -> u64 {
    let settings = manifests.documents.iter().flat_map(|document| {
        let objects = walk::objects(&document.root).into_iter();
        objects.filter_map(|object| object.get("connectionSettings"))
    });
    let limits = settings.filter_map(|settings| {
        let given = settings
            .get("listenerPerConnectionBufferLimitBytes")
            .and_then(walk::number);
        let is_edge = walk::text(settings, "profile") == Some("EDGE");
        given.or_else(|| is_edge.then_some(EDGE_BUFFER_BYTES))
    });
    limits.min().unwrap_or(ENVOY_BUFFER_BYTES)
}

fn picker_dropped(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let pools: Vec<String> = manifests
        .of_kind("InferencePool")
        .map(|pool| format!("{}-ip-", pool.name()))
        .collect();
    // Istio's own Service of a pool is called POOL-ip-HASH.
    let leads_to_pool = |rule: &Value| {
        let mut hosts =
            walk::list(rule, "route").filter_map(|route| walk::text(route, "destination.host"));
        hosts.any(|host| pools.iter().any(|pool| host.starts_with(pool)))
    };
    let services = manifests.of_kind("VirtualService").filter(|service| {
        let mut rules = walk::list(&service.root, "spec.http");
        rules.any(|rule| {
            let is_changed = rule.get("corsPolicy").is_some() || rule.get("fault").is_some();
            is_changed && leads_to_pool(rule)
        })
    });
    let routes = manifests.of_kind("HTTPRoute").filter(|route| {
        let mut rules = walk::list(&route.root, "spec.rules");
        is_at_istio(manifests, route)
            && rules.any(|rule| inference_pool::has_pool(rule) && has_cors(rule))
    });
    services.chain(routes).map(Occurrence::from).collect()
}

/// Whether a gateway of Istio serves a route.
fn is_at_istio(manifests: &Manifests, route: &Document) -> bool {
    inference_pool::gateways_of(manifests, route)
        .any(|gateway| gateway == inference_pool::Gateway::Istio)
}

/// Whether a rule of an HTTPRoute has a filter for CORS.
fn has_cors(rule: &Value) -> bool {
    walk::list(rule, "filters").any(|filter| walk::text(filter, "type") == Some("CORS"))
}
