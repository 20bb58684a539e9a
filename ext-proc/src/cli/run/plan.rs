//! The plan of `isotherm run`: the configurations of the service and of Envoy, and the addresses of both.
//!
//! The pieces are those of `isotherm init` and `isotherm envoy new`. With `--config` the service reads the operator's own file.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use isotherm_envoy_config::create::{self, Addresses};
use isotherm_envoy_config::pool::{Pool, Setup};
use tokio::time::{Instant, sleep};

use super::Run;
use crate::cli::init::{replicas, service_configuration};
use crate::cli::{envoy, models, output};
use crate::config::{self, Address, Config, Listen};
use crate::http_client::HttpClient;

/// The pool's cluster in Envoy.
const CLUSTER: &str = "isotherm-engines";
/// Pause between two rounds of questions for the replicas' models.
const ROUND_PAUSE: Duration = Duration::from_secs(1);

/// The configurations of a service and an Envoy.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) config: Config,
    pub(super) service: ServiceFile,
    /// Envoy's configuration.
    pub(super) envoy: String,
    /// A name of the first pool's model.
    pub(super) model: String,
}

/// The configuration file of the service.
#[derive(Debug)]
pub(super) enum ServiceFile {
    /// The operator's own.
    Existing(PathBuf),
    /// The text of a new one.
    New(String),
}

impl Plan {
    /// Reads the configuration of the options, or asks the replicas for their models and makes one.
    pub(super) async fn new(args: &Run, filter: &Path) -> anyhow::Result<Self> {
        let (config, service) = match &args.config {
            Some(file) => (config::load(file)?, ServiceFile::Existing(file.clone())),
            None => {
                let text = new_configuration(args).await?;
                (config::parse(&text)?, ServiceFile::New(text))
            }
        };
        let mut setup = envoy::setup_of(&config, None)?;
        setup.filter = Some(filter.display().to_string());
        let addresses = Addresses {
            clients: Some(args.listen),
            admin: Some(args.envoy_admin),
        };
        let model = setup.pools.first().and_then(|pool| pool.models.first());
        Ok(Self {
            envoy: create::create(&setup, &addresses)?,
            config,
            service,
            model: model.cloned().unwrap_or_default(),
        })
    }

    /// Checks that no other program listens at an address of the pair. Envoy shares its address with others without an error
    /// (`SO_REUSEPORT`), so it would not say.
    pub(super) fn check_addresses(&self, args: &Run) -> anyhow::Result<()> {
        let service = self.config.listen.iter().filter_map(|listen| match listen {
            Listen::Tcp(address) => Some(*address),
            Listen::Unix(_) => None,
        });
        let given = |option, of_file| match args.config {
            Some(_) => of_file,
            None => option,
        };
        let mut addresses = vec![
            (args.listen, "--listen"),
            (args.envoy_admin, "--envoy-admin"),
            (self.config.admin.listen, given("--admin", "`admin.listen`")),
        ];
        addresses.extend(service.map(|address| (address, given("--service", "`listen`"))));
        for (address, option) in addresses {
            ensure!(address.port() != 0, "{option} {address}: name a port");
            TcpListener::bind(address).with_context(|| {
                format!("cannot listen at {address}: {option} gives another address")
            })?;
        }
        Ok(())
    }
}

/// The text of a service's configuration for the replicas of the options.
async fn new_configuration(args: &Run) -> anyhow::Result<String> {
    let replicas = replicas::check(args.replica.clone())?;
    let pool = Pool {
        models: models(args, &replicas).await?,
        cluster: CLUSTER.to_owned(),
    };
    let setup = Setup {
        pools: vec![pool],
        ..Setup::default()
    };
    service_configuration([args.service, args.admin], &setup, &replicas, "")
}

/// The names of the model: the given one, or the ones that the replicas tell. Waits for the first replica that tells one.
async fn models(args: &Run, replicas: &[Address]) -> anyhow::Result<Vec<String>> {
    let http = HttpClient::new();
    let start = Instant::now();
    let mut has_waited = false;
    loop {
        let answers = models::ask_all(&http, replicas).await;
        let found = match &args.model {
            Some(model) => vec![model.clone()],
            None => replicas::common_models(replicas, &answers)?,
        };
        if !has_waited || !found.is_empty() {
            replicas::warn(args.model.as_deref(), replicas, &answers);
        }
        if !found.is_empty() {
            return Ok(found);
        }
        if start.elapsed() >= Duration::from_secs(args.model_wait_s) {
            bail!(
                "no replica has named its model within {} s: start one, wait longer by --model-wait-s, or give --model NAME (`*` \
                 for every model)",
                args.model_wait_s
            );
        }
        if !has_waited {
            output::note("waiting for a replica that names its model");
            has_waited = true;
        }
        sleep(ROUND_PAUSE).await;
    }
}
