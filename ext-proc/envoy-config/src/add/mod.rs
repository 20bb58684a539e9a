//! `isotherm envoy add`: Isotherm in a configuration that its owner wrote.
//!
//! [`select`] finds the routes, [`refuse`] says why there are none or why the file does not qualify, [`route`] turns a route into
//! one of Isotherm's, [`chain`] adds the filters to its listener, [`cluster`] the clusters and the node, and [`pieces`] holds the pieces.

mod chain;
mod cluster;
mod hint;
mod pieces;
mod refuse;
mod route;
mod select;
#[cfg(test)]
mod tests;

pub use refuse::Refusal;

use refuse::Cause;

use crate::check::{self, Severity};
use crate::envoy::{self, Manager, Route};
use crate::pool::Setup;
use crate::published::{PublishedPaths, published};
use crate::shipped::{MissingPiece, ShippedFile};
use crate::yaml::{Edits, Node, parse};

/// Pieces to add, and the routes that get them.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Pools, service and module.
    pub setup: Setup,
    /// The prefix, path, expression or name of each route.
    pub routes: Vec<String>,
    /// Only the routes of this virtual host.
    pub virtual_host: Option<String>,
    /// Only the routes that lead to this cluster.
    pub to: Option<String>,
}

/// A configuration with Isotherm.
#[derive(Debug)]
pub struct ExtendedConfig {
    /// Text of the new file.
    pub text: String,
    /// Changes, in the order of the file.
    pub changes: Vec<Change>,
    /// Advice to the owner.
    pub notes: Vec<String>,
    /// The sections of the service's configuration: its paths, and `pools` with the endpoints of the clusters that the routes led to.
    pub service_section: String,
    /// The paths of the service's configuration; empty where its defaults are enough.
    pub service_paths: String,
    /// Endpoints of the clusters that the routes led to, as `host:port`.
    pub endpoints: Vec<String>,
}

/// A change of the owner's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Line of the owner's file.
    pub line: usize,
    /// Description of the change, with its reason.
    pub text: String,
}

/// The state of one addition.
struct Addition<'a> {
    shipped: ShippedFile,
    setup: Setup,
    root: &'a Node,
    edits: Edits<'a>,
    changes: Vec<Change>,
    notes: Vec<String>,
}

/// Adds Isotherm to the routes of a configuration.
pub fn add(text: &str, request: &Request) -> Result<ExtendedConfig, Refusal> {
    add_to(text, request).map_err(Refusal::from)
}

fn add_to(text: &str, request: &Request) -> Result<ExtendedConfig, Cause> {
    let root = parse(text)?;
    let shipped = ShippedFile::read()?;
    let setup = shipped.complete(&request.setup)?;
    refuse::if_unsuitable(&root, &shipped, &setup)?;
    let managers = envoy::managers(&root);
    let mut notes = Vec::new();
    let selected = select::routes(&managers, request, &mut notes)
        .map_err(|reason| refuse::explain(reason, &managers, &shipped, &setup))?;
    let mut addition = Addition {
        shipped,
        setup,
        root: &root,
        edits: Edits::new(text),
        changes: Vec::new(),
        notes,
    };
    let paths = published(selected.iter().map(|(_, route)| route));
    addition.edit(&managers, &selected, &paths)?;
    let targets: Vec<Route<'_>> = selected.iter().map(|(_, route)| *route).collect();
    let old = hint::old_clusters(&root, &targets);
    let endpoints: Vec<String> = old
        .iter()
        .flat_map(|cluster| envoy::endpoints(cluster))
        .collect();
    let service_paths = paths.of_service();
    let service_section = format!(
        "{service_paths}{}",
        hint::service_section(&addition.setup, &endpoints, &targets)
    );
    let Addition {
        edits,
        mut changes,
        mut notes,
        ..
    } = addition;
    changes.sort_by_key(|change| change.line);
    notes.extend(hint::notes(&old));
    let edited = edits.apply().map_err(Cause::Overlap)?;
    verify(&root, &edited, &targets)?;
    Ok(ExtendedConfig {
        text: edited,
        changes,
        notes,
        service_section,
        service_paths,
        endpoints,
    })
}

/// The section `pools` of the service's configuration, for replicas as `host:port`.
pub fn service_section(setup: &Setup, replicas: &[String]) -> Result<String, MissingPiece> {
    let setup = ShippedFile::read()?.complete(setup)?;
    Ok(hint::section(&setup, replicas))
}

/// Whether a route is among others, by its place in the text.
fn is_among(route: &Route<'_>, others: &[Route<'_>]) -> bool {
    others.iter().any(|other| {
        other.node.site == route.node.site && other.host.node.site == route.host.node.site
    })
}

impl<'a> Addition<'a> {
    fn edit(
        &mut self,
        managers: &[Manager<'a>],
        selected: &[(Manager<'a>, Route<'a>)],
        paths: &PublishedPaths,
    ) -> Result<(), Cause> {
        for (manager, route) in selected {
            self.edit_route(manager, route)?;
        }
        let has_target = |manager: &&Manager<'a>| {
            selected
                .iter()
                .any(|(of_target, _)| of_target.node.site == manager.node.site)
        };
        let targets: Vec<Manager<'a>> = managers.iter().filter(has_target).copied().collect();
        self.edit_chains(&targets, paths)?;
        let routes: Vec<Route<'a>> = selected.iter().map(|(_, route)| *route).collect();
        self.edit_clusters(&routes)?;
        self.edit_node();
        Ok(())
    }

    fn change(&mut self, line: usize, text: impl Into<String>) {
        let text = text.into();
        let change = Change { line, text };
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }
}

/// Parses the result: other routes must be what they were, and the check must find no error.
fn verify(before: &Node, edited: &str, targets: &[Route<'_>]) -> Result<(), Cause> {
    let after = parse(edited).map_err(|error| Cause::Overlap(error.to_string()))?;
    let old = envoy::managers(before);
    let new = envoy::managers(&after);
    let old = old.iter().flat_map(Manager::routes);
    let mut new = new.iter().flat_map(Manager::routes);
    for route in old {
        let edited = new.next();
        let is_same = edited.is_some_and(|edited| edited.node == route.node);
        if !is_same && !is_among(&route, targets) {
            return Err(Cause::SharedAnchor(route.describe()));
        }
    }
    let findings = check::check_tree(&after).into_iter();
    let errors: Vec<String> = findings
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| finding.to_string())
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(Cause::Hazards(errors.join("\n")))
}
