//! A real Envoy Gateway beside a real API server takes the filter as an image, as it does in a cluster.
//!
//! Envoy Gateway fetches the image from a registry, and Envoy fetches the module from Envoy Gateway. Both happen in a root
//! folder of their own. Of the manifest three values are replaced: the image's address, the gateway's port, and the
//! infrastructure, as no node runs a pod here.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::{Value, json};

use super::envoy_gateway::{
    CLASS, CLIENT_CERTIFICATE, CLUSTER, NAMESPACE, gateway_class, prepare, provider, secret, serve,
};
use super::objects::{documents, install_definitions, kind, path_of};
use super::own_root::in_own_root;
use super::pods::{Endpoint, create_service, create_slice};
use super::{
    ENGINE_PORT, LISTENER_PORT, MeshGateway, Proxy, SERVICE, SERVICE_PORT, start_control_plane,
};
use crate::control_plane::ControlPlane;
use crate::document::Document;
use crate::tools::{Tools, mesh_program, repository_file};

/// The Secret from which Envoy Gateway derives the addresses of modules.
const MODULE_SECRET: &str = "envoy-oidc-hmac";

/// The name under which Envoy fetches modules from Envoy Gateway.
pub(super) const MODULE_SERVER: &str = "envoy-gateway.envoy-gateway-system.svc.cluster.local";

/// Starts an API server with the manifest, whose filter is at `image`, and Envoy Gateway.
pub(super) async fn start(
    program: &Path,
    tools: &Tools,
    directory: &Path,
    engines: &[SocketAddr],
    image: &str,
) -> anyhow::Result<Proxy> {
    let election = json!({ "leaderElection": { "disable": true } });
    let resources = json!({ "type": "Kubernetes", "kubernetes": election });
    prepare(program, directory, &tools.envoy, &resources, &Value::Null)?;
    let plane = start_control_plane(directory).await?;
    let manifest = documents(&repository_file(MeshGateway::EnvoyGateway.manifest()))?;
    let objects: anyhow::Result<Vec<Value>> = manifest
        .into_iter()
        .map(|object| adapted(object, image))
        .collect();
    create_objects(&plane, directory, &objects?).await?;
    // The manifest's Gateway names the EnvoyProxy.
    create_class(&plane, CLASS, &Value::Null).await?;
    create_endpoints(&plane, engines).await?;
    let names = [(Ipv4Addr::LOCALHOST.into(), MODULE_SERVER)];
    let proxy = serve(
        in_own_root(program, &plane, directory, &names)?,
        directory,
        CLUSTER,
    )?;
    Ok(Proxy {
        _plane: Some(plane),
        ..proxy
    })
}

/// An object of the manifest for this network and this registry.
fn adapted(object: Value, image: &str) -> anyhow::Result<Value> {
    let kind = kind(&object).to_owned();
    let mut object = Document(object);
    match kind.as_str() {
        "EnvoyProxy" => object.set("spec/provider", provider())?,
        "Gateway" => object.set("spec/listeners/0/port", LISTENER_PORT)?,
        "EnvoyExtensionPolicy" => object.set("spec/wasm/0/code/image/url", image)?,
        _ => {}
    }
    Ok(object.0)
}

/// Creates the manifest's objects, and those of Envoy Gateway's installation.
pub(super) async fn create_objects(
    plane: &ControlPlane,
    directory: &Path,
    objects: &[Value],
) -> anyhow::Result<()> {
    install_definitions(plane, &mesh_program("crds")?, objects).await?;
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    plane.create("/api/v1/namespaces", &namespace).await?;
    let secrets = [
        secret(directory, CLIENT_CERTIFICATE)?,
        secret(directory, MODULE_SECRET)?,
    ];
    for object in secrets.iter().chain(objects) {
        plane.create(&path_of(object), object).await?;
    }
    Ok(())
}

/// Creates the GatewayClass.
pub(super) async fn create_class(
    plane: &ControlPlane,
    name: &str,
    parameters: &Value,
) -> anyhow::Result<()> {
    let classes = "/apis/gateway.networking.k8s.io/v1/gatewayclasses";
    let class = gateway_class(name, parameters);
    plane.create(classes, &class).await.map(drop)
}

/// Creates the endpoints of the engines' Service, and the service's own Service.
async fn create_endpoints(plane: &ControlPlane, engines: &[SocketAddr]) -> anyhow::Result<()> {
    let endpoint = |address| Endpoint { address, pod: None };
    let engines = engines.iter().map(|engine| endpoint(engine.ip()));
    let engines: Vec<Endpoint> = engines.collect();
    create_slice(plane, "engines", ("http", ENGINE_PORT), &engines).await?;
    let name = "grpc-ext-proc";
    let port = json!({ "name": name, "port": SERVICE_PORT, "appProtocol": "kubernetes.io/h2c" });
    create_service(plane, "isotherm", &json!({}), &port).await?;
    create_slice(
        plane,
        "isotherm",
        (name, SERVICE_PORT),
        &[endpoint(SERVICE)],
    )
    .await
}
