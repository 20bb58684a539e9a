//! `isotherm check`: prints the mistakes of a configuration file, or its meaning; with `--mesh`, the known hazards of mesh
//! manifests.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::output::{self, JsonFlag};
use super::{mesh, warnings};
use crate::config::{
    self, AdminConfig, Config, ConfigErrors, PoolConfig, RegionConfig, peer_cluster,
};
use crate::peering::Credentials;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// Configuration file of the service; the same as --config.
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// Configuration file of the service.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["mesh", "file"])]
    config: Option<PathBuf>,
    /// Manifests of a mesh, or configuration dumps of Envoy, as YAML or JSON: every file of an installation at once.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "json")]
    mesh: Vec<PathBuf>,
    /// Fail on warnings, too.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    json: JsonFlag,
}

pub(super) fn run(args: &Check) -> anyhow::Result<ExitCode> {
    if let Some(config) = args.file.as_ref().or(args.config.as_ref()) {
        let code = check_configuration(config, args)?;
        if args.mesh.is_empty() || code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    mesh::run(&args.mesh)
}

fn check_configuration(file: &Path, args: &Check) -> anyhow::Result<ExitCode> {
    let loaded = config::load(file);
    let warnings = loaded.as_ref().map(warnings::find).unwrap_or_default();
    let is_good = loaded.is_ok() && (warnings.is_empty() || !args.strict);
    if args.json.json {
        let mistakes = loaded.as_ref().err().map(mistakes).unwrap_or_default();
        let report = json!({ "file": file, "mistakes": mistakes, "warnings": warnings });
        output::print(&format!("{report:#}\n"))?;
    } else {
        match &loaded {
            Ok(config) => {
                let file = file.display();
                output::print(&format!("{file}: no mistakes\n\n{}", summary(config)))?;
            }
            Err(errors) => {
                // A file that cannot be read has no lines to show.
                let text = std::fs::read_to_string(file).unwrap_or_default();
                output::note(&errors.annotated(&text));
            }
        }
        for warning in &warnings {
            output::note(&format!("warning: {warning}"));
        }
    }
    Ok(match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The mistakes of a file, each as an object.
fn mistakes(errors: &ConfigErrors) -> Vec<Value> {
    let errors = errors.errors.iter().map(|error| {
        json!({
            "line": error.location.map(|location| location.line),
            "column": error.location.map(|location| location.column),
            "option": error.option,
            "message": error.message,
        })
    });
    errors.collect()
}

/// Summarises a configuration.
fn summary(config: &Config) -> String {
    let mut lines = vec![
        ("listens on", join(&config.listen)),
        ("admin", config.admin.listen.to_string()),
        ("admin changes", admin_changes(&config.admin)),
    ];
    let pools = config.pools.iter().map(pool_row).collect();
    let header = ["MODEL", "CLUSTER", "POLICY", "PUSH", "REPLICAS"];
    let mut tables = vec![output::table(&header, pools)];
    if let Some(region) = &config.region {
        lines.extend(region_lines(region));
        let peers = region.peers.iter().map(|peer| {
            let address = peer.address.to_string();
            vec![peer.name.clone(), address, peer_cluster(&peer.name)]
        });
        let header = ["PEER", "ADDRESS", "CLUSTER"];
        tables.insert(0, output::table(&header, peers.collect()));
    }
    let mut text = String::new();
    for (name, value) in lines {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<15}{value}");
    }
    for table in tables {
        let _ = write!(text, "\n{table}");
    }
    text
}

fn join<T: ToString>(values: &[T]) -> String {
    let values = values.iter().map(ToString::to_string);
    Vec::from_iter(values).join(", ")
}

fn admin_changes(admin: &AdminConfig) -> String {
    let Some(file) = &admin.token_file else {
        return "rejected: no admin.token_file".to_owned();
    };
    match std::fs::File::open(file) {
        Ok(_) => format!("with the token in {}", file.display()),
        Err(error) => format!("rejected: {} cannot be read: {error}", file.display()),
    }
}

fn pool_row(pool: &PoolConfig) -> Vec<String> {
    let mut replicas = format!("{} static", pool.sources.fixed.len());
    if let Some(dns) = &pool.sources.dns {
        replicas.push_str(&format!(", {dns}"));
    }
    if let Some(kubernetes) = &pool.sources.kubernetes {
        replicas.push_str(&format!(", {kubernetes}"));
    }
    vec![
        pool.model.clone(),
        pool.cluster.clone(),
        pool.router.policy.to_string(),
        pool.router.push.to_string(),
        replicas,
    ]
}

fn region_lines(region: &RegionConfig) -> Vec<(&'static str, String)> {
    let links = match &region.tls {
        None => "without TLS, on this machine only".to_owned(),
        Some(files) => match Credentials::load(&region.name, files.clone()) {
            Ok(_) => format!("mutual TLS, with {}", files.certificate.display()),
            Err(error) => format!("not possible: {error}"),
        },
    };
    let store = region.store.as_ref();
    let leases = store.map(|store| match &store.kubernetes {
        Some(namespace) => format!("Lease objects of Kubernetes in {namespace}"),
        None => format!("etcd at {}", join(&store.etcd)),
    });
    let leases =
        leases.unwrap_or_else(|| "none: this region takes no replicas of others".to_owned());
    let mut lines = vec![
        ("region", format!("{}, at {}", region.name, region.listen)),
        ("links", links),
        ("leases", leases),
    ];
    if !region.siblings.is_empty() {
        lines.push(("siblings", join(&region.siblings)));
    }
    if let Some(service) = &region.siblings_service {
        lines.push(("siblings", format!("the pods of Service {service}")));
    }
    lines
}
