//! Hazards of Envoy Gateway's own resources.

use serde_json::Value;

use super::envoy::{MESSAGE_TIMEOUT_MS, QUEUE_WAIT_MS};
use super::filter::{self, FilterUse};
use super::manifests::{Document, Manifests};
use super::rule::{Occurrence, Rule};
use super::walk;

/// The limit that Envoy Gateway writes where no ClientTrafficPolicy does.
pub(super) const BUFFER_BYTES: u64 = 32 * 1024;

const WASM: &str = "envoy.filters.http.wasm";
const EXT_PROC: &str = "envoy.filters.http.ext_proc";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "headers-not-held",
        hazard: "Envoy Gateway does not set `allow_on_headers_stop_iteration`, and no EnvoyPatchPolicy of these files does: the \
                 filter reads no prompts",
        remedy: "add the EnvoyPatchPolicy of deploy/mesh/envoy-gateway.yaml",
        find: headers_not_held,
    },
    Rule {
        name: "patches-disabled",
        hazard: "EnvoyGateway does not allow EnvoyPatchPolicy: the patches have no effect",
        remedy: "set `extensionApis.enableEnvoyPatchPolicy: true` in the configuration of Envoy Gateway",
        find: patches_disabled,
    },
    Rule {
        name: "filter-behind-ext-proc",
        hazard: "Envoy Gateway puts wasm behind ext_proc: the service decides before the prompt is read",
        remedy: "add `filterOrder: [{name: envoy.filters.http.wasm, before: envoy.filters.http.ext_proc}]` to the EnvoyProxy",
        find: filter_behind_ext_proc,
    },
    Rule {
        name: "buffer-below-filter",
        hazard: "Envoy answers 413 to a body that the filter still holds: ",
        remedy: "raise `connection.bufferLimit` of a ClientTrafficPolicy, or patch `request_body_buffer_limit`, or lower the \
                 filter's `buffer_bytes_max`",
        find: buffer_below_filter,
    },
    Rule {
        name: "fail-open-duplex",
        hazard: "`failOpen: true` with FullDuplexStreamed: Envoy Gateway refuses the policy, since Envoy keeps no copy of the body",
        remedy: "set `failOpen: false`, or send no bodies: `processingMode: {request: {}}`",
        find: fail_open_duplex,
    },
    Rule {
        name: "timer-below-queue",
        hazard: "ext_proc gives up on a request that the service queues: ",
        remedy: "set `messageTimeout` above the service's `queue.wait_ms_max`; Envoy Gateway has no longer maximum",
        find: timer_below_queue,
    },
    Rule {
        name: "decision-without-effect",
        hazard: "no BackendTrafficPolicy of these files has an `endpointOverride`: Envoy ignores the service's choice",
        remedy: "add `loadBalancer.endpointOverride.extractFrom: [{header: x-gateway-destination-endpoint}]`",
        find: decision_without_effect,
    },
];

const POLICY: &str = "EnvoyExtensionPolicy";

/// The request roles that the policies have.
fn request_filters(manifests: &Manifests) -> impl Iterator<Item = FilterUse<'_>> {
    let uses = filter::in_resources(manifests, POLICY, "spec.wasm", "config");
    uses.filter(FilterUse::is_request)
}

/// The policies' external processors that are Isotherm's.
fn processors(manifests: &Manifests) -> impl Iterator<Item = (&Document, &Value)> {
    let policies = manifests.of_kind(POLICY);
    let entries = policies.flat_map(|document| {
        walk::list(&document.root, "spec.extProc").map(move |entry| (document, entry))
    });
    entries.filter(|(_, entry)| {
        let mut backends = walk::list(entry, "backendRefs");
        backends.any(|backend| {
            walk::text(backend, "name").is_some_and(|name| name.contains("isotherm"))
        })
    })
}

fn headers_not_held(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let is_patched = patches(manifests).any(|operation| {
        let path = walk::text(operation, "path").unwrap_or_default();
        path.ends_with("allow_on_headers_stop_iteration")
            && operation.get("value") == Some(&Value::Bool(true))
    });
    let requests = request_filters(manifests).filter(FilterUse::holds_headers);
    let missing = requests.filter(|_| !is_patched);
    missing.map(|found| found.document.into()).collect()
}

/// The operations of every patch.
fn patches(manifests: &Manifests) -> impl Iterator<Item = &Value> {
    let policies = manifests.of_kind("EnvoyPatchPolicy");
    let patches = policies.flat_map(|policy| walk::list(&policy.root, "spec.jsonPatches"));
    patches.filter_map(|patch| patch.get("operation"))
}

fn patches_disabled(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let is_patched = manifests.of_kind("EnvoyPatchPolicy").next().is_some();
    let gateways = manifests.of_kind("EnvoyGateway").filter(|_| is_patched);
    let disabled = gateways.filter(|gateway| {
        let flag = walk::at(&gateway.root, "extensionApis.enableEnvoyPatchPolicy");
        flag != Some(&Value::Bool(true))
    });
    disabled.map(Occurrence::from).collect()
}

fn filter_behind_ext_proc(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let has_processor = processors(manifests).next().is_some();
    let proxies = manifests.of_kind("EnvoyProxy");
    let mut orders = proxies.flat_map(|proxy| walk::list(&proxy.root, "spec.filterOrder"));
    let is_ordered = orders.any(|order| {
        let is = |member, filter| walk::text(order, member) == Some(filter);
        (is("name", WASM) && is("before", EXT_PROC)) || (is("name", EXT_PROC) && is("after", WASM))
    });
    let behind = request_filters(manifests).filter(|_| has_processor && !is_ordered);
    behind.map(|found| found.document.into()).collect()
}

fn buffer_below_filter(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let limit = buffer_limit(manifests);
    let too_large = request_filters(manifests).filter(|found| found.held_bytes() > limit);
    let occurrences = too_large.map(|found| {
        let detail = format!(
            "the filter holds {} bytes, and the limit is {limit}",
            found.held_bytes()
        );
        Occurrence::new(found.document, detail)
    });
    occurrences.collect()
}

/// The limit of a request's buffer: a patch of the route's, else a policy's, else Envoy Gateway's own.
pub(super) fn buffer_limit(manifests: &Manifests) -> u64 {
    let of_patch = patches(manifests).filter_map(|operation| {
        let path = walk::text(operation, "path")?;
        let is_limit = path.ends_with("request_body_buffer_limit");
        is_limit.then(|| walk::number(operation.get("value")?))?
    });
    let policies = manifests.of_kind("ClientTrafficPolicy");
    let of_policy = policies
        .filter_map(|policy| walk::bytes(walk::at(&policy.root, "spec.connection.bufferLimit")?));
    of_patch
        .min()
        .or_else(|| of_policy.min())
        .unwrap_or(BUFFER_BYTES)
}

/// Whether a direction of a processor is FullDuplexStreamed.
fn is_duplex(processor: &Value, direction: &str) -> bool {
    walk::text(processor, &format!("processingMode.{direction}.body")) == Some("FullDuplexStreamed")
}

fn fail_open_duplex(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let found = processors(manifests).filter(|(_, entry)| {
        let is_duplex = is_duplex(entry, "request") || is_duplex(entry, "response");
        is_duplex && entry.get("failOpen") == Some(&Value::Bool(true))
    });
    found.map(|(document, _)| document.into()).collect()
}

fn timer_below_queue(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let with_timer = processors(manifests).filter(|(_, entry)| !is_duplex(entry, "request"));
    let too_short = with_timer.filter_map(|(document, entry)| {
        let given = walk::text(entry, "messageTimeout");
        let timer = given.and_then(walk::millis).unwrap_or(MESSAGE_TIMEOUT_MS);
        let detail = format!("it waits {timer} ms, the queue {QUEUE_WAIT_MS} ms by default");
        (timer < QUEUE_WAIT_MS).then(|| Occurrence::new(document, detail))
    });
    too_short.collect()
}

fn decision_without_effect(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let policies = manifests.of_kind("BackendTrafficPolicy");
    let mut sources = policies.flat_map(|policy| {
        walk::list(
            &policy.root,
            "spec.loadBalancer.endpointOverride.extractFrom",
        )
    });
    let has_effect = sources.any(|source| {
        let header = walk::text(source, "header").unwrap_or_default();
        header.eq_ignore_ascii_case("x-gateway-destination-endpoint")
    });
    let without = processors(manifests).filter(|_| !has_effect);
    without.map(|(document, _)| document.into()).collect()
}
