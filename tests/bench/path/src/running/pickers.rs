//! Endpoint pickers: external processors that read the body of a request from Envoy and name its endpoint.
//!
//! Each of them stands behind the same Envoy, in the configuration that Istio writes for an InferencePool.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context as _, ensure};
use isotherm_harness::control_plane::{NAMESPACE, Programs, User, pod, pod_path, pod_status};
use isotherm_harness::process::Process;
use isotherm_harness::tools::mesh_program;
use isotherm_harness::{ControlPlane, Document, GatewayShape, StackBuilder, Tools, port};

use super::{
    RunningVariant, SERVICE, builder, floor_files, set_endpoints, socket_address, wait_for_response,
};
use crate::variant::Variant;

/// The replicas are the ports of one pod, of which an InferencePool has eight at most.
const REPLICAS_MAX: usize = 8;
/// The pool's name, and the label of its pod.
const POOL: &str = "llm";

impl RunningVariant {
    /// Isotherm without its filter.
    pub(super) async fn picker(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let builder = builder(Variant::Picker, replicas);
        let builder = builder.envoy(|document| GatewayShape::Istio.apply(document));
        Self::of_stack(Variant::Picker, builder).await
    }

    /// An external processor that sends every chunk back and names no endpoint.
    pub(super) async fn picker_echo(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let (program, _) = floor_files()?;
        let port = port::reserve()?;
        let address = port.address();
        let log = Tools::find()?.output.join("bench/echo.log");
        let mut command = Command::new(program);
        command.arg(address.to_string());
        let process = Process::start("isotherm-bench-floor", &mut command, &log)?;
        Ok(Self {
            process: Some(("service", process)),
            _ports: vec![port],
            ..Self::of_stack(
                Variant::PickerEcho,
                behind_istio(Variant::PickerEcho, replicas, address),
            )
            .await?
        })
    }

    /// The reference endpoint picker, with an API server that lists the replicas.
    pub(super) async fn reference_picker(replicas: &[SocketAddr]) -> anyhow::Result<Option<Self>> {
        let found = Programs::find().and_then(|programs| Ok((programs, mesh_program("gie-epp")?)));
        let (programs, picker) = match found {
            Ok(found) => found,
            Err(error) => {
                eprintln!("left out: the reference endpoint picker: {error:#}");
                return Ok(None);
            }
        };
        let plane = ControlPlane::start("bench-reference-plane", &programs).await?;
        install(&plane, replicas).await?;
        let ports = [port::reserve()?, port::reserve()?, port::reserve()?];
        let [address, health, metrics] = ports.each_ref().map(port::ReservedPort::address);
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
        let log = Tools::find()?.output.join("bench/reference-picker.log");
        let process = Process::start("gie-epp", &mut command, &log)?;
        let builder = behind_istio(Variant::ReferencePicker, replicas, address);
        let running = Self {
            process: Some(("service", process)),
            _ports: ports.into(),
            _control_plane: Some(plane),
            ..Self::of_stack(Variant::ReferencePicker, builder).await?
        };
        wait_for_response(running.address, "the reference endpoint picker", &log).await?;
        Ok(Some(running))
    }
}

/// An Envoy that asks the endpoint picker at an address.
fn behind_istio(variant: Variant, replicas: &[SocketAddr], picker: SocketAddr) -> StackBuilder {
    let endpoints = replicas.to_vec();
    let edit = move |document: &mut Document| {
        GatewayShape::Istio.apply(document)?;
        set_endpoints(document, &endpoints)?;
        document.set(SERVICE, socket_address(&picker))?;
        let checks = "static_resources/clusters/name=isotherm/health_checks";
        document.remove(checks).map(drop)
    };
    builder(variant, replicas).without_service().envoy(edit)
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
