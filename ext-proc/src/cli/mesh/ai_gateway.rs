//! Hazards of Envoy AI Gateway: of its annotations on an InferencePool, and of its routes.

use serde_json::Value;

use super::envoy_gateway;
use super::filter::{self, FilterUse};
use super::inference_pool::{self, Gateway};
use super::manifests::{Document, Manifests};
use super::rule::{Occurrence, Rule};
use super::walk;

const BODY_MODE: &str = "aigateway.envoyproxy.io/processing-body-mode";
const MODE_OVERRIDE: &str = "aigateway.envoyproxy.io/allow-mode-override";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "buffered-without-override",
        hazard: "the body mode `buffered` holds answers, too: a streamed answer arrives when it is complete",
        remedy: "set the annotation aigateway.envoyproxy.io/allow-mode-override: \"true\"; the service then lets answers stream",
        find: buffered_without_override,
    },
    Rule {
        name: "buffered-below-prompts",
        hazard: "the body mode `buffered` holds a body of at most 32 KiB: Envoy answers 413 to a longer one",
        remedy: "set `connection.bufferLimit` of a ClientTrafficPolicy to the longest body",
        find: buffered_below_prompts,
    },
    Rule {
        name: "fingerprint-not-trusted",
        hazard: "the gateway sends bodies, so the service removes the filter's headers and reads every body again",
        remedy: "set `ext_proc.trusted_headers: always` in the service's configuration (the chart's `extProc.trustedHeaders`)",
        find: fingerprint_not_trusted,
    },
    Rule {
        name: "picker-repeated",
        hazard: "Envoy AI Gateway adds its external processing once for each match of a route, so every request is decided more \
                 than once: matches that lead to pools: ",
        remedy: "write the paths as one match of type RegularExpression, as the chart's route does",
        find: picker_repeated,
    },
];

/// Routes of an Envoy AI Gateway that lead to pools by several matches.
fn picker_repeated(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let routes = manifests.of_kind("HTTPRoute").filter(|route| {
        let mut gateways = inference_pool::gateways_of(manifests, route);
        gateways.any(|gateway| gateway == Gateway::EnvoyAi)
    });
    let occurrences = routes.filter_map(|route| {
        let rules = walk::list(&route.root, "spec.rules");
        let to_pools = rules.filter(|rule| inference_pool::has_pool(rule));
        // A rule without matches has one, for every path.
        let matches: usize = to_pools
            .map(|rule| walk::list(rule, "matches").count().max(1))
            .sum();
        (matches > 1).then(|| Occurrence::new(route, matches.to_string()))
    });
    occurrences.collect()
}

/// The pools whose bodies Envoy buffers.
fn buffered_pools(manifests: &Manifests) -> impl Iterator<Item = &Document> {
    let pools = manifests.of_kind("InferencePool");
    pools.filter(|pool| pool.annotation(BODY_MODE) == Some("buffered"))
}

fn buffered_without_override(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let pools = buffered_pools(manifests);
    let without = pools.filter(|pool| pool.annotation(MODE_OVERRIDE) != Some("true"));
    without.map(Occurrence::from).collect()
}

/// Pools with the filter in front, in files that hold the service's configuration, too.
fn fingerprint_not_trusted(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let has_filter = filter::all(manifests).iter().any(FilterUse::is_request);
    let is_untrusted = |own: &Value| walk::text(own, "ext_proc.trusted_headers") != Some("always");
    let configurations = manifests.service_configurations();
    let is_hazard = has_filter && configurations.iter().any(is_untrusted);
    let pools = buffered_pools(manifests).filter(|_| is_hazard);
    pools.map(Occurrence::from).collect()
}

fn buffered_below_prompts(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let is_small = envoy_gateway::buffer_limit(manifests) <= envoy_gateway::BUFFER_BYTES;
    let pools = buffered_pools(manifests).filter(|_| is_small);
    pools.map(Occurrence::from).collect()
}
