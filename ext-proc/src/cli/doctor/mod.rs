//! `isotherm doctor`: the missing link of an installation that runs.
//!
//! The command first asks everything at once: Envoy's admin interface ([`envoy`]), the service's ([`service`]) and each replica.
//! What they answer is an [`Installation`]. The rules are functions over it: [`envoy_rules`] compares Envoy with the service,
//! [`service_rules`] the service with its replicas. A link that does not answer is a fault itself, and the rules that need
//! its answer stay silent, so one fault has few lines.
//!
//! A state is an error. A counter that has grown since a process started is a warning, because it may be history, apart from
//! withheld bodies: only another configuration ends those.

mod envoy;
mod envoy_rules;
mod fault;
mod service;
mod service_rules;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Args;
use isotherm_envoy_config::check::Severity;

use self::envoy::EnvoyState;
use self::fault::Fault;
use self::service::ServiceState;
use super::address::parse_admin;
use super::client::{AdminClient, Connection};
use super::models::{self, ModelsAnswer};
use super::output::JsonFlag;
use crate::config::Address;
use crate::http_client::HttpClient;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Address of Envoy's admin interface.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9901", value_parser = parse_admin)]
    envoy_admin: Address,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    json: JsonFlag,
}

/// The answers of all parts. A part that does not answer is the fault that says so.
#[derive(Debug)]
struct Installation {
    envoy: Result<EnvoyState, Fault>,
    service: Result<ServiceState, Fault>,
    /// The answers of the replicas that the service names, or else those of Envoy's endpoints.
    replicas: Vec<(Address, ModelsAnswer)>,
}

pub(super) async fn run(args: Doctor) -> anyhow::Result<ExitCode> {
    let http = HttpClient::new();
    let client = AdminClient::new(&args.connection)?;
    let (envoy, service) =
        tokio::join!(envoy::ask(&http, &args.envoy_admin), service::ask(&client));
    let addresses = match (&service, &envoy) {
        (Ok(service), _) => service.addresses(),
        (Err(_), Ok(envoy)) => envoy.addresses(),
        (Err(_), Err(_)) => Vec::new(),
    };
    let answers = models::ask_all(&http, &addresses).await;
    let installation = Installation {
        envoy,
        service,
        replicas: addresses.into_iter().zip(answers).collect(),
    };
    let faults = faults(&installation);
    args.json.print(&faults, |faults| render(faults))?;
    let has_error = faults.iter().any(|fault| fault.severity == Severity::Error);
    Ok(match has_error {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Every fault, in the order of a request's way: Envoy, the filter, the service, the replicas.
fn faults(installation: &Installation) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(installation.envoy.as_ref().err().cloned());
    faults.extend(installation.service.as_ref().err().cloned());
    faults.extend(envoy_rules::faults(installation));
    faults.extend(service_rules::faults(installation));
    faults
}

fn render(faults: &[Fault]) -> String {
    if faults.is_empty() {
        return "no known faults\n".to_owned();
    }
    faults.iter().map(|fault| format!("{fault}\n")).collect()
}
