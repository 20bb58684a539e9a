//! Starts engines, the service and Envoy together, and stops them when the stack is dropped.
//!
//! [`Stack::builder`] describes the processes: pools with simulated engines or given addresses, edits of the service's and
//! of Envoy's configuration. [`StackBuilder::start`] starts them on free loopback ports and returns when a request can
//! pass through all of them.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::MODEL;
use crate::bootstrap::{Gateway, envoy_document};
use crate::directory::fresh_directory;
use crate::document::Document;
use crate::endpoints::socket_address;
use crate::engine::Engine;
use crate::envoy::Envoy;
use crate::filters::LISTENERS;
use crate::pool::Pool;
use crate::port::{self, ReservedPort};
use crate::service::Service;
use crate::tools::Tools;
use crate::traffic::ServiceTraffic;

type Edit = Box<dyn FnOnce(&mut Document) -> anyhow::Result<()> + Send>;

/// The description of a stack; see [`Stack::builder`].
#[must_use = "a stack starts with `StackBuilder::start`"]
pub struct StackBuilder {
    name: String,
    pools: Vec<Pool>,
    service_edits: Vec<Edit>,
    envoy_edits: Vec<Edit>,
    log_filter: String,
    without_service: bool,
    workers: u16,
    services: usize,
    envoys: usize,
    environment: Vec<(String, OsString)>,
    pub(crate) region: Option<RegionMembership>,
}

/// The part of a stack's configuration that makes it one of several regions, or gives it several services.
pub(crate) struct RegionMembership {
    /// Envoy's gateway; absent when there is one region with several services.
    pub(crate) gateway: Option<Gateway>,
    /// The section `region` of the configuration, without the fields that differ from service to service.
    pub(crate) section: Value,
    /// Peering address of each service.
    pub(crate) peering: Vec<ReservedPort>,
    /// Directory of the stack.
    pub(crate) directory: PathBuf,
}

impl StackBuilder {
    /// Adds a pool. A stack without one gets a pool of [`MODEL`].
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// Edits the service's configuration before it starts.
    pub fn service(
        mut self,
        edit: impl FnOnce(&mut Document) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        self.service_edits.push(Box::new(edit));
        self
    }

    /// Edits Envoy's configuration before it starts.
    pub fn envoy(
        mut self,
        edit: impl FnOnce(&mut Document) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        self.envoy_edits.push(Box::new(edit));
        self
    }

    /// Sets an environment variable of each service.
    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the service's `--log`; the default is `info`.
    pub fn log(mut self, filter: &str) -> Self {
        self.log_filter = filter.into();
        self
    }

    /// Does not start the service: it gets its addresses and its configuration, and `service_mut().start()` starts it.
    pub fn without_service(mut self) -> Self {
        self.without_service = true;
        self
    }

    /// Sets the number of Envoy's worker threads; the default is two.
    pub fn workers(mut self, workers: u16) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the number of services behind Envoy; the default is one. Several services peer without TLS.
    pub fn services(mut self, count: usize) -> Self {
        self.services = count.max(1);
        self
    }

    /// Sets the number of Envoys with the same configuration; the default is one.
    pub fn envoys(mut self, count: usize) -> Self {
        self.envoys = count.max(1);
        self
    }

    /// Starts everything, and waits until requests can pass (unless the service is left out). An error shows the end of the
    /// log of the program that failed.
    pub async fn start(mut self) -> anyhow::Result<Stack> {
        let tools = Tools::find()?;
        let directory = match &self.region {
            Some(region) => region.directory.clone(),
            None => fresh_directory(&tools.output.join("stacks"), &self.name)?,
        };
        fs::create_dir_all(&directory)?;
        if self.pools.is_empty() {
            self.pools.push(Pool::new(MODEL));
        }
        if self.services > 1 && self.region.is_none() {
            self.region = Some(siblings_only(self.services, &directory)?);
        }
        let mut engines = Vec::new();
        for pool in &self.pools {
            for _ in 0..pool.engines {
                engines.push(Engine::start(&tools, pool, engines.len(), &directory).await?);
            }
        }
        let mut services = self.prepare_services(&tools, &engines, &directory)?;
        for service in &mut services {
            for (name, value) in &self.environment {
                service.set_environment(name, value);
            }
        }
        if !self.without_service {
            try_join_all(services.iter_mut().map(Service::start)).await?;
        }
        let (envoys, listen) = self.start_envoys(&tools, &services, &directory).await?;
        let stack = Stack {
            envoys,
            services,
            engines_started: engines.len(),
            engines,
            tools,
            directory,
            _listen: listen,
            _peering: self.region.map_or_else(Vec::new, |region| region.peering),
        };
        for pool in self.pools.iter().filter(|_| !self.without_service) {
            stack.wait_for_endpoints(pool).await?;
        }
        Ok(stack)
    }

    fn prepare_services(
        &mut self,
        tools: &Tools,
        engines: &[Engine],
        directory: &Path,
    ) -> anyhow::Result<Vec<Service>> {
        let pools = self.pools.iter().map(|pool| {
            let replicas = addresses(pool, engines);
            let replicas: Vec<String> = replicas.iter().map(ToString::to_string).collect();
            json!({
                "model": pool.model,
                "cluster": pool.cluster,
                "policy": pool.policy,
                "push": pool.push,
                "replicas": { "static": replicas },
            })
        });
        let mut config = Document(json!({
            "admin": {}, "decision_header": true, "pools": pools.collect::<Vec<Value>>(),
        }));
        if let Some(region) = &self.region {
            config.set("region", region.section.clone())?;
        }
        let mut first = Service::prepare(tools, directory, config, &self.log_filter)?;
        for edit in self.service_edits.drain(..) {
            edit(first.config())?;
        }
        let config = first.config().clone();
        let mut services = vec![first];
        let peering = self.region.iter().flat_map(|region| &region.peering);
        let addresses: Vec<String> = peering.map(|port| port.address().to_string()).collect();
        for number in 1..addresses.len() {
            let directory = directory.join(format!("service-{number}"));
            let sibling = Service::prepare(tools, &directory, config.clone(), &self.log_filter)?;
            services.push(sibling);
        }
        for (service, own) in services.iter_mut().zip(&addresses) {
            let siblings = addresses.iter().filter(|address| *address != own);
            let siblings: Vec<String> = siblings.cloned().collect();
            let config = service.config();
            config.set("region/listen", own.as_str())?;
            config.set("region/siblings", siblings)?;
        }
        Ok(services)
    }

    async fn start_envoys(
        &mut self,
        tools: &Tools,
        services: &[Service],
        directory: &Path,
    ) -> anyhow::Result<(Vec<Envoy>, Vec<ReservedPort>)> {
        let ports = (0..self.envoys).map(|_| port::reserve());
        let ports = ports.collect::<anyhow::Result<Vec<_>>>()?;
        let first = ports.first().context("a stack has at least one Envoy")?;
        let mut document = self.envoy_document(tools, first, services)?;
        let mut envoys = Vec::new();
        for (number, port) in ports.iter().enumerate() {
            let address = port.address();
            let mut directory = directory.to_owned();
            if number > 0 {
                directory.push(format!("envoy-{number}"));
                fs::create_dir_all(&directory)?;
                document.set(
                    &format!("{LISTENERS}/name=llm/address"),
                    socket_address(&address),
                )?;
            }
            let envoy = Envoy::start(tools, &document, address, &directory, self.workers);
            envoys.push(envoy.await?);
        }
        Ok((envoys, ports))
    }

    fn envoy_document(
        &mut self,
        tools: &Tools,
        listen: &ReservedPort,
        services: &[Service],
    ) -> anyhow::Result<Document> {
        let services: Vec<_> = services.iter().map(Service::address).collect();
        let region = self.region.as_ref();
        let gateway = region.and_then(|region| region.gateway.as_ref());
        let mut document =
            envoy_document(tools, listen.address(), &services, &self.pools, gateway)?;
        for edit in self.envoy_edits.drain(..) {
            edit(&mut document)?;
        }
        Ok(document)
    }
}

/// Engines, the service and Envoy, running. They end when this is dropped.
#[derive(Debug)]
pub struct Stack {
    // Dropped in this order: Envoy first, so that no program logs a failure of one that ended before it.
    envoys: Vec<Envoy>,
    services: Vec<Service>,
    engines: Vec<Engine>,
    engines_started: usize,
    tools: Tools,
    directory: PathBuf,
    _listen: Vec<ReservedPort>,
    _peering: Vec<ReservedPort>,
}

impl Stack {
    /// Describes a stack; its logs are in `target/stacks/NAME.PROCESS.NUMBER`.
    pub fn builder(name: &str) -> StackBuilder {
        StackBuilder {
            name: name.into(),
            pools: Vec::new(),
            service_edits: Vec::new(),
            envoy_edits: Vec::new(),
            log_filter: "info".into(),
            without_service: false,
            workers: 2,
            services: 1,
            envoys: 1,
            environment: Vec::new(),
            region: None,
        }
    }

    /// A URL for clients.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.envoy().address())
    }

    /// Envoy; the first of several.
    #[expect(clippy::indexing_slicing, reason = "a stack has at least one Envoy")]
    pub fn envoy(&self) -> &Envoy {
        &self.envoys[0]
    }

    /// Envoy, to be killed or restarted; the first of several.
    #[expect(clippy::indexing_slicing, reason = "a stack has at least one Envoy")]
    pub fn envoy_mut(&mut self) -> &mut Envoy {
        &mut self.envoys[0]
    }

    /// All Envoys.
    pub fn envoys(&self) -> impl ExactSizeIterator<Item = &Envoy> {
        self.envoys.iter()
    }

    /// All Envoys, to be killed or restarted.
    pub fn envoys_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Envoy> {
        self.envoys.iter_mut()
    }

    /// The service; the first of several.
    #[expect(clippy::indexing_slicing, reason = "a stack has at least one service")]
    pub fn service(&self) -> &Service {
        &self.services[0]
    }

    /// The service, to be killed, restarted or configured; the first of several.
    #[expect(clippy::indexing_slicing, reason = "a stack has at least one service")]
    pub fn service_mut(&mut self) -> &mut Service {
        &mut self.services[0]
    }

    /// All services.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.iter()
    }

    /// All services, to be killed or restarted.
    pub fn services_mut(&mut self) -> impl Iterator<Item = &mut Service> {
        self.services.iter_mut()
    }

    /// The engines, in order of their start.
    pub fn engines(&self) -> impl ExactSizeIterator<Item = &Engine> {
        self.engines.iter()
    }

    /// The engine with an index.
    pub fn engine(&self, index: usize) -> anyhow::Result<&Engine> {
        let engine = self.engines.get(index);
        engine.with_context(|| format!("no engine {index}"))
    }

    /// The engine with an index, to be killed or restarted.
    pub fn engine_mut(&mut self, index: usize) -> anyhow::Result<&mut Engine> {
        let engine = self.engines.get_mut(index);
        engine.with_context(|| format!("no engine {index}"))
    }

    /// Starts another engine in the pool of the first, adds it through the admin API, and waits until Envoy has it. Returns
    /// its index.
    pub async fn add_engine(&mut self) -> anyhow::Result<usize> {
        let pool = self.engine(0)?.pool.clone();
        let number = self.engines_started;
        self.engines_started += 1;
        let engine = Engine::start(&self.tools, &pool, number, &self.directory).await?;
        let body = json!({ "pool": pool.model, "address": engine.address().to_string() });
        for service in &self.services {
            let request = service.admin_request(Method::POST, "/api/replicas", Some(&body));
            request.await?;
        }
        self.engines.push(engine);
        self.wait_for_endpoints(&pool).await?;
        Ok(self.engines.len() - 1)
    }

    /// Removes an engine from its pool through the admin API, and waits until Envoy has removed it. The engine runs as long
    /// as the returned handle, so that its requests can end.
    pub async fn remove_engine(&mut self, index: usize) -> anyhow::Result<Engine> {
        let address = self.engine(index)?.address();
        let engine = self.engines.remove(index);
        let path = format!("/api/replicas/{address}?pool={}", engine.pool.model);
        for service in &self.services {
            service.admin_request(Method::DELETE, &path, None).await?;
        }
        self.wait_for_endpoints(&engine.pool).await?;
        Ok(engine)
    }

    /// Reads how many bytes Envoy has sent to the service so far.
    pub async fn service_traffic(&self) -> anyhow::Result<ServiceTraffic> {
        let stats = self.envoy().admin_url("");
        ServiceTraffic::read(&stats, "cluster.isotherm", self.service()).await
    }

    /// The directory of logs and generated files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until Envoy's cluster of this pool has exactly the pool's replicas.
    async fn wait_for_endpoints(&self, pool: &Pool) -> anyhow::Result<()> {
        let addresses = addresses(pool, &self.engines);
        for envoy in &self.envoys {
            let waiting = envoy.wait_for_endpoints(&pool.cluster, &addresses);
            waiting.await?;
        }
        Ok(())
    }
}

/// The addresses of a pool's replicas: its engines, and replicas that the caller runs.
fn addresses(pool: &Pool, engines: &[Engine]) -> Vec<SocketAddr> {
    let of_pool = engines
        .iter()
        .filter(|engine| engine.pool.cluster == pool.cluster);
    of_pool
        .map(Engine::address)
        .chain(pool.addresses.iter().copied())
        .collect()
}

/// Several services of a region without peers.
fn siblings_only(count: usize, directory: &Path) -> anyhow::Result<RegionMembership> {
    let peering = (0..count).map(|_| port::reserve());
    Ok(RegionMembership {
        gateway: None,
        section: json!({ "name": "home", "peers": [] }),
        peering: peering.collect::<anyhow::Result<_>>()?,
        directory: directory.to_owned(),
    })
}
