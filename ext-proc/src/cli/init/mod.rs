//! `isotherm init`: the first configuration of the service and of Envoy.
//!
//! The command asks for what its options leave open: on a terminal the operator, and for the model's name the replicas
//! themselves. A replica that does not answer is a warning, since it may start later. Everything is made and checked before
//! the first file is written. `isotherm envoy` makes Envoy's part, so both commands write the same pieces.
//!
//! Rejected: a default model. A pool whose name no client uses answers 404 to everything.

mod files;
mod next;
mod prompt;
pub(super) mod replicas;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use isotherm_envoy_config::add::{ExtendedConfig, Request};
use isotherm_envoy_config::create::{self, Addresses};
use isotherm_envoy_config::pool::{Pool, ServiceAddress, Setup};

use self::files::Files;
pub(super) use self::files::service_configuration;
pub(super) use self::next::request;
use super::address::parse_replica;
use super::envoy::{self, RouteChoice};
use super::installation::Installation;
use super::models::{self, ModelsAnswer};
use super::output;
use crate::config::Address;
use crate::http_client::HttpClient;

#[derive(Debug, Args)]
pub(super) struct Init {
    /// Name of the model that clients ask for; `*` stands for every model [default: the name that the replicas tell].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Address of a replica; repeat it for each [default: with --envoy, the endpoints behind the routes].
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_replica)]
    replica: Vec<Address>,
    /// Name of the pool's cluster in Envoy.
    #[arg(long, value_name = "NAME", default_value = "isotherm-engines")]
    cluster: String,
    /// Address of Envoy for clients [default: 0.0.0.0:10000].
    #[arg(long, value_name = "IP:PORT", conflicts_with = "envoy")]
    listen: Option<SocketAddr>,
    /// Address of Envoy's admin interface [default: 127.0.0.1:9901].
    #[arg(long, value_name = "IP:PORT", conflicts_with = "envoy")]
    envoy_admin: Option<SocketAddr>,
    /// Address at which Envoy reaches the service [default: 127.0.0.1:9002].
    #[arg(long, value_name = "IP:PORT")]
    service: Option<SocketAddr>,
    /// Address of the service's admin interface [default: 127.0.0.1:9003].
    #[arg(long, value_name = "IP:PORT")]
    admin: Option<SocketAddr>,
    /// Path of the filter's module where Envoy runs [default: the one beside this program].
    #[arg(long, value_name = "PATH")]
    filter: Option<PathBuf>,
    /// Configuration of Envoy that gets Isotherm, as by `isotherm envoy add`; the file itself stays.
    #[arg(long, value_name = "FILE", requires = "route")]
    envoy: Option<PathBuf>,
    /// Route of --envoy that Isotherm takes over: its prefix, path, regular expression or name.
    #[arg(long, value_name = "PREFIX", requires = "envoy")]
    route: Vec<String>,
    #[command(flatten)]
    choice: RouteChoice,
    /// Folder of the new files `isotherm.yaml` and `envoy.yaml`.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// Write over files that are there.
    #[arg(long)]
    force: bool,
}

/// The configuration of an Envoy that runs already.
#[derive(Debug)]
struct Owner {
    file: PathBuf,
    text: String,
}

pub(super) async fn run(args: Init) -> anyhow::Result<ExitCode> {
    let files = Files::in_folder(&args.dir, args.force)?;
    let filter = module(&args)?;
    let owner = Owner::read(&args)?;
    let replicas = replicas(&args, owner.as_ref())?;
    let answers = models::ask_all(&HttpClient::new(), &replicas).await;
    replicas::warn(args.model.as_deref(), &replicas, &answers);
    let models = models(&args, &replicas, &answers)?;
    let setup = setup(&args, models, Some(filter));
    let (envoy, paths) = match &owner {
        None => {
            let addresses = Addresses {
                clients: args.listen,
                admin: args.envoy_admin,
            };
            (create::create(&setup, &addresses)?, String::new())
        }
        Some(owner) => {
            let added = owner.extend(&args, setup.clone())?;
            output::note(&envoy::report(&owner.file, &added, ""));
            (added.text, added.service_paths)
        }
    };
    let config = service_configuration([args.service, args.admin], &setup, &replicas, &paths)?;
    files.write(&config, &envoy)?;
    output::print(&next::steps(&args, &setup, &files, &envoy, replicas.len()))?;
    Ok(ExitCode::SUCCESS)
}

/// Path of the filter's module in Envoy's configuration: absolute where the file is on this machine.
fn module(args: &Init) -> anyhow::Result<String> {
    let path = match &args.filter {
        Some(path) => path.clone(),
        None => Installation::of_this_program()?.filter(None)?,
    };
    let path = path.canonicalize().unwrap_or_else(|_| {
        output::note(&format!(
            "warning: {} is not on this machine: Envoy needs it where Envoy runs",
            path.display()
        ));
        path
    });
    Ok(path.display().to_string())
}

/// The replicas of the options, else of the owner's routes, else of the operator's answer.
fn replicas(args: &Init, owner: Option<&Owner>) -> anyhow::Result<Vec<Address>> {
    let mut replicas = args.replica.clone();
    if let (true, Some(owner)) = (replicas.is_empty(), owner) {
        // The endpoints are the same for every model.
        let added = owner.extend(args, setup(args, vec!["*".to_owned()], None))?;
        let endpoints = added.endpoints.iter().map(|text| Address::parse(text));
        replicas = endpoints
            .collect::<Result<_, _>>()
            .map_err(anyhow::Error::msg)?;
    }
    if replicas.is_empty() {
        ensure!(
            prompt::is_possible(),
            "no replicas: name each by --replica HOST:PORT (on a terminal the command asks for them)"
        );
        replicas = prompt::replicas()?;
    }
    replicas::check(replicas)
}

/// The names of the pool's model, the model itself first.
fn models(
    args: &Init,
    replicas: &[Address],
    answers: &[ModelsAnswer],
) -> anyhow::Result<Vec<String>> {
    if let Some(model) = &args.model {
        return Ok(vec![model.clone()]);
    }
    let found = replicas::common_models(replicas, answers)?;
    if prompt::is_possible() {
        return prompt::model(found);
    }
    ensure!(
        !found.is_empty(),
        "no replica names its model: start one, or give --model NAME (`*` for every model)"
    );
    Ok(found)
}

fn setup(args: &Init, models: Vec<String>, filter: Option<String>) -> Setup {
    let cluster = args.cluster.clone();
    Setup {
        pools: vec![Pool { models, cluster }],
        service: args.service.map(ServiceAddress::Socket),
        filter,
    }
}

impl Owner {
    fn read(args: &Init) -> anyhow::Result<Option<Self>> {
        let Some(file) = args.envoy.clone() else {
            return Ok(None);
        };
        let text = envoy::read(&file)?;
        Ok(Some(Self { file, text }))
    }

    /// Adds Isotherm to the routes of the options.
    fn extend(&self, args: &Init, setup: Setup) -> anyhow::Result<ExtendedConfig> {
        let request = Request {
            setup,
            routes: args.route.clone(),
            virtual_host: args.choice.virtual_host.clone(),
            to: args.choice.to.clone(),
        };
        envoy::add_to(&self.file, &self.text, &request)
    }
}
