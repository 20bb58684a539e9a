//! Rules of the bootstrap: the node, and the cluster of the service.

use crate::envoy::{self, SERVICE_CLUSTER};
use crate::yaml::Node;

use super::Mistake;

/// The findings of all files together, each with the index of its tree.
pub(super) fn findings(roots: &[&Node]) -> Vec<(Mistake, usize)> {
    let is_bootstrap = |root: &&Node| {
        ["static_resources", "dynamic_resources", "admin"]
            .iter()
            .any(|name| root.get(name).is_some())
    };
    let Some(at) = roots.iter().position(is_bootstrap) else {
        return Vec::new();
    };
    let uses_isotherm = roots.iter().any(|root| {
        let mut managers = envoy::managers(root).into_iter();
        managers.any(|manager| manager.first_of_isotherm().is_some())
    });
    let bootstrap = roots.get(at).copied();
    let mut found = Vec::new();
    if let (true, Some(bootstrap)) = (uses_isotherm, bootstrap) {
        found.extend(no_node(bootstrap).map(|finding| (finding, at)));
        found.extend(not_static(bootstrap, roots, at));
    } else if let (false, Some(bootstrap)) = (uses_isotherm, bootstrap) {
        let is_complete = bootstrap.get("dynamic_resources").is_none();
        if is_complete {
            let finding = Mistake::error(
                "no-isotherm",
                1,
                "no listener has Isotherm's filters",
                "`isotherm envoy add --route PREFIX FILE` adds them",
            );
            found.push((finding, at));
        }
    }
    found
}

fn no_node(bootstrap: &Node) -> Option<Mistake> {
    let has = |name: &str| {
        let value = bootstrap.str_at(&format!("node.{name}"));
        value.is_some_and(|text| !text.is_empty())
    };
    let missing = ["id", "cluster"].into_iter().find(|name| !has(name))?;
    Some(Mistake::error(
        "no-node",
        bootstrap.member("node").map_or(1, |member| member.line),
        format!(
            "`node.{missing}` is missing: Envoy does not start, because it must tell the service which Envoy it is"
        ),
        "add `node: { id: NAME, cluster: NAME }` at the top of the bootstrap, or start Envoy with --service-node and \
         --service-cluster",
    ))
}

/// The service's cluster in a discovery file only: Envoy then refuses the pool's cluster.
fn not_static(bootstrap: &Node, roots: &[&Node], at: usize) -> Option<(Mistake, usize)> {
    if envoy::cluster(bootstrap, SERVICE_CLUSTER).is_some() {
        return None;
    }
    let remedy = "write the cluster `isotherm` into `static_resources.clusters` of the bootstrap; the pools' clusters may stay";
    for (at, root) in roots.iter().enumerate() {
        let mut resources = root.items_at("resources");
        let own = resources.find(|resource| {
            resource.str_at("name") == Some(SERVICE_CLUSTER)
                && resource.get("connect_timeout").is_some()
        });
        if let Some(own) = own {
            let hazard = "the service's cluster comes by discovery: Envoy refuses the pool's cluster and opens no listener (must \
                          have a statically defined non-EDS cluster)";
            return Some((
                Mistake::error("service-not-static", own.line, hazard, remedy),
                at,
            ));
        }
    }
    let hazard = "the bootstrap has no cluster `isotherm`, which the filters ask and from which the pool gets its endpoints";
    Some((Mistake::error("service-not-static", 1, hazard, remedy), at))
}
