//! Isotherm's parts of a configuration, beside its mistakes.

use crate::envoy::{self, REQUEST_FILTER};
use crate::yaml::{Node, ParseError, parse};

/// Isotherm's parts of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Whether a listener has Isotherm's filters.
    pub has_filter: bool,
    /// Names of the pools' clusters in Envoy and in the filter's configuration, each once.
    pub pools: Vec<String>,
    /// Cluster of the service, as the filter's decision stream names it.
    pub service_cluster: Option<String>,
}

/// Reads a bootstrap or a configuration dump.
pub fn summarize(text: &str) -> Result<Summary, ParseError> {
    let root = parse(text)?;
    let mut managers = envoy::managers(&root).into_iter();
    let has_filter = managers.any(|manager| manager.first_of_isotherm().is_some());
    let mut pools = super::pools(&[&root]);
    pools.sort();
    pools.dedup();
    Ok(Summary {
        has_filter,
        pools,
        service_cluster: service_cluster(&root),
    })
}

fn service_cluster(root: &Node) -> Option<String> {
    let nodes = root.all().into_iter();
    let filters = nodes.filter(|node| node.str_at("name") == Some(REQUEST_FILTER));
    let mut texts =
        filters.filter_map(|filter| filter.str_at("typed_config.config.configuration.value"));
    texts.find_map(|text| {
        let configuration = parse(text).ok()?;
        let name = configuration.str_at("decision_stream.cluster")?;
        Some(name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped::TEXT;

    #[test]
    fn the_shipped_file_has_every_part() {
        let summary = summarize(TEXT).unwrap();
        assert!(summary.has_filter);
        assert_eq!(summary.pools, ["llama"]);
        assert_eq!(summary.service_cluster.as_deref(), Some("isotherm"));
    }

    #[test]
    fn another_configuration_has_none() {
        let summary = summarize("static_resources: { listeners: [] }").unwrap();
        assert_eq!(summary, Summary::default());
    }
}
