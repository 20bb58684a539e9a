//! The clusters, the node, and the removal of internal headers on the way to shadows.

use crate::envoy::{self, HTTP_OPTIONS, Route};
use crate::shipped::MissingPiece;
use crate::yaml::Node;

use super::{Addition, hint};

impl<'a> Addition<'a> {
    /// Adds the clusters of the service and of the pools.
    pub(super) fn edit_clusters(&mut self, routes: &[Route<'a>]) -> Result<(), MissingPiece> {
        let old = hint::old_clusters(self.root, routes);
        let mut clusters = Vec::new();
        for pool in &self.setup.pools {
            clusters.push(self.shipped.pool_cluster(pool, old.first().copied())?);
        }
        clusters.push(self.shipped.service_cluster(&self.setup)?);
        let names: Vec<&str> = clusters
            .iter()
            .filter_map(|cluster| cluster.str_at("name"))
            .collect();
        let text = format!("clusters {} are new", names.join(", "));
        let resources = self.root.get("static_resources");
        match resources.and_then(|resources| resources.get("clusters")) {
            Some(list) => {
                self.edits
                    .insert_items(list, list.items().len(), &clusters, "");
                let line = list
                    .items()
                    .last()
                    .map_or(list.line, |cluster| cluster.line);
                self.change(line, text);
            }
            None => {
                if let Some(resources) = resources {
                    self.edits.set(resources, "clusters", &Node::list(clusters));
                    self.change(resources.line, text);
                }
            }
        }
        Ok(())
    }

    /// Envoy asks the service for endpoints only with the id and the cluster of its node.
    pub(super) fn edit_node(&mut self) {
        let shipped = self.shipped.root().get("node").cloned();
        let (Some(shipped), own) = (shipped, self.root.get("node")) else {
            return;
        };
        let Some(own) = own else {
            self.edits.set(self.root, "node", &shipped);
            self.change(
                1,
                "node: Envoy's name for the service, which delivers endpoints",
            );
            return;
        };
        for name in ["id", "cluster"] {
            if let (None, Some(value)) = (own.get(name), shipped.get(name)) {
                self.edits.set(own, name, value);
                self.change(own.line, format!("node.{name}: the service needs it"));
            }
        }
    }

    /// The clusters of shadows lose the internal headers as the pool's does.
    pub(super) fn edit_mirrors(&mut self, route: &Route<'a>) -> Result<(), MissingPiece> {
        let policies = route.inherited("request_mirror_policies");
        let names = policies.into_iter().flat_map(Node::items);
        for name in names.filter_map(|policy| policy.str_at("cluster")) {
            let Some(cluster) = envoy::cluster(self.root, name) else {
                continue;
            };
            if crate::check::removes_internal_headers(cluster) {
                continue;
            }
            let filters = self.shipped.upstream_filters()?;
            let options = cluster.get("typed_extension_protocol_options");
            let own = options.and_then(|options| options.get(HTTP_OPTIONS));
            match (options, own.and_then(|own| own.get("http_filters")), own) {
                (_, Some(list), _) => {
                    let first = filters.items().first().cloned();
                    self.edits.insert_items(list, 0, &Vec::from_iter(first), "");
                }
                (_, None, Some(own)) => self.edits.add_member(own, "http_filters", &filters),
                (options, None, None) => {
                    let own = protocol(cluster, &filters);
                    match options {
                        Some(options) => self.edits.add_member(options, HTTP_OPTIONS, &own),
                        None => {
                            let options = Node::map([(HTTP_OPTIONS, own)]);
                            self.edits
                                .set(cluster, "typed_extension_protocol_options", &options);
                        }
                    }
                }
            }
            self.change(
                cluster.line,
                format!("shadow {name}: internal headers stay in Envoy"),
            );
        }
        Ok(())
    }
}

/// The protocol options of a cluster without any.
fn protocol(cluster: &Node, filters: &Node) -> Node {
    let version = match cluster.get("http2_protocol_options") {
        Some(own) => ("http2_protocol_options", own.clone()),
        None => ("http_protocol_options", Node::map([])),
    };
    let message = format!("type.googleapis.com/{HTTP_OPTIONS}");
    Node::map([
        ("@type", Node::quoted(&message)),
        ("explicit_http_config", Node::map([version])),
        ("http_filters", filters.clone()),
    ])
}
