//! Stacks that several tests start, and the timeouts with which they run.
//!
//! As shipped, Envoy waits half a second for a decision and a second for a keepalive, then does without the service. On a
//! machine whose cores are busy a healthy service misses these bounds, and a test of its decisions would fail for no
//! reason. So stacks run with [`Timeouts::Long`]. A test of a service that dies or hangs needs Envoy to notice, and runs
//! with [`Timeouts::Detecting`].

use isotherm_harness::{Document, EngineOptions, Pool, Stack, StackBuilder, envoy};
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
    pub fn apply_to_service(self, document: &mut Document) -> anyhow::Result<()> {
        envoy::edit_filter(document, "isotherm.request", |filter| {
            match filter.get("decision_stream") {
                Ok(_) => filter.set("decision_stream/timeout_ms", self.ms()),
                Err(_) => Ok(()), // a test has removed it
            }
        })?;
        let filter = "isotherm.ext_proc";
        envoy::set_in_filter(document, filter, "message_timeout", &json!(self.text()))?;
        self.apply_to_cluster(document, SERVICE)
    }

    /// Sets how long Envoy waits for a host of a cluster: for a connection, a health check and a keepalive.
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
pub fn long_probe_bounds() -> Value {
    json!({ "timeout_ms": Timeouts::Long.ms() })
}

/// A stack with scripted replicas that each get at most `outstanding` requests; more requests wait in the service.
pub fn scripted(name: &str, replicas: &[&ScriptedReplica], outstanding: u32) -> StackBuilder {
    with_long_timeouts(scripted_as_shipped(name, replicas, outstanding))
}

/// A stack like [`scripted`] with Envoy's timeouts as shipped.
pub fn scripted_as_shipped(
    name: &str,
    replicas: &[&ScriptedReplica],
    outstanding: u32,
) -> StackBuilder {
    Stack::builder(name).pool(pool_of(replicas, outstanding))
}

/// A pool of scripted replicas, each of which gets at most `outstanding` requests.
pub(crate) fn pool_of(replicas: &[&ScriptedReplica], outstanding: u32) -> Pool {
    Pool::new(MODEL)
        .with_addresses(replicas.iter().map(|replica| replica.address()))
        .push(&format!("outstanding:{outstanding}"))
}

/// Starts `count` engines that run `speed` times as fast as their hardware, with long timeouts.
pub fn engines(name: &str, count: usize, speed: f64) -> StackBuilder {
    let options = EngineOptions {
        speed,
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL).replicas(count).engine(options);
    with_long_timeouts(Stack::builder(name).pool(pool))
}

/// Gives the probes and Envoy long timeouts.
pub fn with_long_timeouts(stack: StackBuilder) -> StackBuilder {
    with_timeouts(stack, Timeouts::Long)
}

/// Gives the probes long timeouts, and Envoy timeouts that detect a service which hangs.
pub fn with_detecting_timeouts(stack: StackBuilder) -> StackBuilder {
    with_timeouts(stack, Timeouts::Detecting)
}

fn with_timeouts(stack: StackBuilder, timeouts: Timeouts) -> StackBuilder {
    stack
        .service(|config| config.set("pools/0/probe", long_probe_bounds()))
        .envoy(move |document| timeouts.apply_to_service(document))
}

/// Shows clients the header `x-isotherm-decision`.
pub fn with_decision_header(stack: StackBuilder) -> StackBuilder {
    stack.envoy(envoy::show_decisions)
}
