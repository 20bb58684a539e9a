//! The filters in a listener's chain, and its early header mutation.

use crate::envoy::{self, CLUSTER_HEADER, Manager};
use crate::published::PublishedPaths;
use crate::shipped::MissingPiece;
use crate::yaml::{Edits, Node, Style};

use super::Addition;
use super::pieces::early_mutations;
use super::refuse::Cause;

const COMMENT: &str = "Isotherm: envoy/standalone.yaml of its repository explains each part. Routes enable these filters.";

impl<'a> Addition<'a> {
    /// Adds the filters and the mutation to each listener. Further listeners refer to the first one's filters by anchors.
    pub(super) fn edit_chains(
        &mut self,
        managers: &[Manager<'a>],
        paths: &PublishedPaths,
    ) -> Result<(), Cause> {
        let mut chains: Vec<&Manager<'a>> = managers.iter().collect();
        chains.sort_by_key(|manager| {
            manager
                .node
                .get("http_filters")
                .map_or(0, |list| list.span.start)
        });
        chains.dedup_by_key(|manager| {
            manager
                .node
                .get("http_filters")
                .map_or(0, |list| list.span.start)
        });
        let is_shared = chains.len() > 1 && self.edits.style() == Style::Yaml;
        for (index, manager) in chains.into_iter().enumerate() {
            let router = manager.filters().iter().position(envoy::is_router);
            let is_last = router.is_some_and(|router| router + 1 == manager.filters().len());
            let (Some(list), Some(router), true) =
                (manager.node.get("http_filters"), router, is_last)
            else {
                return Err(Cause::NoRouter {
                    line: manager.node.line,
                });
            };
            let mut filters = self.shipped.filters(&self.setup, paths)?;
            let is_flow = list.is_flow();
            if is_shared && !is_flow {
                filters = filters
                    .into_iter()
                    .map(|filter| shared(filter, index == 0))
                    .collect();
            }
            self.edits.insert_items(list, router, &filters, COMMENT);
            let line = list
                .items()
                .get(router)
                .map_or(list.line, |router| router.line);
            self.change(
                line,
                format!(
                    "the filters stand in front of the router of listener {}, disabled",
                    manager.listener
                ),
            );
        }
        for manager in managers {
            self.edit_early_mutation(manager)?;
            self.edit_tables(manager);
        }
        Ok(())
    }

    fn edit_early_mutation(&mut self, manager: &Manager<'a>) -> Result<(), MissingPiece> {
        let mutations = early_mutations(&self.shipped, &self.setup)?;
        let extension = self.shipped.early_extension(mutations)?;
        match manager.node.get("early_header_mutation_extensions") {
            Some(own) => self
                .edits
                .insert_items(own, own.items().len(), &[extension], ""),
            None => {
                let extensions = Node::list(vec![extension]);
                self.edits.add_member(
                    manager.node,
                    "early_header_mutation_extensions",
                    &extensions,
                );
            }
        }
        self.change(
            manager.node.line,
            format!(
                "listener {}: clients cannot send internal headers",
                manager.listener
            ),
        );
        Ok(())
    }

    /// With several pools, no request leaves with the header that names a cluster.
    fn edit_tables(&mut self, manager: &Manager<'a>) {
        if self.setup.pools.len() < 2 {
            return;
        }
        let header = Node::text(CLUSTER_HEADER);
        for table in manager.tables() {
            match table.get("request_headers_to_remove") {
                Some(own) => {
                    self.edits.insert_items(
                        own,
                        own.items().len(),
                        std::slice::from_ref(&header),
                        "",
                    );
                }
                None => {
                    let headers = Node::list(vec![header.clone()]);
                    add_to_table(&mut self.edits, table, &headers);
                }
            }
            self.change(
                table.line,
                format!("no request leaves with the header {CLUSTER_HEADER}"),
            );
        }
    }
}

fn add_to_table(edits: &mut Edits<'_>, table: &Node, headers: &Node) {
    edits.add_member(table, "request_headers_to_remove", headers);
}

/// A filter with an anchor, or an alias of it.
fn shared(filter: Node, is_first: bool) -> Node {
    let name = filter.str_at("name").unwrap_or_default().replace('.', "_");
    filter.with_anchor(&name, is_first)
}
