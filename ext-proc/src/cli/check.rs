//! `isotherm check`.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::output;
use super::table;
use crate::config::{self, Config, RegionConfig};
use crate::peering::Credentials;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) fn run(args: &Check) -> anyhow::Result<ExitCode> {
    match config::load(&args.config) {
        Ok(config) => {
            let file = args.config.display();
            output::print(&format!("{file}: no mistakes\n\n{}\n", summary(&config)))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => {
            eprintln!("{errors}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Summary of a valid configuration.
fn summary(config: &Config) -> String {
    let listen: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "listens on     {}", listen.join(", "));
    let _ = writeln!(text, "admin          {}", config.admin.listen);
    let changes = match &config.admin.token_file {
        Some(file) => match std::fs::File::open(file) {
            Ok(_) => format!("with the token in {}", file.display()),
            Err(error) => format!("refused: {} cannot be read: {error}", file.display()),
        },
        None => "refused: no admin.token_file".to_owned(),
    };
    let _ = writeln!(text, "admin changes  {changes}\n");
    let rows: Vec<_> = config
        .pools
        .iter()
        .map(|pool| {
            let mut replicas = format!("{} fixed", pool.sources.fixed.len());
            if let Some(dns) = &pool.sources.dns {
                let _ = write!(replicas, ", {}:{}", dns.name, dns.port);
            }
            [
                pool.model.clone(),
                pool.cluster.clone(),
                pool.router.policy.to_string(),
                format!("{:?}", pool.router.push).to_lowercase(),
                replicas,
            ]
        })
        .collect();
    if let Some(region) = &config.region {
        let _ = writeln!(text, "{}", regions(region));
    }
    let header = ["MODEL", "CLUSTER", "POLICY", "PUSH", "REPLICAS"];
    text.push_str(&table::render(header, rows));
    text
}

/// Summary of the section `region`.
fn regions(region: &RegionConfig) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "region         {}, reached at {}",
        region.name, region.listen
    );
    let links = match &region.tls {
        None => "without TLS, on this machine only".to_owned(),
        Some(files) => match Credentials::load(&region.name, files.clone()) {
            Ok(_) => format!("mutual TLS, with {}", files.certificate.display()),
            Err(error) => format!("refused: {error}"),
        },
    };
    let _ = writeln!(text, "links          {links}");
    let adopts = if region.adopt {
        "from regions that died"
    } else {
        "nothing: adopt is false"
    };
    let _ = writeln!(text, "adopts         {adopts}");
    let memory = match &region.state_file {
        Some(file) => format!("in {}", file.display()),
        None => "none: a restart forgets whose replicas are where".to_owned(),
    };
    let _ = writeln!(text, "memory         {memory}");
    if !region.siblings.is_empty() {
        let siblings: Vec<_> = region.siblings.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "siblings       {}", siblings.join(", "));
    }
    let rows: Vec<_> = region
        .peers
        .iter()
        .map(|peer| {
            [
                peer.name.clone(),
                peer.address.to_string(),
                peer.cluster.clone(),
            ]
        })
        .collect();
    let _ = write!(
        text,
        "\n{}",
        table::render(["PEER", "ADDRESS", "CLUSTER"], rows)
    );
    text
}
