//! The report of `isotherm init`, with the commands that come next.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use isotherm_envoy_config::pool::Setup;
use serde_json::json;
use shell_words::{join, quote};

use super::Init;
use super::files::Files;
use crate::cli::address::reachable;

/// Envoy's address for clients in the shipped configuration.
const CLIENTS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_000);

/// Says what the files hold and which commands start everything.
pub(super) fn steps(
    args: &Init,
    setup: &Setup,
    files: &Files,
    envoy_text: &str,
    replicas: usize,
) -> String {
    let program = std::env::args().next();
    let program = program.as_deref().unwrap_or("isotherm");
    let service = files.service.display().to_string();
    let envoy = files.envoy.display().to_string();
    let models = setup.pools.iter().flat_map(|pool| &pool.models);
    let models: Vec<&str> = models.map(String::as_str).collect();
    let noun = if replicas == 1 { "replica" } else { "replicas" };
    let mut text = format!(
        "{service}: {} with {replicas} {noun}\n{envoy}: Envoy with Isotherm, {} lines\n\nNext, each in a terminal of its own:\n\n",
        models.join(", "),
        envoy_text.lines().count()
    );
    let mut commands = vec![
        join([program, "serve", "--config", &service]),
        join(["envoy", "--config-path", &envoy]),
    ];
    match &*args.route {
        [] => {
            let model = models.first().copied().unwrap_or("*");
            commands.push(request(args.listen.unwrap_or(CLIENTS), model));
        }
        _ => commands.push("# send a request to your Envoy as before".to_owned()),
    }
    let mut doctor = vec![program.to_owned(), "doctor".to_owned()];
    if args.admin.is_some() {
        doctor.extend(["--config".to_owned(), service]);
    }
    if let Some(address) = args.envoy_admin {
        doctor.extend(["--envoy-admin".to_owned(), address.to_string()]);
    }
    commands.push(join(doctor));
    for command in commands {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {command}");
    }
    text
}

/// A request to the new Envoy, which listens at `listen`.
pub(in crate::cli) fn request(listen: SocketAddr, model: &str) -> String {
    let address = reachable(listen);
    let model = if model == "*" { "any" } else { model };
    let body = json!({
        "model": model,
        "max_tokens": 20,
        "messages": [{ "role": "user", "content": "Hello" }],
    });
    format!(
        "curl http://{address}/v1/chat/completions -H 'content-type: application/json' -d {}",
        quote(&body.to_string())
    )
}
