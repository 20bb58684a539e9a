//! Hazards of an InferencePool at the gateway that serves it.

use serde_json::Value;

use super::manifests::{Document, Manifests};
use super::rule::{Occurrence, Rule};
use super::walk;

/// A gateway that serves InferencePools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gateway {
    Istio,
    /// Envoy Gateway serves pools by Envoy AI Gateway only.
    EnvoyAi,
    Agentgateway,
    Nginx,
}

impl Gateway {
    fn name(self) -> &'static str {
        match self {
            Self::Istio => "Istio",
            Self::EnvoyAi => "Envoy AI Gateway",
            Self::Agentgateway => "agentgateway",
            Self::Nginx => "NGINX Gateway Fabric",
        }
    }
}

/// Parts of the names of controllers and classes, and the gateway of each.
const GATEWAYS: [(&str, Gateway); 8] = [
    ("istio", Gateway::Istio),
    ("gateway.envoyproxy.io", Gateway::EnvoyAi),
    ("envoy-ai-gateway", Gateway::EnvoyAi),
    ("envoy-gateway", Gateway::EnvoyAi),
    ("agentgateway", Gateway::Agentgateway),
    ("kgateway", Gateway::Agentgateway),
    ("gateway.nginx.org", Gateway::Nginx),
    ("nginx", Gateway::Nginx),
];

/// The gateways that refuse a list of addresses.
const SINGLE_ADDRESS: [Gateway; 3] = [Gateway::EnvoyAi, Gateway::Agentgateway, Gateway::Nginx];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "fail-open-ignored",
        hazard: "`failureMode: FailOpen`, and Envoy AI Gateway always fails closed (envoyproxy/ai-gateway#2502): requests fail \
                 while no service answers",
        remedy: "write `FailClose`, so that the manifest says what happens, and run two services or more",
        find: fail_open_ignored,
    },
    Rule {
        name: "list-of-addresses",
        hazard: "this gateway takes a single address, and `ext_proc.endpoints_max` of the service is more: ",
        remedy: "remove `ext_proc.endpoints_max` from the service's configuration (the chart's `extProc.endpointsMax`)",
        find: list_of_addresses,
    },
];

/// The gateways of a route's parents, as far as the files name them.
pub(super) fn gateways_of(
    manifests: &Manifests,
    route: &Document,
) -> impl Iterator<Item = Gateway> {
    let parents = walk::list(&route.root, "spec.parentRefs");
    parents.filter_map(|parent| {
        let namespace = walk::text(parent, "namespace").unwrap_or(route.namespace());
        let gateway = manifests.find("Gateway", namespace, walk::text(parent, "name")?)?;
        let class = walk::text(&gateway.root, "spec.gatewayClassName")?;
        let classes = manifests.of_kind("GatewayClass");
        let mut written = classes.filter(|document| document.name() == class);
        let controller = written
            .next()
            .and_then(|document| walk::text(&document.root, "spec.controllerName"));
        let name = controller.unwrap_or(class);
        GATEWAYS
            .into_iter()
            .find_map(|(part, gateway)| name.contains(part).then_some(gateway))
    })
}

/// Whether a rule of an HTTPRoute leads to an InferencePool.
pub(super) fn has_pool(rule: &Value) -> bool {
    walk::list(rule, "backendRefs")
        .any(|backend| walk::text(backend, "kind") == Some("InferencePool"))
}

/// The gateways that serve a pool.
fn gateways(manifests: &Manifests, pool: &Document) -> Vec<Gateway> {
    let routes = manifests.of_kind("HTTPRoute").filter(|route| {
        let mut backends =
            walk::list(&route.root, "spec.rules").flat_map(|rule| walk::list(rule, "backendRefs"));
        backends.any(|backend| {
            let is = |member, value| walk::text(backend, member) == Some(value);
            is("kind", "InferencePool") && is("name", pool.name())
        })
    });
    let mut found: Vec<Gateway> = routes
        .flat_map(|route| gateways_of(manifests, route))
        .collect();
    let annotations = walk::map(&pool.root, "metadata.annotations")
        .into_iter()
        .flatten();
    if annotations
        .into_iter()
        .any(|(name, _)| name.starts_with("aigateway.envoyproxy.io/"))
    {
        found.push(Gateway::EnvoyAi);
    }
    found
}

fn fail_open_ignored(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let pools = manifests.of_kind("InferencePool");
    let open = pools.filter(|pool| {
        walk::text(&pool.root, "spec.endpointPickerRef.failureMode") == Some("FailOpen")
    });
    let ignored = open.filter(|pool| gateways(manifests, pool).contains(&Gateway::EnvoyAi));
    ignored.map(Occurrence::from).collect()
}

fn list_of_addresses(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let names_fallbacks = |own: &Value| {
        let most = walk::at(own, "ext_proc.endpoints_max").and_then(Value::as_u64);
        most.is_some_and(|most| most > 1)
    };
    let configurations = manifests.service_configurations();
    if !configurations.iter().any(names_fallbacks) {
        return Vec::new();
    }
    let occurrences = manifests.of_kind("InferencePool").filter_map(|pool| {
        let gateways = gateways(manifests, pool);
        let refuses = gateways
            .iter()
            .find(|gateway| SINGLE_ADDRESS.contains(gateway))?;
        Some(Occurrence::new(pool, refuses.name().to_owned()))
    });
    occurrences.collect()
}
