//! A real Envoy Gateway beside a real API server takes the filter as an image, as it does in a cluster.
//!
//! Envoy Gateway fetches the image from a registry, and Envoy fetches the module from Envoy Gateway. Both happen in a root
//! folder of their own, with what only a cluster has: certificates at `/certs`, and a Service's name. Of the manifest three
//! values are replaced: the image's address, the gateway's port, and the infrastructure, as no node runs a pod here.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::envoy_gateway::{
    CLIENT_CERTIFICATE, NAMESPACE, gateway_class, prepare, provider, secret, serve,
};
use super::objects::{documents, install_definitions, kind, path_of};
use super::pods::{Endpoint, create_service, create_slice};
use super::{ENGINE_PORT, LISTENER_PORT, MeshGateway, Proxy, SERVICE, SERVICE_PORT};
use crate::control_plane::{ControlPlane, Programs, User};
use crate::document::Document;
use crate::tools::{Tools, mesh_program, repository_file};

/// The Secret from which Envoy Gateway derives the addresses of modules.
const MODULE_SECRET: &str = "envoy-oidc-hmac";

/// Makes a root folder of this machine's folders, and starts a program in it. What Envoy Gateway creates in `/var/lib`, where
/// it keeps modules, is gone with the program.
const ENTER: &str = r#"
set -eu
root=$1 certificates=$2 hosts=$3
shift 3
mirror() {
    mount -t tmpfs tmpfs "$root$1"
    for entry in "$1"/*; do
        if [ -L "$entry" ]; then
            cp -P "$entry" "$root$entry"
        elif [ -d "$entry" ]; then
            mkdir "$root$entry"
            mount --rbind "$entry" "$root$entry"
        fi
    done
}
mirror ""
mirror /var/lib
mkdir -p "$root/certs"
mount --bind "$certificates" "$root/certs"
mount --bind "$hosts" "$root/etc/hosts"
exec chroot "$root" "$@"
"#;

/// Fails where the system allows no root folder of its own.
pub(super) fn check_root() -> anyhow::Result<()> {
    let mut mount = Command::new("unshare");
    mount.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]);
    let mounted = mount.output().context("cannot start unshare")?;
    ensure!(
        mounted.status.success(),
        "Envoy Gateway needs a root folder of its own (`unshare --mount`): {}",
        String::from_utf8_lossy(&mounted.stderr).trim()
    );
    Ok(())
}

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
    prepare(program, directory, &tools.envoy, &resources)?;
    let plane = ControlPlane::start_in(&directory.join("kubernetes"), &Programs::find()?).await?;
    let manifest = documents(&repository_file(MeshGateway::EnvoyGateway.manifest()))?;
    let objects: anyhow::Result<Vec<Value>> = manifest
        .into_iter()
        .map(|object| adapted(object, image))
        .collect();
    create_objects(&plane, directory, &objects?).await?;
    create_endpoints(&plane, engines).await?;
    let proxy = serve(in_own_root(program, &plane, directory)?, directory)?;
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
async fn create_objects(
    plane: &ControlPlane,
    directory: &Path,
    objects: &[Value],
) -> anyhow::Result<()> {
    install_definitions(plane, &mesh_program("crds")?, objects).await?;
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    plane.create("/api/v1/namespaces", &namespace).await?;
    let classes = "/apis/gateway.networking.k8s.io/v1/gatewayclasses";
    // The manifest's Gateway names the EnvoyProxy.
    plane.create(classes, &gateway_class(&Value::Null)).await?;
    let secrets = [
        secret(directory, CLIENT_CERTIFICATE)?,
        secret(directory, MODULE_SECRET)?,
    ];
    for object in secrets.iter().chain(objects) {
        plane.create(&path_of(object), object).await?;
    }
    Ok(())
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

/// The program in a root folder with Envoy Gateway's certificates and its Service's name.
fn in_own_root(program: &Path, plane: &ControlPlane, directory: &Path) -> anyhow::Result<Command> {
    let root = directory.join("root");
    fs::create_dir(&root)?;
    let hosts = directory.join("hosts");
    let name = format!("envoy-gateway.{NAMESPACE}.svc.cluster.local");
    fs::write(&hosts, format!("127.0.0.1 localhost\n127.0.0.1 {name}\n"))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", ENTER, "sh"]);
    command.arg(root);
    command.arg(directory.join("config/certs/envoy-gateway"));
    command.arg(hosts).arg(program);
    command.env("KUBECONFIG", plane.kubeconfig(User::Admin)?);
    Ok(command)
}
