//! An Envoy that a real control plane configures by the manifests of `deploy/`, with the service and simulated engines.
//!
//! istiod, Envoy Gateway and Envoy AI Gateway translate the manifests as they are in the repository. A few values are replaced, as
//! [`Stack`](crate::Stack) does with `envoy/standalone.yaml`: the gateway's port, and the image of the filter by the file.
//! [`MeshBuilder::filter_image`] keeps the image.
//!
//! A mesh needs a network of its own: EndpointSlices refuse loopback addresses, and control planes have default ports.
//! `cargo xtask` makes the network and sets `ISOTHERM_MESH_NETWORK`.

mod ai_gateway;
mod envoy_gateway;
mod envoy_gateway_image;
mod gateway;
mod istio;
mod module_server;
pub mod objects;
mod own_root;
mod pods;

use std::env;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use serde_json::json;

pub use gateway::MeshGateway;

use crate::control_plane::{ControlPlane, Programs};
use crate::directory::fresh_directory;
use crate::document::Document;
use crate::engine::Engine;
use crate::pool::Pool;
use crate::process::Process;
use crate::service::{Service, admin_client};
use crate::tcp_server::TcpServer;
use crate::tools::{Tools, mesh_program};
use crate::traffic::ServiceTraffic;
use crate::wait::{WAIT_MAX, wait_until};

/// The variable that says that this process runs in a network of its own.
const NETWORK: &str = "ISOTHERM_MESH_NETWORK";
/// Address of the service's pod. The whole network is `10.77.0.0/16`.
const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
/// Address of the gateway's pod.
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
/// Address of the API server.
const API_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 3));
/// Port of the service for external processing, as in the manifests.
const SERVICE_PORT: u16 = 9002;
/// Port of the service's admin interface.
const ADMIN_PORT: u16 = 9090;
/// Port of the engines, as in the manifests.
const ENGINE_PORT: u16 = 8000;
/// Port of the gateway's listener.
const LISTENER_PORT: u16 = 18890;

/// File of an Envoy's admin address below Envoy Gateway's directory.
const ADMIN_FILE: &str = "admin-address.txt";

/// Fails outside of a network of its own.
pub fn check_network() -> anyhow::Result<()> {
    ensure!(
        env::var_os(NETWORK).is_some(),
        "a mesh needs a network of its own, which `cargo xtask test mesh` and `cargo xtask demo --mesh` make where \
         `unshare --net` and `ip` may"
    );
    Ok(())
}

/// Starts an API server for the gateways of a mesh.
async fn start_control_plane(directory: &Path) -> anyhow::Result<ControlPlane> {
    let programs = Programs::find()?;
    ControlPlane::start_in(&directory.join("kubernetes"), &programs, API_SERVER).await
}

/// Address of an engine's pod.
fn engine_address(number: usize) -> anyhow::Result<SocketAddr> {
    let last = u8::try_from(number + 1)?;
    let address = IpAddr::V4(Ipv4Addr::new(10, 77, 1, last));
    Ok(SocketAddr::new(address, ENGINE_PORT))
}

/// Fails outside of a network of its own, and without a program or a right that [`MeshBuilder::filter_image`] needs.
pub fn check_filter_image() -> anyhow::Result<()> {
    check_network()?;
    own_root::check_root()?;
    MeshGateway::EnvoyGateway.envoy()?;
    let programs = ["envoy-gateway", "crds", "etcd", "kube-apiserver"];
    programs
        .into_iter()
        .try_for_each(|name| mesh_program(name).map(drop))
}

type Edit = Box<dyn FnOnce(&mut Document) -> anyhow::Result<()> + Send>;

/// The description of a mesh; see [`Mesh::builder`].
#[must_use = "a mesh starts with `MeshBuilder::start`"]
pub struct MeshBuilder {
    name: String,
    gateway: MeshGateway,
    pool: Pool,
    filter_image: Option<String>,
    is_patched: bool,
    service_edit: Option<Edit>,
}

impl MeshBuilder {
    /// Leaves the patches of Envoy Gateway's manifest out, as where its EnvoyPatchPolicy is forbidden.
    pub fn without_patches(mut self) -> Self {
        self.is_patched = false;
        self
    }

    /// Lets Envoy Gateway fetch the filter as an image, and stand beside an API server.
    pub fn filter_image(mut self, reference: String) -> Self {
        self.filter_image = Some(reference);
        self
    }

    /// Edits the service's configuration before it starts.
    pub fn service(
        mut self,
        edit: impl FnOnce(&mut Document) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        self.service_edit = Some(Box::new(edit));
        self
    }

    /// Starts engines, control plane, service and Envoy, and waits until requests can pass. An error shows the end of the
    /// log of the program that failed.
    pub async fn start(mut self) -> anyhow::Result<Mesh> {
        check_network()?;
        let programs = self.gateway.find_programs()?;
        let tools = Tools {
            envoy: self.gateway.envoy()?,
            ..Tools::find()?
        };
        let directory = fresh_directory(&tools.output.join("stacks"), &self.name)?;
        let engines = (0..self.pool.engines).map(|number| {
            let (tools, pool, directory) = (&tools, &self.pool, &directory);
            async move {
                let listen = engine_address(number)?.to_string();
                Engine::start_at(tools, pool, &listen, number, directory).await
            }
        });
        let engines = try_join_all(engines).await?;
        let addresses: Vec<SocketAddr> = engines.iter().map(Engine::address).collect();
        let (image, is_patched) = (self.filter_image.take(), self.is_patched);
        let (service, proxy) = match self.gateway {
            MeshGateway::EnvoyGateway => {
                let service = self
                    .start_service(&tools, &directory, &addresses, None)
                    .await?;
                let program = programs.first().context("no Envoy Gateway")?;
                let proxy = match image {
                    Some(image) => {
                        envoy_gateway_image::start(program, &tools, &directory, &addresses, &image)
                            .await?
                    }
                    None => {
                        envoy_gateway::start(program, &tools, &directory, &addresses, is_patched)
                            .await?
                    }
                };
                (service, proxy)
            }
            MeshGateway::AiGateway => {
                let program = programs.first().context("no Envoy Gateway")?;
                let plane = ai_gateway::start(program, &tools, &directory, &addresses).await?;
                let kubeconfig = plane.kubeconfig()?;
                let kubeconfig = Some(kubeconfig.as_path());
                let service = self.start_service(&tools, &directory, &addresses, kubeconfig);
                (service.await?, plane.start_envoy(program, &directory)?)
            }
            gateway => {
                let plane = istio::start(gateway, &programs, &directory, &addresses).await?;
                let kubeconfig = plane.kubeconfig()?;
                let kubeconfig = Some(kubeconfig.as_path());
                let service = self.start_service(&tools, &directory, &addresses, kubeconfig);
                let service = service.await?;
                (service, plane.start_envoy(&tools, &directory)?)
            }
        };
        let mesh = Mesh {
            proxy,
            service,
            engines,
            directory,
        };
        mesh.wait_until_ready().await?;
        Ok(mesh)
    }

    /// Starts the service at its default ports.
    async fn start_service(
        self,
        tools: &Tools,
        directory: &Path,
        engines: &[SocketAddr],
        kubeconfig: Option<&Path>,
    ) -> anyhow::Result<Service> {
        let engines: Vec<String> = engines.iter().map(ToString::to_string).collect();
        let mut config = Document(json!({ "admin": {}, "decision_header": true, "pools": [{
            "model": "*",
            "policy": self.pool.policy,
            "push": self.pool.push,
            "replicas": self.gateway.replicas(&engines),
        }]}));
        if self.gateway == MeshGateway::AiGateway {
            ai_gateway::configure(&mut config)?;
        }
        if let Some(edit) = self.service_edit {
            edit(&mut config)?;
        }
        let addresses = [SERVICE_PORT, ADMIN_PORT].map(|port| SocketAddr::new(SERVICE, port));
        let mut service = Service::at(tools, directory, config, addresses)?;
        if let Some(kubeconfig) = kubeconfig {
            service.set_environment("KUBECONFIG", kubeconfig);
        }
        service.start().await?;
        Ok(service)
    }
}

impl fmt::Debug for MeshBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut builder = formatter.debug_struct("MeshBuilder");
        builder.field("gateway", &self.gateway);
        builder.finish_non_exhaustive()
    }
}

/// Address of an Envoy's admin interface.
#[derive(Debug)]
enum AdminAddress {
    /// Known before the start.
    Fixed(SocketAddr),
    /// Written to a file in a folder of this directory, which Envoy Gateway creates at each start of Envoy.
    WrittenBelow(PathBuf),
}

impl AdminAddress {
    fn read(&self) -> anyhow::Result<SocketAddr> {
        match self {
            Self::Fixed(address) => Ok(*address),
            Self::WrittenBelow(directory) => {
                let mut folders = fs::read_dir(directory)?.filter_map(Result::ok);
                let text = folders
                    .find_map(|folder| fs::read_to_string(folder.path().join(ADMIN_FILE)).ok())
                    .context("Envoy has not written the address of its admin interface")?;
                Ok(text.trim().parse()?)
            }
        }
    }
}

/// A gateway's Envoy, and the programs that configure it.
#[derive(Debug)]
struct Proxy {
    /// Address for clients.
    listener: SocketAddr,
    /// Address of Envoy's admin interface.
    admin: AdminAddress,
    /// The end of the name of the service's cluster.
    service_cluster: &'static str,
    // Dropped in this order: Envoy first, then the programs that it asks.
    _processes: Vec<Process>,
    _plane: Option<ControlPlane>,
    _modules: Option<TcpServer>,
}

/// A gateway that a real control plane configures, the service and engines, running. They end when this is dropped.
#[derive(Debug)]
pub struct Mesh {
    proxy: Proxy,
    service: Service,
    engines: Vec<Engine>,
    directory: PathBuf,
}

impl Mesh {
    /// Describes a mesh with the engines, the policy and the push mode of `pool`. Its logs are in
    /// `target/stacks/NAME.PROCESS.NUMBER`.
    pub fn builder(name: &str, gateway: MeshGateway, pool: Pool) -> MeshBuilder {
        MeshBuilder {
            name: name.into(),
            gateway,
            pool,
            filter_image: None,
            is_patched: true,
            service_edit: None,
        }
    }

    /// A URL for clients.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy.listener)
    }

    /// The service.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// The engines, in order of their start.
    pub fn engines(&self) -> impl ExactSizeIterator<Item = &Engine> {
        self.engines.iter()
    }

    /// The directory of logs and generated files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads how many bytes Envoy has sent to the service so far.
    pub async fn service_traffic(&self) -> anyhow::Result<ServiceTraffic> {
        let admin = format!("http://{}", self.proxy.admin.read()?);
        ServiceTraffic::read(&admin, self.proxy.service_cluster, &self.service).await
    }

    /// Waits until requests reach an engine, and the service through Envoy.
    async fn wait_until_ready(&self) -> anyhow::Result<()> {
        let (client, url) = (admin_client()?, self.url("/v1/models"));
        wait_until(WAIT_MAX, "the gateway to serve requests", || async {
            let answer = client.get(&url).send().await;
            let is_served = answer.is_ok_and(|answer| answer.status().is_success());
            let traffic = self.service_traffic().await;
            is_served && traffic.is_ok_and(|traffic| traffic.sent > 0)
        })
        .await
    }
}
