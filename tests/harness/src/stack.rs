//! Everything together: engines, the service, Envoy.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use crate::bootstrap::{Bootstrap, Gateway, Route};
use crate::document::Document;
use crate::engine::Engine;
use crate::envoy::Envoy;
use crate::pool::Pool;
use crate::port::{self, ReservedPort};
use crate::service::Service;
use crate::services::Services;
use crate::tools::Tools;

type Edit = Box<dyn FnOnce(&mut Document) -> anyhow::Result<()> + Send>;

/// What is to be started; see [`Stack::builder`].
pub struct StackBuilder {
    name: String,
    pools: Vec<Pool>,
    service_edits: Vec<Edit>,
    envoy_edits: Vec<Edit>,
    log_filter: String,
    without_service: bool,
    workers: u16,
    services: usize,
    membership: Option<RegionMembership>,
}

/// What a stack that is one of several regions is told of them.
pub(crate) struct RegionMembership {
    /// For Envoy; nothing where there is one region, of several services.
    pub(crate) gateway: Option<Gateway>,
    /// The section `region` of the configuration, without what differs from service to service.
    pub(crate) section: Value,
    /// Where each service listens for the others'.
    pub(crate) peering: Vec<ReservedPort>,
    /// The directory that all regions are in.
    pub(crate) directory: PathBuf,
}

impl StackBuilder {
    /// Adds a pool. A stack without one gets `Pool::new("llama-3.1-8b")`.
    #[must_use]
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// Changes the service's configuration before it starts.
    #[must_use]
    pub fn service(
        mut self,
        edit: impl FnOnce(&mut Document) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        self.service_edits.push(Box::new(edit));
        self
    }

    /// Changes Envoy's configuration before it starts.
    #[must_use]
    pub fn envoy(
        mut self,
        edit: impl FnOnce(&mut Document) -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        self.envoy_edits.push(Box::new(edit));
        self
    }

    /// What the service logs, as its `--log`; `info` unless set.
    #[must_use]
    pub fn log(mut self, filter: &str) -> Self {
        self.log_filter = filter.into();
        self
    }

    /// Leaves the service out: it has its addresses and its configuration, and `service_mut().start()` starts it later.
    #[must_use]
    pub fn without_service(mut self) -> Self {
        self.without_service = true;
        self
    }

    /// How many worker threads Envoy has; two unless set.
    #[must_use]
    pub fn workers(mut self, workers: u16) -> Self {
        self.workers = workers;
        self
    }

    /// How many services stand behind Envoy; one unless set. Several share what they know, over plain connections.
    #[must_use]
    pub fn services(mut self, count: usize) -> Self {
        self.services = count.max(1);
        self
    }

    /// Makes it one of several regions.
    pub(crate) fn member(mut self, membership: RegionMembership) -> Self {
        self.services = membership.peering.len();
        self.membership = Some(membership);
        self
    }

    /// Starts everything, and waits until a request can go all the way (not so without the service).
    ///
    /// # Errors
    /// When a program is missing, or does not become ready in time; with the end of its log.
    pub async fn start(mut self) -> anyhow::Result<Stack> {
        let tools = Tools::find()?;
        let directory = match &self.membership {
            Some(membership) => {
                let directory = membership.directory.join(&self.name);
                fs::create_dir_all(&directory)?;
                directory
            }
            None => fresh_directory(&tools.output.join("stacks"), &self.name)?,
        };
        if self.pools.is_empty() {
            self.pools.push(Pool::new("llama-3.1-8b"));
        }
        let mut engines = Vec::new();
        for (index, pool) in self.pools.iter().enumerate() {
            for _ in 0..pool.replicas {
                let name = format!("engine-{}", engines.len());
                let (model, options) = (pool.model.clone(), pool.engine.clone());
                let engine = Engine::start(&tools, name, model, options, &directory).await?;
                engines.push(PoolEngine {
                    pool: index,
                    engine,
                });
            }
        }

        let described = self
            .pools
            .iter()
            .enumerate()
            .map(|(index, pool)| describe(pool, index, &engines))
            .collect();
        let mut first = Service::prepare(&tools, &directory, described, self.log_filter)?;
        let alone = self.services == 1 && self.membership.is_none();
        let membership = match self.membership {
            Some(membership) => Some(membership),
            None if alone => None,
            None => Some(siblings_only(self.services, &directory)?),
        };
        if let Some(membership) = &membership {
            first.config().set("region", membership.section.clone())?;
        }
        for edit in self.service_edits {
            edit(first.config())?;
        }
        let mut services = Services::new(first, self.services, &directory)?;
        if let Some(membership) = &membership {
            services.set_siblings(&membership.peering)?;
        }
        if !self.without_service {
            services.start().await?;
        }

        let routes: Vec<Route> = self
            .pools
            .iter()
            .map(|pool| Route {
                model: pool.model.clone(),
                cluster: pool.cluster.clone(),
            })
            .collect();
        let listen = port::reserve()?;
        let addresses: Vec<SocketAddr> = services.iter().map(Service::address).collect();
        let bootstrap = Bootstrap {
            listen: listen.address(),
            services: &addresses,
            routes: &routes,
            gateway: membership
                .as_ref()
                .and_then(|membership| membership.gateway.as_ref()),
        };
        let mut document = bootstrap.document(&tools)?;
        for edit in self.envoy_edits {
            edit(&mut document)?;
        }
        let at = listen.address();
        let envoy = Envoy::start(&tools, &document, at, &directory, self.workers).await?;
        let started = engines.len();
        let stack = Stack {
            envoy,
            services,
            engines,
            pools: self.pools,
            started,
            tools,
            directory,
            _listen: listen,
            _peering: membership.map_or_else(Vec::new, |membership| membership.peering),
        };
        if !self.without_service {
            for index in 0..stack.pools.len() {
                stack.wait_for_endpoints(index).await?;
            }
        }
        Ok(stack)
    }
}

/// One pool in the service's configuration.
fn describe(pool: &Pool, index: usize, engines: &[PoolEngine]) -> Value {
    let addresses = addresses(pool, index, engines)
        .into_iter()
        .map(|address| address.to_string());
    json!({
        "model": pool.model,
        "cluster": pool.cluster,
        "policy": pool.policy,
        "push": pool.push,
        "replicas": { "static": addresses.collect::<Vec<String>>() },
    })
}

/// The replicas of one pool: its engines, and what the test runs itself.
fn addresses(pool: &Pool, index: usize, engines: &[PoolEngine]) -> Vec<SocketAddr> {
    let of_pool = engines.iter().filter(|member| member.pool == index);
    of_pool
        .map(|member| member.engine.address())
        .chain(pool.others.iter().copied())
        .collect()
}

/// Engines, the service and Envoy, running. They end when this is dropped.
#[derive(Debug)]
pub struct Stack {
    // In this order they are dropped: clients are cut off first, so that nothing logs a failure of what ended before it.
    envoy: Envoy,
    services: Services,
    engines: Vec<PoolEngine>,
    pools: Vec<Pool>,
    started: usize,
    tools: Tools,
    directory: PathBuf,
    _listen: ReservedPort,
    _peering: Vec<ReservedPort>,
}

#[derive(Debug)]
struct PoolEngine {
    pool: usize,
    engine: Engine,
}

impl Stack {
    /// Describes a stack; its logs are under `target/stacks/NAME-...`.
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
            membership: None,
        }
    }

    /// A URL of the system, as a client sees it.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.envoy.address())
    }

    /// Envoy.
    #[must_use]
    pub fn envoy(&self) -> &Envoy {
        &self.envoy
    }

    /// Envoy, to be killed or started again.
    pub fn envoy_mut(&mut self) -> &mut Envoy {
        &mut self.envoy
    }

    /// The service; the first, where there are several.
    #[must_use]
    pub fn service(&self) -> &Service {
        self.services.first()
    }

    /// The service, to be killed, restarted or given another configuration; the first, where there are several.
    pub fn service_mut(&mut self) -> &mut Service {
        self.services.first_mut()
    }

    /// All services.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.iter()
    }

    /// All services, to be changed.
    pub fn services_mut(&mut self) -> impl Iterator<Item = &mut Service> {
        self.services.iter_mut()
    }

    /// The engines, in the order in which they were started.
    pub fn engines(&self) -> impl ExactSizeIterator<Item = &Engine> {
        self.engines.iter().map(|member| &member.engine)
    }

    /// One engine.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn engine(&self, index: usize) -> anyhow::Result<&Engine> {
        Ok(&self
            .engines
            .get(index)
            .with_context(|| format!("no engine {index}"))?
            .engine)
    }

    /// One engine, to be killed or restarted.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn engine_mut(&mut self, index: usize) -> anyhow::Result<&mut Engine> {
        Ok(&mut self
            .engines
            .get_mut(index)
            .with_context(|| format!("no engine {index}"))?
            .engine)
    }

    /// Starts another engine, adds it to the pool by the service's admin interface, and waits until Envoy has it.
    /// Returns its index.
    ///
    /// # Errors
    /// When there is no such pool, the engine does not start or the service refuses it.
    pub async fn add_engine(&mut self, pool: usize) -> anyhow::Result<usize> {
        let described = self
            .pools
            .get(pool)
            .with_context(|| format!("no pool {pool}"))?;
        let (model, options) = (described.model.clone(), described.engine.clone());
        let name = format!("engine-{}", self.started);
        self.started += 1;
        let engine = Engine::start(&self.tools, name, model, options, &self.directory).await?;
        for service in self.services.iter() {
            let address = engine.address();
            service.add_replica(&described.model, address).await?;
        }
        self.engines.push(PoolEngine { pool, engine });
        self.wait_for_endpoints(pool).await?;
        Ok(self.engines.len() - 1)
    }

    /// Takes an engine out of its pool by the service's admin interface and waits until Envoy has let go of it. The
    /// engine keeps running as long as the returned handle, so that what it works on can end.
    ///
    /// # Errors
    /// When there is no such engine, or the service refuses.
    pub async fn remove_engine(&mut self, index: usize) -> anyhow::Result<Engine> {
        let member = self
            .engines
            .get(index)
            .with_context(|| format!("no engine {index}"))?;
        let (pool, address) = (member.pool, member.engine.address());
        let model = &self
            .pools
            .get(pool)
            .with_context(|| format!("no pool {pool}"))?
            .model;
        for service in self.services.iter() {
            service.remove_replica(model, address).await?;
        }
        let member = self.engines.remove(index);
        self.wait_for_endpoints(pool).await?;
        Ok(member.engine)
    }

    /// Where logs and generated files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until Envoy's cluster of this pool has the pool's replicas and no others.
    ///
    /// # Errors
    /// When there is no such pool, or it has not after ten seconds.
    pub async fn wait_for_endpoints(&self, pool: usize) -> anyhow::Result<()> {
        let described = self
            .pools
            .get(pool)
            .with_context(|| format!("no pool {pool}"))?;
        let addresses = addresses(described, pool, &self.engines);
        self.envoy
            .wait_for_endpoints(&described.cluster, &addresses)
            .await
    }
}

/// Several services of one region that is alone.
fn siblings_only(count: usize, directory: &Path) -> anyhow::Result<RegionMembership> {
    let peering = (0..count).map(|_| port::reserve());
    let peering = peering.collect::<anyhow::Result<Vec<ReservedPort>>>()?;
    Ok(RegionMembership {
        gateway: None,
        section: json!({ "name": "home", "plaintext": true, "peers": [] }),
        peering,
        directory: directory.to_owned(),
    })
}

/// A new directory of this name, after what earlier processes of this name left has been cleared away.
pub(crate) fn fresh_directory(parent: &Path, name: &str) -> anyhow::Result<PathBuf> {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    for entry in fs::read_dir(parent)?.filter_map(Result::ok) {
        let file_name = entry.file_name();
        let of_dead = file_name
            .to_str()
            .and_then(|file_name| {
                file_name
                    .strip_prefix(name)?
                    .strip_prefix('.')?
                    .split('.')
                    .next()?
                    .parse()
                    .ok()
            })
            .and_then(Pid::from_raw)
            .is_some_and(|pid| test_kill_process(pid).is_err());
        if of_dead {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let directory = parent.join(format!("{name}.{}.{number}", std::process::id()));
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_the_dead_are_cleared_away_and_those_of_the_living_stay() {
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
