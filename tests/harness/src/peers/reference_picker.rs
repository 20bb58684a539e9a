//! The reference endpoint picker of the Gateway API Inference Extension: an external processor that reads the body of a
//! request from Envoy and names its endpoint.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::python_router::log_file;
use crate::control_plane::{ControlPlane, NAMESPACE, Programs, User, pod, pod_path, pod_status};
use crate::document::Document;
use crate::envoy::{SERVICE_ADDRESS, set_endpoints, socket_address};
use crate::gateway_shape::GatewayShape;
use crate::port::{self, ReservedPort};
use crate::process::Process;
use crate::stack::StackBuilder;
use crate::tools::mesh_program;

/// The replicas are the ports of one pod, of which an InferencePool has eight at most.
const REPLICAS_MAX: usize = 8;
/// The pool's name, and the label of its pod.
const POOL: &str = "llm";

/// The reference endpoint picker, with an API server that lists the replicas. It runs until it is dropped.
#[derive(Debug)]
pub struct ReferencePicker {
    /// Address for Envoy.
    pub address: SocketAddr,
    /// Process of the picker.
    pub process: Process,
    _ports: [ReservedPort; 3],
    _control_plane: ControlPlane,
}

impl ReferencePicker {
    /// Starts the picker for these replicas.
    ///
    /// # Errors
    /// When its programs are there and one of them does not start.
    pub async fn start(name: &str, replicas: &[SocketAddr]) -> anyhow::Result<Option<Self>> {
        let found = Programs::find().and_then(|programs| Ok((programs, mesh_program("gie-epp")?)));
        let (programs, picker) = match found {
            Ok(found) => found,
            Err(error) => {
                eprintln!("left out: the reference endpoint picker: {error:#}");
                return Ok(None);
            }
        };
        let plane = ControlPlane::start(&format!("{name}-plane"), &programs).await?;
        install(&plane, replicas).await?;
        let ports = [port::reserve()?, port::reserve()?, port::reserve()?];
        let [address, health, metrics] = ports.each_ref().map(ReservedPort::address);
        let mut command = Command::new(picker);
        command.env("KUBECONFIG", plane.kubeconfig(User::Admin)?);
        // As its chart starts it, but without TLS and without the tokens of a cluster.
        command.args([
            "--pool-name",
            POOL,
            "--pool-namespace",
            NAMESPACE,
            "--v=1",
            "--zap-encoder=json",
            "--tracing=false",
            "--secure-serving=false",
            "--metrics-endpoint-auth=false",
        ]);
        for (option, address) in [
            ("grpc-port", address),
            ("grpc-health-port", health),
            ("metrics-port", metrics),
        ] {
            command.arg(format!("--{option}={}", address.port()));
        }
        let log = log_file("reference-picker")?;
        let process = Process::start("gie-epp", &mut command, &log)?;
        Ok(Some(Self {
            address,
            process,
            _ports: ports,
            _control_plane: plane,
        }))
    }
}

/// A stack whose Envoy asks the endpoint picker at an address, in the configuration that Istio writes for an InferencePool.
pub fn behind_picker(
    builder: StackBuilder,
    replicas: &[SocketAddr],
    picker: SocketAddr,
) -> StackBuilder {
    let endpoints = replicas.to_vec();
    let edit = move |document: &mut Document| {
        GatewayShape::Istio.apply(document)?;
        set_endpoints(document, &endpoints)?;
        document.set(SERVICE_ADDRESS, socket_address(&picker))?;
        let checks = "static_resources/clusters/name=isotherm/health_checks";
        document.remove(checks).map(drop)
    };
    builder.without_service().envoy(edit)
}

/// Creates the InferencePool, and one pod whose ports are the replicas.
async fn install(plane: &ControlPlane, replicas: &[SocketAddr]) -> anyhow::Result<()> {
    ensure!(
        replicas.len() <= REPLICAS_MAX,
        "at most {REPLICAS_MAX} replicas: an InferencePool has no more ports"
    );
    plane.install_definitions(&mesh_program("crds")?).await?;
    let ports: Vec<u16> = replicas.iter().map(SocketAddr::port).collect();
    let host = replicas.first().context("no replica")?.ip();
    plane.create_pool(POOL, POOL, &ports).await?;
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    plane.create(&pods, &pod(POOL, POOL, 0)).await?;
    let status = pod_status(&host.to_string(), true);
    let path = format!("{}/status", pod_path(POOL));
    plane.request("PATCH", &path, Some(&status)).await?;
    Ok(())
}
