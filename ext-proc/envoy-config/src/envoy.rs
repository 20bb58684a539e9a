//! The parts of Envoy's configuration: connection managers, virtual hosts, routes, filters, clusters.

use crate::yaml::{Member, Node};

const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
pub(crate) const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
pub(crate) const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
const ROUTE: &str = "envoy.config.route.v3.Route";

/// Prefix of the names of Isotherm's filters.
pub(crate) const FILTER_PREFIX: &str = "isotherm.";
/// The name of the filter's instance that reads requests.
pub(crate) const REQUEST_FILTER: &str = "isotherm.request";
/// The header that names the pool's cluster.
pub(crate) const CLUSTER_HEADER: &str = "x-isotherm-cluster";
/// The name of the service's cluster.
pub(crate) const SERVICE_CLUSTER: &str = "isotherm";

/// An HTTP connection manager of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manager<'a> {
    pub(crate) node: &'a Node,
    /// Name of its listener.
    pub(crate) listener: &'a str,
}

/// A virtual host, and the route configuration that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtualHost<'a> {
    pub(crate) node: &'a Node,
    pub(crate) table: &'a Node,
}

/// A route of a virtual host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route<'a> {
    pub(crate) node: &'a Node,
    pub(crate) host: VirtualHost<'a>,
}

/// Every connection manager of a document, in the order of the text.
pub(crate) fn managers(root: &Node) -> Vec<Manager<'_>> {
    let mut listener = "";
    let mut found = Vec::new();
    for node in root.all() {
        if node.get("filter_chains").is_some() || node.get("default_filter_chain").is_some() {
            listener = node.str_at("name").unwrap_or("without a name");
        }
        if node.message() == Some(MANAGER) {
            found.push(Manager { node, listener });
        }
    }
    found
}

impl<'a> Manager<'a> {
    /// The HTTP filters, in their order.
    pub(crate) fn filters(&self) -> &'a [Node] {
        self.node.get("http_filters").map_or(&[], Node::items)
    }

    /// The route configurations that stand in the manager itself.
    pub(crate) fn tables(&self) -> Vec<&'a Node> {
        let scopes = self
            .node
            .items_at("scoped_routes.scoped_route_configurations_list.scoped_route_configurations")
            .filter_map(|scope| scope.get("route_configuration"));
        self.node
            .get("route_config")
            .into_iter()
            .chain(scopes)
            .collect()
    }

    /// Whether another source delivers the manager's routes.
    pub(crate) fn has_remote_routes(&self) -> bool {
        self.node.get("rds").is_some()
            || (self.node.get("scoped_routes").is_some() && self.tables().is_empty())
    }

    pub(crate) fn hosts(&self) -> Vec<VirtualHost<'a>> {
        let tables = self.tables().into_iter();
        tables.flat_map(hosts).collect()
    }

    pub(crate) fn routes(&self) -> Vec<Route<'a>> {
        self.hosts().iter().flat_map(VirtualHost::routes).collect()
    }

    /// Position of the first filter that is Isotherm's.
    pub(crate) fn first_of_isotherm(&self) -> Option<usize> {
        self.filters().iter().position(is_of_isotherm)
    }
}

fn hosts(table: &Node) -> impl Iterator<Item = VirtualHost<'_>> {
    let hosts = table.items_at("virtual_hosts");
    hosts.map(move |node| VirtualHost { node, table })
}

/// The virtual hosts of route configurations that stand alone: discovery files and configuration dumps.
pub(crate) fn remote_hosts(root: &Node) -> Vec<VirtualHost<'_>> {
    let is_table =
        |node: &&Node| node.message() == Some("envoy.config.route.v3.RouteConfiguration");
    let tables = root.all().into_iter().filter(is_table);
    tables.flat_map(hosts).collect()
}

impl<'a> VirtualHost<'a> {
    pub(crate) fn name(&self) -> &'a str {
        self.node.str_at("name").unwrap_or_default()
    }

    /// The routes of the list, and those of a matcher tree.
    pub(crate) fn routes(&self) -> Vec<Route<'a>> {
        let listed = self.node.items_at("routes");
        let matcher = self.node.get("matcher").into_iter().flat_map(Node::all);
        let matched = matcher.filter(|node| node.message() == Some(ROUTE));
        let host = *self;
        listed
            .chain(matched)
            .map(|node| Route { node, host })
            .collect()
    }
}

impl<'a> Route<'a> {
    /// The action that sends a request to a cluster.
    pub(crate) fn action(&self) -> Option<&'a Node> {
        self.node.get("route")
    }

    /// The path, the prefix or the expression that the route matches.
    pub(crate) fn specifier(&self) -> &'a str {
        self.specifier_member().map_or("", |(_, text)| text)
    }

    /// The kind of the match and its text.
    pub(crate) fn specifier_member(&self) -> Option<(&'static str, &'a str)> {
        let matched = self.node.get("match")?;
        let kinds = [
            ("prefix", "prefix"),
            ("path", "path"),
            ("path_separated_prefix", "path_separated_prefix"),
            ("safe_regex", "safe_regex.regex"),
            (
                "path_match_policy",
                "path_match_policy.typed_config.path_template",
            ),
        ];
        kinds
            .into_iter()
            .find_map(|(kind, path)| Some((kind, matched.str_at(path)?)))
    }

    /// Whether the route asks for more than a path.
    pub(crate) fn has_conditions(&self) -> bool {
        let matched = self.node.get("match").map_or(&[][..], Node::members);
        let paths = [
            "prefix",
            "path",
            "path_separated_prefix",
            "safe_regex",
            "path_match_policy",
            "case_sensitive",
        ];
        matched
            .iter()
            .any(|member| !paths.contains(&member.name.as_str()))
    }

    /// The member of the action that says which cluster: `cluster`, `weighted_clusters` and others.
    pub(crate) fn destination(&self) -> Option<&'a Member> {
        let names = [
            "cluster",
            "cluster_header",
            "weighted_clusters",
            "cluster_specifier_plugin",
            "inline_cluster_specifier_plugin",
        ];
        let action = self.action()?;
        names.into_iter().find_map(|name| action.member(name))
    }

    /// The clusters that the route leads to.
    pub(crate) fn clusters(&self) -> Vec<&'a str> {
        let action = self.action();
        let single = action.and_then(|action| action.str_at("cluster"));
        let weighted = action
            .into_iter()
            .flat_map(|action| action.items_at("weighted_clusters.clusters"))
            .filter_map(|cluster| cluster.str_at("name"));
        single.into_iter().chain(weighted).collect()
    }

    /// Whether the route asks Isotherm for the cluster, or enables its filter.
    pub(crate) fn is_of_isotherm(&self, pools: &[&str]) -> bool {
        let header = self
            .action()
            .and_then(|action| action.str_at("cluster_header"));
        header == Some(CLUSTER_HEADER) || self.clusters().iter().any(|name| pools.contains(name))
    }

    /// A setting of the route, else of its virtual host, else of its route configuration.
    pub(crate) fn inherited(&self, name: &str) -> Option<&'a Node> {
        let action = self.action().and_then(|action| action.get(name));
        action
            .or_else(|| self.node.get(name))
            .or_else(|| self.host.node.get(name))
            .or_else(|| self.host.table.get(name))
    }

    /// A filter's own configuration for this route.
    pub(crate) fn of_filter(&self, name: &str) -> Option<&'a Node> {
        let levels = [self.node, self.host.node, self.host.table];
        levels
            .into_iter()
            .find_map(|level| Some(&own_member(level.get("typed_per_filter_config")?, name)?.value))
    }

    /// Whether the route switches a filter on or off; `None` where it says nothing.
    pub(crate) fn enables(&self, filter: &str) -> Option<bool> {
        let own = self.of_filter(filter)?;
        Some(!own.get("disabled").is_some_and(Node::is_true))
    }

    /// A text that names the route for the operator.
    pub(crate) fn describe(&self) -> String {
        let specifier = match self.specifier_member() {
            Some((kind, text)) => format!("{kind} {text}"),
            None => "a match of another kind".to_owned(),
        };
        let conditions = if self.has_conditions() {
            " and more conditions"
        } else {
            ""
        };
        let goal = match (self.clusters().as_slice(), self.destination()) {
            ([], Some(member)) => format!("by {}", member.name),
            ([], None) => "answered by Envoy itself".to_owned(),
            (clusters, _) => format!("to {}", clusters.join(", ")),
        };
        let name = self.node.str_at("name");
        let name = name.map_or_else(String::new, |name| format!(" (name: {name})"));
        format!(
            "line {}: {specifier}{conditions}, {goal}, virtual host {}{name}",
            self.node.line,
            self.host.name()
        )
    }
}

/// The member of this very name. A filter's name is no field of a message, so it has no other spelling.
fn own_member<'a>(map: &'a Node, name: &str) -> Option<&'a Member> {
    map.members().iter().find(|member| member.name == name)
}

/// Whether an HTTP filter is Isotherm's.
pub(crate) fn is_of_isotherm(filter: &Node) -> bool {
    filter
        .str_at("name")
        .is_some_and(|name| name.starts_with(FILTER_PREFIX))
}

/// The message of an HTTP filter's configuration; that of the wrapped filter inside of a matcher.
pub(crate) fn filter_message(filter: &Node) -> &str {
    let own = filter.get("typed_config");
    let message = own.and_then(Node::message).unwrap_or_default();
    if message.ends_with(".ExtensionWithMatcher") {
        let inner = own.and_then(|own| own.at("extension_config.typed_config"));
        return inner.and_then(Node::message).unwrap_or(message);
    }
    message
}

/// Whether an HTTP filter is the router.
pub(crate) fn is_router(filter: &Node) -> bool {
    filter_message(filter) == ROUTER
        || (filter.get("typed_config").is_none()
            && filter.str_at("name") == Some("envoy.filters.http.router"))
}

/// The clusters of a bootstrap.
pub(crate) fn clusters(root: &Node) -> impl Iterator<Item = &Node> {
    root.items_at("static_resources.clusters")
}

/// The cluster with this name.
pub(crate) fn cluster<'a>(root: &'a Node, name: &str) -> Option<&'a Node> {
    clusters(root).find(|cluster| cluster.str_at("name") == Some(name))
}

/// The endpoints that a cluster lists, as `host:port`.
pub(crate) fn endpoints(cluster: &Node) -> Vec<String> {
    let hosts = cluster
        .items_at("load_assignment.endpoints")
        .flat_map(|locality| locality.items_at("lb_endpoints"));
    hosts
        .filter_map(|host| {
            let address = host.at("endpoint.address.socket_address")?;
            let (name, port) = (address.str_at("address")?, address.str_at("port_value")?);
            Some(if name.contains(':') {
                format!("[{name}]:{port}")
            } else {
                format!("{name}:{port}")
            })
        })
        .collect()
}

/// A duration in milliseconds, as protobuf's JSON writes it: `0.5s`.
pub(crate) fn millis(text: &str) -> Option<f64> {
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    Some(seconds * 1e3)
}
