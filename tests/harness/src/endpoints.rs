//! Addresses in Envoy's configuration: the pool's endpoints and the service.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::document::Document;

const POOL: &str = "static_resources/clusters/name=llama";

/// Path of the service's address.
pub const SERVICE_ADDRESS: &str = "static_resources/clusters/name=isotherm/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address";

/// The JSON form of an address.
pub fn socket_address(address: &SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

/// Gives the cluster of the pool these endpoints. It discovers none from the service.
pub fn set_endpoints(document: &mut Document, replicas: &[SocketAddr]) -> anyhow::Result<()> {
    document.remove(&format!("{POOL}/eds_cluster_config"))?;
    document.set(&format!("{POOL}/type"), "STATIC")?;
    let endpoint = |replica| json!({ "endpoint": { "address": socket_address(replica) } });
    let endpoints: Vec<Value> = replicas.iter().map(endpoint).collect();
    document.set(
        &format!("{POOL}/load_assignment"),
        json!({ "cluster_name": "llama", "endpoints": [{ "lb_endpoints": endpoints }] }),
    )
}
