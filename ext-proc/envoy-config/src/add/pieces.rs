//! The pieces as an addition writes them: into the owner's file, or onto the standard output where the file is not their place.

use std::fmt::Write as _;

use crate::envoy::CLUSTER_HEADER;
use crate::pool::Setup;
use crate::published::PublishedPaths;
use crate::shipped::{MissingPiece, ShippedFile};
use crate::yaml::{Node, block};

const FILTER_CONFIG: &str = "type.googleapis.com/envoy.config.route.v3.FilterConfig";

/// The part of a route that enables these filters.
pub(super) fn enabled(filters: &[Node]) -> Node {
    let mut enabled = Node::map([]);
    let names = filters.iter().filter_map(|filter| filter.str_at("name"));
    for name in names {
        // Envoy requires `config`, also where it is empty.
        let on = Node::map([
            ("@type", Node::text(FILTER_CONFIG)),
            ("config", Node::map([])),
        ]);
        enabled.set(name, on);
    }
    enabled
}

/// The mutations in front of every filter. With several pools they name the default pool's cluster.
pub(super) fn early_mutations(
    shipped: &ShippedFile,
    setup: &Setup,
) -> Result<Vec<Node>, MissingPiece> {
    let mut mutations = shipped.early_removals()?;
    if let (Some(pool), true) = (setup.default_pool(), setup.pools.len() > 1) {
        let header = Node::map([
            ("key", Node::text(CLUSTER_HEADER)),
            ("value", Node::quoted(&pool.cluster)),
        ]);
        let append = Node::map([
            ("header", header),
            ("append_action", Node::text("OVERWRITE_IF_EXISTS_OR_ADD")),
        ]);
        mutations.push(Node::map([("append", append)]));
    }
    Ok(mutations)
}

/// The action of a route of Isotherm without settings of its own.
pub(super) fn action(shipped: &ShippedFile, setup: &Setup) -> Result<Node, MissingPiece> {
    let (name, value) = destination(setup);
    let mut action = Node::map([(name, value)]);
    action.set("timeout", Node::text("0s"));
    action.set("idle_timeout", shipped.silence()?);
    action.set("hash_policy", shipped.setting("hash_policy")?);
    action.set("retry_policy", shipped.setting("retry_policy")?);
    Ok(action)
}

/// The member that says which cluster. One pool needs no header.
pub(super) fn destination(setup: &Setup) -> (&'static str, Node) {
    match setup.pools.as_slice() {
        [pool] => ("cluster", Node::text(&pool.cluster)),
        _ => ("cluster_header", Node::text(CLUSTER_HEADER)),
    }
}

/// Every piece with the place where it belongs.
pub(super) fn pieces(shipped: &ShippedFile, setup: &Setup) -> Result<String, MissingPiece> {
    let mut clusters = vec![shipped.service_cluster(setup)?];
    for pool in &setup.pools {
        clusters.push(shipped.pool_cluster(pool, None)?);
    }
    let filters = shipped.filters(setup, &PublishedPaths::default())?;
    let route = Node::map([
        ("route", action(shipped, setup)?),
        (
            "request_body_buffer_limit",
            shipped.setting("request_body_buffer_limit")?,
        ),
        ("typed_per_filter_config", enabled(&filters)),
    ]);
    let mutations = early_mutations(shipped, setup)?;
    let early = Node::list(vec![shipped.early_extension(mutations)?]);
    let parts = [
        (
            "`static_resources.clusters` of the bootstrap. Not a CDS file: external processing and the decision stream need a \
             cluster of the bootstrap",
            Node::list(clusters),
        ),
        (
            "`http_filters` of the connection manager, directly in front of envoy.filters.http.router",
            Node::list(filters),
        ),
        (
            "`early_header_mutation_extensions` of the connection manager",
            early,
        ),
        (
            "each route of Isotherm, beside its `match`, with its own settings",
            route,
        ),
        (
            "the bootstrap, where it has no `node`",
            Node::map([(
                "node",
                shipped
                    .root()
                    .get("node")
                    .cloned()
                    .unwrap_or_else(|| Node::map([])),
            )]),
        ),
    ];
    let mut text = String::new();
    for (place, piece) in parts {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# In {place}:\n{}\n", block(&piece));
    }
    Ok(text)
}
