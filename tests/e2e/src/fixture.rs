//! The stacks that several tests start.

use isotherm_harness::{Pool, Stack, StackBuilder, envoy};

use crate::{MODEL, Upstream};

/// Scripted replicas that each get `outstanding_max` requests at a time; what is more waits in the service.
#[must_use]
pub fn scripted(name: &str, replicas: &[&Upstream], outstanding_max: u32) -> StackBuilder {
    let addresses = replicas.iter().map(|replica| replica.address());
    let pool = Pool::new(MODEL).served_by(addresses).push("outstanding");
    Stack::builder(name)
        .pool(pool)
        .service(move |config| config.set("pools/0/outstanding_max", outstanding_max))
}

/// Lets the client see `x-isotherm-decision`.
#[must_use]
pub fn showing_decisions(stack: StackBuilder) -> StackBuilder {
    stack.envoy(|document| {
        envoy::edit_filter(document, "isotherm.response", |filter| {
            filter.set("decision", true)
        })
    })
}
