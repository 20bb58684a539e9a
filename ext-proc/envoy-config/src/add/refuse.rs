//! Why a configuration cannot take Isotherm, and what its owner can do.

use crate::envoy::{self, Manager, SERVICE_CLUSTER};
use crate::pool::Setup;
use crate::shipped::{MissingPiece, ShippedFile};
use crate::yaml::{Node, ParseError};

use super::pieces::pieces;
use super::select::Reason;

/// A configuration that stays as it is: the message says why, and what its owner can do.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Refusal(#[from] Cause);

#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    #[error("the file is no YAML or JSON: {0}")]
    Syntax(#[from] ParseError),
    #[error(transparent)]
    MissingPiece(#[from] MissingPiece),
    #[error(
        "line {line}: the configuration has Isotherm already ({what}). `isotherm envoy check` examines it."
    )]
    HasIsotherm { line: usize, what: String },
    #[error(
        "line {line}: a cluster `{name}` exists. Name the pool's cluster otherwise: `--cluster NAME`, or `pools[].cluster` of the \
         service's configuration."
    )]
    ClusterExists { line: usize, name: String },
    #[error("no route `{name}`. These routes exist:\n{routes}")]
    UnknownRoute { name: String, routes: String },
    #[error(
        "route `{name}` leads to no cluster: Envoy answers it itself. These routes exist:\n{routes}"
    )]
    NoCluster { name: String, routes: String },
    #[error(
        "several routes `{name}` lead to different clusters. `--virtual-host NAME` or `--to CLUSTER` says which:\n{routes}"
    )]
    Ambiguous { name: String, routes: String },
    /// The pieces follow: each belongs elsewhere.
    #[error("{reason} The standard output has the pieces, each with the place where it belongs.")]
    Elsewhere { reason: String, pieces: String },
    #[error(
        "line {line}: the weighted clusters have `{name}` of their own, and not all the same. Move it to the route, or route by a \
         header instead of by weight."
    )]
    Weights { line: usize, name: &'static str },
    #[error(
        "line {line}: the chain has no router as its last filter. Add `envoy.filters.http.router`, or name a route of another listener."
    )]
    NoRouter { line: usize },
    #[error(
        "an anchor that a named route uses is used by another route as well: {0}. Write the anchored value out at the named route."
    )]
    SharedAnchor(String),
    #[error(
        "the edits do not fit together ({0}). Write the anchored values of the named routes out."
    )]
    Overlap(String),
    #[error("the result would not be right. Mend these first:\n{0}")]
    Hazards(String),
}

impl Refusal {
    /// The pieces, where the file is not their place.
    #[must_use]
    pub fn pieces(&self) -> Option<&str> {
        match &self.0 {
            Cause::Elsewhere { pieces, .. } => Some(pieces),
            _ => None,
        }
    }
}

/// Refuses a configuration that has Isotherm, or a cluster of a pool's name, or no listener of its own.
pub(super) fn if_unsuitable(
    root: &Node,
    shipped: &ShippedFile,
    setup: &Setup,
) -> Result<(), Cause> {
    for manager in envoy::managers(root) {
        if let Some(filter) = manager
            .filters()
            .iter()
            .find(|filter| envoy::is_of_isotherm(filter))
        {
            let what = filter.str_at("name").unwrap_or_default().to_owned();
            return Err(Cause::HasIsotherm {
                line: filter.line,
                what,
            });
        }
    }
    if let Some(cluster) = envoy::cluster(root, SERVICE_CLUSTER) {
        let what = format!("cluster {SERVICE_CLUSTER}");
        return Err(Cause::HasIsotherm {
            line: cluster.line,
            what,
        });
    }
    for pool in &setup.pools {
        if let Some(cluster) = envoy::cluster(root, &pool.cluster) {
            let (line, name) = (cluster.line, pool.cluster.clone());
            return Err(Cause::ClusterExists { line, name });
        }
    }
    let reason = if root.get("resources").is_some() {
        "This is a discovery file. Isotherm's clusters belong into the bootstrap, which names this file."
    } else if envoy::managers(root).is_empty() && root.get("dynamic_resources").is_some() {
        "The listeners come from `dynamic_resources`, so this file has no filters and no routes."
    } else if envoy::managers(root).is_empty() {
        "The file has no listener with an HTTP connection manager."
    } else {
        return Ok(());
    };
    let pieces = pieces(shipped, setup)?;
    Err(Cause::Elsewhere {
        reason: reason.to_owned(),
        pieces,
    })
}

/// Says why no route was selected.
pub(super) fn explain(
    reason: Reason,
    managers: &[Manager<'_>],
    shipped: &ShippedFile,
    setup: &Setup,
) -> Cause {
    let remote: Vec<&str> = managers
        .iter()
        .filter(|manager| manager.has_remote_routes())
        .map(|manager| manager.listener)
        .collect();
    if let (Reason::Unknown(name), false) = (&reason, remote.is_empty()) {
        let listeners = remote.join(", ");
        let reason = format!(
            "No route `{name}` stands in this file: a discovery service delivers the routes of listener {listeners}."
        );
        return match pieces(shipped, setup) {
            Ok(pieces) => Cause::Elsewhere { reason, pieces },
            Err(missing) => missing.into(),
        };
    }
    let all = managers.iter().flat_map(Manager::routes);
    let routes: Vec<String> = all.map(|route| format!("  {}", route.describe())).collect();
    let routes = routes.join("\n");
    match reason {
        Reason::Unknown(name) => Cause::UnknownRoute { name, routes },
        Reason::NoCluster(name) => Cause::NoCluster { name, routes },
        Reason::Ambiguous(name, routes) => {
            let routes = routes.join("\n");
            Cause::Ambiguous { name, routes }
        }
    }
}
