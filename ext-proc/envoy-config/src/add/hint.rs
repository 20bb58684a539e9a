//! The owner's work beside the file: the replicas of the service's pools.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::envoy::{self, Route};
use crate::pool::Setup;
use crate::yaml::Node;

/// The clusters that routes led to, each once.
pub(super) fn old_clusters<'a>(root: &'a Node, routes: &[Route<'_>]) -> Vec<&'a Node> {
    let mut names: Vec<&str> = Vec::new();
    for name in routes.iter().flat_map(Route::clusters) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
        .into_iter()
        .filter_map(|name| envoy::cluster(root, name))
        .collect()
}

/// The section `pools` of the service's configuration, with the endpoints of the clusters that routes led to.
pub(super) fn service_section(setup: &Setup, replicas: &[String], routes: &[Route<'_>]) -> String {
    let mut text = section(setup, replicas);
    if replicas.is_empty() {
        let names: Vec<&str> = routes.iter().flat_map(Route::clusters).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "# The file does not list the endpoints of {}. Name them under `static`, or name their source.",
            names.join(", ")
        );
    }
    text
}

/// The section `pools` for these replicas. With several pools, the owner divides the replicas among them.
pub(super) fn section(setup: &Setup, replicas: &[String]) -> String {
    let mut text = String::from("pools:\n");
    for (index, pool) in setup.pools.iter().enumerate() {
        let mut models = pool.models.iter();
        let model = models.next().map_or("*", String::as_str);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  - model: \"{model}\"\n    cluster: \"{}\"",
            pool.cluster
        );
        let aliases: Vec<String> = models.map(|alias| format!("\"{alias}\"")).collect();
        if !aliases.is_empty() {
            let _ = writeln!(text, "    aliases: [{}]", aliases.join(", "));
        }
        let own: &[String] = if index == 0 { replicas } else { &[] };
        let _ = writeln!(text, "    replicas:");
        sources(&mut text, own);
    }
    text
}

/// The sources of a pool's replicas: addresses, and a name that DNS resolves.
fn sources(text: &mut String, replicas: &[String]) {
    let is_address = |replica: &&String| replica.parse::<SocketAddr>().is_ok();
    let (addresses, names): (Vec<&String>, Vec<&String>) = replicas.iter().partition(is_address);
    let names = names.iter().filter_map(|replica| replica.rsplit_once(':'));
    for (index, (name, port)) in names.enumerate() {
        let lead = if index == 0 {
            "      "
        } else {
            "      # Another pool, or one DNS name for all: "
        };
        let _ = writeln!(text, "{lead}dns: {{ name: \"{name}\", port: {port} }}");
    }
    if !addresses.is_empty() || replicas.is_empty() {
        let addresses: Vec<String> = addresses
            .iter()
            .map(|address| format!("\"{address}\""))
            .collect();
        let _ = writeln!(text, "      static: [{}]", addresses.join(", "));
    }
}

/// Notes about clusters that stay in the file without a use.
pub(super) fn notes(old: &[&Node]) -> Vec<String> {
    let name = |cluster: &&Node| {
        let name = cluster.str_at("name").unwrap_or_default();
        format!(
            "Cluster {name} (line {}) stays. Isotherm's routes do not use it: name its endpoints as replicas of the pool.",
            cluster.line
        )
    };
    old.iter().map(name).collect()
}
