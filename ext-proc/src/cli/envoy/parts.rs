//! The options that say for which pools, which service and which module the pieces are made.

use std::path::PathBuf;

use anyhow::{bail, ensure};
use clap::Args;
use isotherm_envoy_config::pool::{Pool, ServiceAddress, Setup};

use crate::cli::address::reachable;
use crate::config::{self, Config, Listen, PoolConfig};

#[derive(Debug, Args)]
pub(super) struct Parts {
    /// Model of the pool; `*` stands for every model [default: the one of the shipped example].
    #[arg(
        long,
        value_name = "NAME",
        requires = "cluster",
        conflicts_with = "config"
    )]
    model: Option<String>,
    /// Cluster of the pool in Envoy, as `pools[].cluster` of the service names it.
    #[arg(
        long,
        value_name = "NAME",
        requires = "model",
        conflicts_with = "config"
    )]
    cluster: Option<String>,
    /// Configuration file of the service: names the pools and the service's address.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the service: ip:port, name:port or unix:/path [default: the one in --config, else 127.0.0.1:9002].
    #[arg(long, value_name = "ADDRESS")]
    service: Option<ServiceAddress>,
    /// Path of the filter's module where Envoy runs [default: target/filter/isotherm_filter.wasm].
    #[arg(long, value_name = "PATH")]
    filter: Option<String>,
}

impl Parts {
    /// The setup that the options state.
    pub(super) fn setup(&self) -> anyhow::Result<Setup> {
        let mut setup = Setup {
            pools: self.named_pool().into_iter().collect(),
            service: self.service.clone(),
            filter: self.filter.clone(),
        };
        if let Some(config) = self.config()? {
            let own = setup_of(&config, self.service.clone())?;
            (setup.pools, setup.service) = (own.pools, own.service);
        }
        Ok(setup)
    }

    /// Whether the service's configuration names sources of replicas.
    pub(super) fn has_replicas(&self) -> anyhow::Result<bool> {
        let config = self.config()?;
        let pools = config.into_iter().flat_map(|config| config.pools);
        let mut sources = pools.map(|pool| pool.sources);
        Ok(sources
            .any(|own| !own.fixed.is_empty() || own.dns.is_some() || own.kubernetes.is_some()))
    }

    fn named_pool(&self) -> Option<Pool> {
        let models = vec![self.model.clone()?];
        let cluster = self.cluster.clone()?;
        Some(Pool { models, cluster })
    }

    fn config(&self) -> anyhow::Result<Option<Config>> {
        let file = self.config.as_ref();
        Ok(file.map(|file| config::load(file)).transpose()?)
    }
}

/// The setup of a service's configuration: its pools, and `service` or else the address that the configuration has.
pub(in crate::cli) fn setup_of(
    config: &Config,
    service: Option<ServiceAddress>,
) -> anyhow::Result<Setup> {
    ensure!(
        config.region.is_none(),
        "the service is one of several regions: start from envoy/region.yaml (docs/regions.md)"
    );
    ensure!(
        !config.pools.is_empty(),
        "the service's configuration has no `pools`: add them, or name one by --model and --cluster"
    );
    let service = match service {
        Some(service) => service,
        None => address(config)?,
    };
    Ok(Setup {
        pools: config.pools.iter().map(pool).collect(),
        service: Some(service),
        filter: None,
    })
}

fn pool(pool: &PoolConfig) -> Pool {
    let models = std::iter::once(&pool.model).chain(&pool.aliases);
    Pool {
        models: models.cloned().collect(),
        cluster: pool.cluster.clone(),
    }
}

/// Where Envoy reaches the service: its first address. One that stands for all of a machine's is the loopback address.
fn address(config: &Config) -> anyhow::Result<ServiceAddress> {
    match config.listen.first() {
        Some(Listen::Tcp(address)) => Ok(ServiceAddress::Socket(reachable(*address))),
        Some(Listen::Unix(path)) => Ok(ServiceAddress::Pipe(path.display().to_string())),
        None => bail!(
            "the service's configuration has no `listen` address in clear: name one by --service"
        ),
    }
}
