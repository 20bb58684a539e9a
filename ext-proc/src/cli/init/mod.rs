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

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use isotherm_envoy_config::add::{ExtendedConfig, Request};
use isotherm_envoy_config::create::{self, Addresses};
use isotherm_envoy_config::pool::{Pool, ServiceAddress, Setup};

use self::files::Files;
use super::address::parse_replica;
use super::envoy::{self, RouteChoice};
use super::models::{self, ModelsAnswer};
use super::output;
use crate::config::Address;
use crate::http_client::HttpClient;

/// The most replicas that the command asks and writes. A longer list belongs into a DNS name.
const REPLICAS_MAX: usize = 1_000;

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
    warn(&args, &replicas, &answers);
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
    let config = files::service_configuration(&args, &setup, &replicas, &paths)?;
    files.write(&config, &envoy)?;
    output::print(&next::steps(&args, &setup, &files, &envoy, replicas.len()))?;
    Ok(ExitCode::SUCCESS)
}

/// Path of the filter's module in Envoy's configuration: absolute where the file is on this machine.
fn module(args: &Init) -> anyhow::Result<String> {
    let path = match &args.filter {
        Some(path) => path.clone(),
        None => files::module_beside_program().context(
            "the filter's module isotherm_filter.wasm is not beside this program: name it by --filter PATH (`cargo xtask build` \
             writes target/filter/isotherm_filter.wasm)",
        )?,
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
    ensure!(
        replicas.len() <= REPLICAS_MAX,
        "more than {REPLICAS_MAX} replicas: give one DNS name that has their addresses"
    );
    for replica in &mut replicas {
        if let Address::Name(name, port) = replica
            && name == "localhost"
        {
            *replica = SocketAddr::from(([127, 0, 0, 1], *port)).into();
        }
    }
    let names = replicas.iter();
    let names: Vec<&Address> = names
        .filter(|replica| matches!(replica, Address::Name(..)))
        .collect();
    ensure!(
        names.len() <= 1,
        "a pool has one DNS name at most, for all of its replicas: give IP addresses instead of {}",
        names
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    );
    Ok(replicas)
}

/// Warns of replicas that do not answer, or that serve another model.
fn warn(args: &Init, replicas: &[Address], answers: &[ModelsAnswer]) {
    for (replica, answer) in replicas.iter().zip(answers) {
        let names = answer.names();
        let problem = match (answer, &args.model) {
            (ModelsAnswer::Silent(reason), _) => {
                format!("does not answer ({reason}): it gets requests once it does")
            }
            (ModelsAnswer::Other(reason), _) => {
                format!("does not list its models ({reason})")
            }
            (ModelsAnswer::Models(all), Some(model))
                if model != "*" && !all.iter().any(|own| own.id == *model) =>
            {
                format!("serves {}, not {model}", names.join(", "))
            }
            _ => continue,
        };
        output::note(&format!("warning: {replica} {problem}"));
    }
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
    let mut found: Vec<&str> = Vec::new();
    for (replica, answer) in replicas.iter().zip(answers) {
        let names = answer.names();
        match (found.first(), names.is_empty()) {
            (_, true) => {}
            (None, false) => found = names,
            (Some(first), false) if names.contains(first) => {}
            (Some(first), false) => bail!(
                "{replica} serves {}, and another replica {first}: name the pool's model by --model, and write a pool for each \
                 further model into isotherm.yaml",
                names.join(", ")
            ),
        }
    }
    let found: Vec<String> = found.into_iter().map(str::to_owned).collect();
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
