//! Objects that nodes and controllers write in a cluster: ready pods, Services, and their EndpointSlices.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::objects::path_of;
use crate::control_plane::ControlPlane;

/// An address behind a Service, and the pod that has it.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) address: IpAddr,
    pub(super) pod: Option<String>,
}

/// Creates a ready pod.
pub(super) async fn create_pod(
    plane: &ControlPlane,
    name: &str,
    labels: &Value,
    address: IpAddr,
) -> anyhow::Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": "none" }] }
    });
    let pods = path_of(&pod);
    plane.create(&pods, &pod).await?;
    let status = json!({ "status": {
        "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
        "conditions": [{ "type": "Ready", "status": "True" }]
    }});
    let path = format!("{pods}/{name}/status");
    plane.request("PATCH", &path, Some(&status)).await.map(drop)
}

/// Creates a Service without a selector: no controller runs that would follow one.
pub(super) async fn create_service(
    plane: &ControlPlane,
    name: &str,
    labels: &Value,
    port: &Value,
) -> anyhow::Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "labels": labels },
        "spec": { "ports": [port] }
    });
    plane.create(&path_of(&service), &service).await.map(drop)
}

/// Creates the EndpointSlice of a Service. `port` is a name and a number.
pub(super) async fn create_slice(
    plane: &ControlPlane,
    service: &str,
    (port_name, port): (&str, u16),
    endpoints: &[Endpoint],
) -> anyhow::Result<()> {
    let endpoints = endpoints.iter().map(|Endpoint { address, pod }| {
        let pod = pod
            .as_ref()
            .map(|name| json!({ "kind": "Pod", "name": name, "namespace": "default" }));
        json!({ "addresses": [address], "conditions": { "ready": true }, "targetRef": pod })
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": format!("{service}-1"), "labels": { "kubernetes.io/service-name": service } },
        "endpoints": Vec::from_iter(endpoints),
        "ports": [{ "name": port_name, "port": port, "protocol": "TCP" }]
    });
    plane.create(&path_of(&slice), &slice).await.map(drop)
}
