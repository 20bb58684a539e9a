//! The stacks that several tests start.
//!
//! Envoy gives the service half a second, and goes on without it when it is late. On a machine that is busy with
//! something else that happens to a service in good health, and then a test about its decisions fails for nothing. So
//! those tests run with a [`patient`] Envoy; those about a service that is away run [`as_shipped`].

use isotherm_harness::{Pool, Stack, StackBuilder, envoy};
use serde_json::json;

use crate::{MODEL, ScriptedReplica};

const SERVICE: &str = "static_resources/clusters/name=isotherm";
const HTTP2: &str = "typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/explicit_http_config/http2_protocol_options";
/// Longer than any machine forgets a process.
const PATIENT: &str = "20s";
const PATIENT_MS: u64 = 20_000;

/// Scripted replicas that each get `outstanding_max` requests at a time; what is more waits in the service.
#[must_use]
pub fn as_shipped(name: &str, replicas: &[&ScriptedReplica], outstanding_max: u32) -> StackBuilder {
    let addresses = replicas.iter().map(|replica| replica.address());
    let pool = Pool::new(MODEL)
        .with_addresses(addresses)
        .push("outstanding");
    Stack::builder(name)
        .pool(pool)
        .service(move |config| config.set("pools/0/outstanding_max", outstanding_max))
}

/// The same, with a patient Envoy.
#[must_use]
pub fn scripted(name: &str, replicas: &[&ScriptedReplica], outstanding_max: u32) -> StackBuilder {
    with_long_timeouts(as_shipped(name, replicas, outstanding_max))
}

/// Makes Envoy wait for a service that is slow to answer.
#[must_use]
pub fn with_long_timeouts(stack: StackBuilder) -> StackBuilder {
    stack.envoy(|document| {
        envoy::edit_filter(document, "isotherm.request", |filter| {
            filter.set("decision_stream/timeout_ms", PATIENT_MS)
        })?;
        let filter = "isotherm.ext_proc";
        envoy::set_in_filter(document, filter, "message_timeout", &json!(PATIENT))?;
        document.set(&format!("{SERVICE}/connect_timeout"), PATIENT)?;
        document.set(&format!("{SERVICE}/health_checks/0/timeout"), PATIENT)?;
        let keepalive = format!("{SERVICE}/{HTTP2}/connection_keepalive/timeout");
        document.set(&keepalive, PATIENT)
    })
}

/// Lets the client see `x-isotherm-decision`.
#[must_use]
pub fn with_decision_header(stack: StackBuilder) -> StackBuilder {
    stack.envoy(envoy::show_decisions)
}
