//! Starts engines, the service and Envoy together, and stops them when the stack is dropped.
//!
//! [`Stack::builder`] describes the processes: pools with simulated engines or given addresses, edits of the service's and
//! of Envoy's configuration. [`StackBuilder::start`] starts them on free loopback ports and returns when a request can
//! pass through all of them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use crate::MODEL;
use crate::bootstrap::{Bootstrap, Gateway, Route};
use crate::document::Document;
use crate::engine::Engine;
use crate::envoy::Envoy;
use crate::pool::Pool;
use crate::port::{self, ReservedPort};
use crate::service::Service;
use crate::tools::Tools;

type Edit = Box<dyn FnOnce(&mut Document) -> anyhow::Result<()> + Send>;

/// The description of a stack; see [`Stack::builder`].
pub struct StackBuilder {
    name: String,
    pools: Vec<Pool>,
    service_edits: Vec<Edit>,
    envoy_edits: Vec<Edit>,
    log_filter: String,
    without_service: bool,
    workers: u16,
    services: usize,
    region: Option<RegionMembership>,
}

/// The part of a stack's configuration that makes it one of several regions, or gives it several services.
pub(crate) struct RegionMembership {
    /// Envoy's gateway; absent when there is one region with several services.
    pub(crate) gateway: Option<Gateway>,
    /// The section `region` of the configuration, without the fields that differ from service to service.
    pub(crate) section: Value,
    /// Peering address of each service.
    pub(crate) peering: Vec<ReservedPort>,
    /// Directory of all regions.
    pub(crate) directory: PathBuf,
}

impl StackBuilder {
    /// Adds a pool. A stack without one gets a pool of [`MODEL`].
    #[must_use]
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// Edits the service's configuration before it starts.
    #[must_use]
    pub fn service(
        mut self,
        edit: impl FnOnce(&mut Document) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        self.service_edits.push(Box::new(edit));
        self
    }

    /// Edits Envoy's configuration before it starts.
    #[must_use]
    pub fn envoy(
        mut self,
        edit: impl FnOnce(&mut Document) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        self.envoy_edits.push(Box::new(edit));
        self
    }

    /// Sets the service's `--log`; the default is `info`.
    #[must_use]
    pub fn log(mut self, filter: &str) -> Self {
        self.log_filter = filter.into();
        self
    }

    /// Does not start the service: it gets its addresses and its configuration, and `service_mut().start()` starts it.
    #[must_use]
    pub fn without_service(mut self) -> Self {
        self.without_service = true;
        self
    }

    /// Sets the number of Envoy's worker threads; the default is two.
    #[must_use]
    pub fn workers(mut self, workers: u16) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the number of services behind Envoy; the default is one. Several services peer without TLS.
    #[must_use]
    pub fn services(mut self, count: usize) -> Self {
        self.services = count.max(1);
        self
    }

    /// Makes the stack one of several regions.
    pub(crate) fn region(mut self, region: RegionMembership) -> Self {
        self.services = region.peering.len();
        self.region = Some(region);
        self
    }

    /// Starts everything, and waits until requests can pass (unless the service is left out).
    ///
    /// # Errors
    /// When a program is missing, or does not become ready in time; with the end of its log.
    pub async fn start(mut self) -> anyhow::Result<Stack> {
        let tools = Tools::find()?;
        let directory = match &self.region {
            Some(region) => region.directory.join(&self.name),
            None => fresh_directory(&tools.output.join("stacks"), &self.name)?,
        };
        fs::create_dir_all(&directory)?;
        if self.pools.is_empty() {
            self.pools.push(Pool::new(MODEL));
        }
        let mut engines = Vec::new();
        for (pool, described) in self.pools.iter().enumerate() {
            for _ in 0..described.engines {
                let number = engines.len();
                let engine = start_engine(&tools, described, number, &directory).await?;
                engines.push(PoolEngine { pool, engine });
            }
        }
        if self.services > 1 && self.region.is_none() {
            self.region = Some(siblings_only(self.services, &directory)?);
        }

        let mut services = self.prepare_services(&tools, &engines, &directory)?;
        if !self.without_service {
            try_join_all(services.iter_mut().map(Service::start)).await?;
        }
        let listen = port::reserve()?;
        let document = self.envoy_document(&tools, listen.address(), &services)?;
        let address = listen.address();
        let envoy = Envoy::start(&tools, &document, address, &directory, self.workers).await?;
        let stack = Stack {
            envoy,
            services,
            engines_started: engines.len(),
            engines,
            pools: self.pools,
            tools,
            directory,
            _listen: listen,
            _peering: self.region.map_or_else(Vec::new, |region| region.peering),
        };
        if !self.without_service {
            for pool in 0..stack.pools.len() {
                stack.wait_for_endpoints(pool).await?;
            }
        }
        Ok(stack)
    }

    fn prepare_services(
        &mut self,
        tools: &Tools,
        engines: &[PoolEngine],
        directory: &Path,
    ) -> anyhow::Result<Vec<Service>> {
        let sections = self.pools.iter().enumerate();
        let sections = sections.map(|(index, pool)| config_section(pool, index, engines));
        let log_filter = std::mem::take(&mut self.log_filter);
        let mut first = Service::prepare(tools, directory, sections.collect(), log_filter)?;
        if let Some(region) = &self.region {
            first.config().set("region", region.section.clone())?;
        }
        for edit in self.service_edits.drain(..) {
            edit(first.config())?;
        }
        let siblings = (1..self.services)
            .map(|number| first.sibling(&directory.join(format!("service-{number}"))))
            .collect::<anyhow::Result<Vec<Service>>>()?;
        let mut services = vec![first];
        services.extend(siblings);
        let peering = self.region.iter().flat_map(|region| &region.peering);
        let addresses: Vec<String> = peering.map(|port| port.address().to_string()).collect();
        for (service, own) in services.iter_mut().zip(&addresses) {
            let siblings = addresses.iter().filter(|address| *address != own);
            let siblings: Vec<String> = siblings.cloned().collect();
            let config = service.config();
            config.set("region/listen", own.as_str())?;
            config.set("region/siblings", siblings)?;
        }
        Ok(services)
    }

    fn envoy_document(
        &mut self,
        tools: &Tools,
        listen: SocketAddr,
        services: &[Service],
    ) -> anyhow::Result<Document> {
        let routes = self.pools.iter().map(|pool| Route {
            model: pool.model.clone(),
            cluster: pool.cluster.clone(),
        });
        let addresses: Vec<SocketAddr> = services.iter().map(Service::address).collect();
        let bootstrap = Bootstrap {
            listen,
            services: &addresses,
            routes: &routes.collect::<Vec<Route>>(),
            gateway: self
                .region
                .as_ref()
                .and_then(|region| region.gateway.as_ref()),
        };
        let mut document = bootstrap.document(tools)?;
        for edit in self.envoy_edits.drain(..) {
            edit(&mut document)?;
        }
        Ok(document)
    }
}

async fn start_engine(
    tools: &Tools,
    pool: &Pool,
    number: usize,
    directory: &Path,
) -> anyhow::Result<Engine> {
    let (model, options) = (pool.model.clone(), pool.engine.clone());
    Engine::start(tools, format!("engine-{number}"), model, options, directory).await
}

/// The section of one pool in the service's configuration.
fn config_section(pool: &Pool, index: usize, engines: &[PoolEngine]) -> Value {
    let addresses = addresses(pool, index, engines).into_iter();
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    json!({
        "model": pool.model,
        "cluster": pool.cluster,
        "policy": pool.policy,
        "push": pool.push,
        "replicas": { "static": addresses },
    })
}

/// The addresses of one pool's replicas: its engines, and replicas that the caller runs.
fn addresses(pool: &Pool, index: usize, engines: &[PoolEngine]) -> Vec<SocketAddr> {
    let of_pool = engines.iter().filter(|engine| engine.pool == index);
    of_pool
        .map(|engine| engine.engine.address())
        .chain(pool.addresses.iter().copied())
        .collect()
}

/// Engines, the service and Envoy, running. They end when this is dropped.
#[derive(Debug)]
pub struct Stack {
    // Dropped in this order: Envoy first, so that no program logs a failure of one that ended before it.
    envoy: Envoy,
    services: Vec<Service>,
    engines: Vec<PoolEngine>,
    pools: Vec<Pool>,
    engines_started: usize,
    tools: Tools,
    directory: PathBuf,
    _listen: ReservedPort,
    _peering: Vec<ReservedPort>,
}

/// An engine and the index of its pool.
#[derive(Debug)]
struct PoolEngine {
    pool: usize,
    engine: Engine,
}

impl Stack {
    /// Describes a stack; its logs are in `target/stacks/NAME.PROCESS.NUMBER`.
    #[must_use]
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
            region: None,
        }
    }

    /// A URL for clients.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.envoy.address())
    }

    /// Envoy.
    #[must_use]
    pub fn envoy(&self) -> &Envoy {
        &self.envoy
    }

    /// Envoy, to be killed or restarted.
    pub fn envoy_mut(&mut self) -> &mut Envoy {
        &mut self.envoy
    }

    /// The service; the first of several.
    #[must_use]
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

    /// The engines, in order of their start.
    pub fn engines(&self) -> impl ExactSizeIterator<Item = &Engine> {
        self.engines.iter().map(|engine| &engine.engine)
    }

    /// The engine with an index.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn engine(&self, index: usize) -> anyhow::Result<&Engine> {
        let engine = self.engines.get(index);
        Ok(&engine.with_context(|| format!("no engine {index}"))?.engine)
    }

    /// The engine with an index, to be killed or restarted.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn engine_mut(&mut self, index: usize) -> anyhow::Result<&mut Engine> {
        let engine = self.engines.get_mut(index);
        Ok(&mut engine.with_context(|| format!("no engine {index}"))?.engine)
    }

    fn pool(&self, index: usize) -> anyhow::Result<&Pool> {
        let pool = self.pools.get(index);
        pool.with_context(|| format!("no pool {index}"))
    }

    /// Starts another engine, adds it to the pool through the admin API, and waits until Envoy has it. Returns its index.
    ///
    /// # Errors
    /// When there is no such pool, the engine does not start or the service refuses it.
    pub async fn add_engine(&mut self, pool: usize) -> anyhow::Result<usize> {
        let number = self.engines_started;
        self.engines_started += 1;
        let described = self.pool(pool)?;
        let engine = start_engine(&self.tools, described, number, &self.directory).await?;
        for service in &self.services {
            let address = engine.address();
            service.add_replica(&described.model, address).await?;
        }
        self.engines.push(PoolEngine { pool, engine });
        self.wait_for_endpoints(pool).await?;
        Ok(self.engines.len() - 1)
    }

    /// Removes an engine from its pool through the admin API, and waits until Envoy has removed it. The engine runs as long
    /// as the returned handle, so that its requests can end.
    ///
    /// # Errors
    /// When there is no such engine, or the service refuses.
    pub async fn remove_engine(&mut self, index: usize) -> anyhow::Result<Engine> {
        let address = self.engine(index)?.address();
        let PoolEngine { pool, engine } = self.engines.remove(index);
        for service in &self.services {
            service
                .remove_replica(&self.pool(pool)?.model, address)
                .await?;
        }
        self.wait_for_endpoints(pool).await?;
        Ok(engine)
    }

    /// The directory of logs and generated files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until Envoy's cluster of this pool has exactly the pool's replicas.
    async fn wait_for_endpoints(&self, index: usize) -> anyhow::Result<()> {
        let pool = self.pool(index)?;
        let addresses = addresses(pool, index, &self.engines);
        self.envoy
            .wait_for_endpoints(&pool.cluster, &addresses)
            .await
    }
}

/// Several services of a region without peers.
fn siblings_only(count: usize, directory: &Path) -> anyhow::Result<RegionMembership> {
    let peering = (0..count).map(|_| port::reserve());
    Ok(RegionMembership {
        gateway: None,
        section: json!({ "name": "home", "plaintext": true, "peers": [] }),
        peering: peering.collect::<anyhow::Result<Vec<ReservedPort>>>()?,
        directory: directory.to_owned(),
    })
}

/// Creates a new directory of this name, after removing those of processes that have ended.
pub(crate) fn fresh_directory(parent: &Path, name: &str) -> anyhow::Result<PathBuf> {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    for entry in fs::read_dir(parent)?.filter_map(Result::ok) {
        let owner = process_of(&entry.file_name().to_string_lossy(), name);
        if owner.is_some_and(|process| test_kill_process(process).is_err()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let directory = parent.join(format!("{name}.{}.{number}", std::process::id()));
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// The process in `NAME.PROCESS.NUMBER`.
fn process_of(file_name: &str, name: &str) -> Option<Pid> {
    let rest = file_name.strip_prefix(name)?.strip_prefix('.')?;
    Pid::from_raw(rest.split('.').next()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_ended_processes_are_removed() {
        let parent = std::env::temp_dir().join(format!("isotherm-stacks-{}", std::process::id()));
        let dead = parent.join("demo.2147483646.0");
        let other = parent.join("another.2147483646.0");
        fs::create_dir_all(&dead).unwrap();
        fs::create_dir_all(&other).unwrap();
        let first = fresh_directory(&parent, "demo").unwrap();
        let second = fresh_directory(&parent, "demo").unwrap();
        assert!(!dead.exists() && other.exists() && first.exists() && second.exists());
        fs::remove_dir_all(&parent).unwrap();
    }
}
