//! `isotherm envoy`: writes, extends and checks Envoy's configuration. The crate `isotherm-envoy-config` does the work.

mod check;
mod parts;

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use isotherm_envoy_config::add::{self, ExtendedConfig, Request};
use isotherm_envoy_config::create::{self, Addresses};

pub(super) use self::check::findings_in_texts;
use self::parts::Parts;
pub(super) use self::parts::setup_of;
use super::output;

/// The largest configuration, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct Envoy {
    #[command(subcommand)]
    command: EnvoyCommand,
}

#[derive(Debug, Subcommand)]
enum EnvoyCommand {
    /// Write a complete configuration of an Envoy with Isotherm.
    New(New),
    /// Add Isotherm to routes of a configuration that you have. Comments and everything else stay as they are.
    Add(Add),
    /// Find the known mistakes of a configuration, each with its line and its remedy.
    Check(check::Check),
}

#[derive(Debug, Args)]
struct New {
    #[command(flatten)]
    parts: Parts,
    /// Address of a replica, for the section of the service's configuration on the standard error.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "config")]
    replica: Vec<String>,
    /// Address for clients [default: 0.0.0.0:10000].
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// File to write [default: the standard output].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The choice among several routes of the same name.
#[derive(Debug, Args)]
pub(super) struct RouteChoice {
    /// Only routes of this virtual host.
    #[arg(long, value_name = "NAME", requires = "route")]
    pub(super) virtual_host: Option<String>,
    /// Only routes that lead to this cluster.
    #[arg(long, value_name = "CLUSTER", requires = "route")]
    pub(super) to: Option<String>,
}

#[derive(Debug, Args)]
struct Add {
    #[command(flatten)]
    parts: Parts,
    /// Route that Isotherm takes over: its prefix, path, regular expression or name, as the file has it.
    #[arg(long, value_name = "PREFIX", required = true)]
    route: Vec<String>,
    #[command(flatten)]
    choice: RouteChoice,
    /// Configuration of Envoy, as YAML or JSON.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File to write [default: the standard output].
    #[arg(long, value_name = "FILE", conflicts_with = "in_place")]
    output: Option<PathBuf>,
    /// Write the file itself.
    #[arg(long)]
    in_place: bool,
}

/// Runs a subcommand.
pub(super) async fn run(args: Envoy) -> anyhow::Result<ExitCode> {
    match args.command {
        EnvoyCommand::New(args) => new(&args),
        EnvoyCommand::Add(args) => add(&args),
        EnvoyCommand::Check(args) => check::run(&args).await,
    }
}

fn new(args: &New) -> anyhow::Result<ExitCode> {
    let setup = args.parts.setup()?;
    let addresses = Addresses {
        clients: args.listen,
        admin: None,
    };
    let text = create::create(&setup, &addresses)?;
    if !args.replica.is_empty() {
        let section = add::service_section(&setup, &args.replica)?;
        output::note(&format!("The service's configuration:\n\n{section}"));
    }
    write(args.output.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

fn add(args: &Add) -> anyhow::Result<ExitCode> {
    let text = read(&args.file)?;
    let request = Request {
        setup: args.parts.setup()?,
        routes: args.route.clone(),
        virtual_host: args.choice.virtual_host.clone(),
        to: args.choice.to.clone(),
    };
    let added = add_to(&args.file, &text, &request)?;
    let target = if args.in_place {
        Some(args.file.as_path())
    } else {
        args.output.as_deref()
    };
    write(target, &added.text)?;
    let section = match args.parts.has_replicas()? {
        true => &added.service_paths,
        false => &added.service_section,
    };
    output::note(&report(&args.file, &added, section));
    Ok(ExitCode::SUCCESS)
}

/// Adds Isotherm to the text of a file. A refusal prints the pieces, where the owner can add them by hand.
pub(super) fn add_to(file: &Path, text: &str, request: &Request) -> anyhow::Result<ExtendedConfig> {
    let refusal = match add::add(text, request) {
        Ok(added) => return Ok(added),
        Err(refusal) => refusal,
    };
    if let Some(pieces) = refusal.pieces() {
        output::print(pieces)?;
    }
    bail!("{}: {refusal}", file.display());
}

/// Report of the changes, and of what the service's configuration lacks.
pub(super) fn report(file: &Path, added: &ExtendedConfig, service_section: &str) -> String {
    let mut lines = vec![format!("{}: Isotherm is added", file.display())];
    for change in &added.changes {
        lines.push(format!("  line {}: {}", change.line, change.text));
    }
    lines.extend(added.notes.iter().map(|note| format!("  {note}")));
    if !service_section.is_empty() {
        lines.push(format!("The service's configuration:\n\n{service_section}"));
    }
    lines.join("\n")
}

/// Reads a configuration.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let length = fs::metadata(file)
        .with_context(|| format!("cannot read {name}"))?
        .len();
    if length > FILE_BYTES_MAX {
        bail!("{name} is larger than {FILE_BYTES_MAX} bytes");
    }
    fs::read_to_string(file).with_context(|| format!("cannot read {name}"))
}

/// Writes a configuration: to a file by way of a new one beside it, so that Envoy never reads half of it, or to the standard
/// output.
pub(super) fn write(file: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(file) = file else {
        return output::print(text);
    };
    let name = file.display();
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let written = fs::File::create(&beside)
        .and_then(|mut new| new.write_all(text.as_bytes()))
        .and_then(|()| match fs::metadata(file) {
            Ok(old) => fs::set_permissions(&beside, old.permissions()),
            Err(_) => Ok(()),
        })
        .and_then(|()| fs::rename(&beside, file));
    written.with_context(|| format!("cannot write {name}"))
}
