//! Stacks that several tests start, and the timeouts with which they run.
//!
//! As shipped, Envoy waits half a second for a decision and a second for a keepalive, then does without the service. On a
//! machine whose cores are busy a healthy service misses these bounds, and a test of its decisions would fail for no
//! reason. So stacks run with [`Timeouts::Long`]. A test of a service that dies or hangs needs Envoy to notice, and runs
//! with [`Timeouts::Detecting`].

use isotherm_harness::{Document, Pool, Stack, StackBuilder, envoy};
use serde_json::{Value, json};

use crate::{MODEL, ScriptedReplica};

const SERVICE: &str = "static_resources/clusters/name=isotherm";
const HTTP2: &str = "typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/explicit_http_config/http2_protocol_options";

/// Timeouts of Envoy towards the service or towards another region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeouts {
    /// Longer than a busy machine delays a process that runs.
    Long,
    /// Short enough to wait for, and several times those shipped.
    Detecting,
}

impl Timeouts {
    fn ms(self) -> u64 {
        match self {
            Self::Long => 60_000,
            Self::Detecting => 4_000,
        }
    }

    /// As Envoy writes a duration.
    fn text(self) -> String {
        format!("{}s", self.ms() / 1_000)
    }

    /// Sets how long Envoy waits for the service: for a decision, a connection, a health check and a keepalive.
    ///
    /// # Errors
    /// When the configuration has no such fields.
    pub fn apply_to_service(self, document: &mut Document) -> anyhow::Result<()> {
        envoy::edit_filter(document, "isotherm.request", |filter| {
            match filter.get("decision_stream") {
                Ok(_) => filter.set("decision_stream/timeout_ms", self.ms()),
                Err(_) => Ok(()), // a region's Envoy uses external processing only
            }
        })?;
        let filter = "isotherm.ext_proc";
        envoy::set_in_filter(document, filter, "message_timeout", &json!(self.text()))?;
        self.apply_to_cluster(document, SERVICE)
    }

    /// Sets how long Envoy waits for a host of a cluster: for a connection, a health check and a keepalive.
    ///
    /// # Errors
    /// When the configuration has no such fields.
    pub fn apply_to_cluster(self, document: &mut Document, cluster: &str) -> anyhow::Result<()> {
        for field in [
            "connect_timeout",
            "health_checks/0/timeout",
            &format!("{HTTP2}/connection_keepalive/timeout"),
        ] {
            document.set(&format!("{cluster}/{field}"), self.text())?;
        }
        Ok(())
    }
}

/// Bounds of the service's probes that a busy machine keeps.
#[must_use]
pub fn long_probe_bounds() -> Value {
    json!({ "timeout_ms": Timeouts::Long.ms(), "stale_after_ms": Timeouts::Long.ms() })
}

/// A stack with scripted replicas that each get at most `outstanding_max` requests; more requests wait in the service.
#[must_use]
pub fn scripted(name: &str, replicas: &[&ScriptedReplica], outstanding_max: u32) -> StackBuilder {
    with_long_timeouts(scripted_as_shipped(name, replicas, outstanding_max))
}

/// A stack like [`scripted`] with Envoy's timeouts as shipped.
#[must_use]
pub fn scripted_as_shipped(
    name: &str,
    replicas: &[&ScriptedReplica],
    outstanding_max: u32,
) -> StackBuilder {
    let addresses = replicas.iter().map(|replica| replica.address());
    let pool = Pool::new(MODEL)
        .with_addresses(addresses)
        .push("outstanding");
    Stack::builder(name)
        .pool(pool)
        .service(move |config| config.set("pools/0/outstanding_max", outstanding_max))
}

/// Gives the probes and Envoy long timeouts.
#[must_use]
pub fn with_long_timeouts(stack: StackBuilder) -> StackBuilder {
    stack
        .service(|config| config.set("pools/0/probe", long_probe_bounds()))
        .envoy(|document| Timeouts::Long.apply_to_service(document))
}

/// Gives the probes long timeouts, and Envoy timeouts that detect a service which hangs.
#[must_use]
pub fn with_detecting_timeouts(stack: StackBuilder) -> StackBuilder {
    stack
        .service(|config| config.set("pools/0/probe", long_probe_bounds()))
        .envoy(|document| Timeouts::Detecting.apply_to_service(document))
}

/// Shows clients the header `x-isotherm-decision`.
#[must_use]
pub fn with_decision_header(stack: StackBuilder) -> StackBuilder {
    stack.envoy(envoy::show_decisions)
}
