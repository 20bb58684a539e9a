//! The pieces of the shipped `envoy/standalone.yaml`, for the operator's pools.

use crate::envoy::{self, HTTP_OPTIONS, Manager, SERVICE_CLUSTER};
use crate::pool::{Pool, ServiceAddress, Setup};
use crate::published::PublishedPaths;
use crate::yaml::{Data, Node, Style, flow, parse};

/// The text of the shipped file.
pub(crate) const TEXT: &str = include_str!("../../../envoy/standalone.yaml");

/// The shipped file has no such piece: the file and this crate do not fit together.
#[derive(Clone, Debug, thiserror::Error)]
#[error("envoy/standalone.yaml, from which this program was built, has no {0}")]
pub struct MissingPiece(String);

impl MissingPiece {
    pub(crate) fn new(piece: impl Into<String>) -> Self {
        Self(piece.into())
    }
}

/// The shipped file as a tree.
#[derive(Debug)]
pub(crate) struct ShippedFile {
    root: Node,
}

impl ShippedFile {
    /// Reads the shipped file.
    pub(crate) fn read() -> Result<Self, MissingPiece> {
        let root = parse(TEXT).map_err(|error| MissingPiece(format!("valid YAML: {error}")))?;
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }

    /// The connection manager of the clients' listener.
    pub(crate) fn manager(&self) -> Result<Manager<'_>, MissingPiece> {
        let managers = envoy::managers(&self.root).into_iter();
        let mut own = managers.filter(|manager| manager.first_of_isotherm().is_some());
        own.next()
            .ok_or_else(|| missing("listener with Isotherm's filters"))
    }

    /// The text of the filter's own configuration.
    pub(crate) fn filter_configuration(&self) -> Result<&Node, MissingPiece> {
        let filters = self.manager()?.filters().iter();
        let mut request =
            filters.filter(|filter| filter.str_at("name") == Some(envoy::REQUEST_FILTER));
        let filter = request.next().and_then(|filter| filter.get("typed_config"));
        filter
            .and_then(|config| config.at("config.configuration.value"))
            .ok_or_else(|| missing("configuration of the filter isotherm.request"))
    }

    /// The example's pool.
    pub(crate) fn pool(&self) -> Result<Pool, MissingPiece> {
        let text = self.filter_configuration()?.as_str().unwrap_or_default();
        let configuration = parse(text).map_err(|error| MissingPiece(error.to_string()))?;
        let pool = configuration.items_at("pools").next();
        let pool = pool.ok_or_else(|| missing("pool in the filter's configuration"))?;
        let models = pool.items_at("models").filter_map(Node::as_str);
        Ok(Pool {
            models: models.map(str::to_owned).collect(),
            cluster: pool.str_at("cluster").unwrap_or_default().to_owned(),
        })
    }

    /// The setup with the example's pool where it has none.
    pub(crate) fn complete(&self, setup: &Setup) -> Result<Setup, MissingPiece> {
        let mut setup = setup.clone();
        if setup.pools.is_empty() {
            setup.pools = vec![self.pool()?];
        }
        Ok(setup)
    }

    /// Isotherm's HTTP filters, in their order. `paths` adds to the paths that clients may use.
    pub(crate) fn filters(
        &self,
        setup: &Setup,
        paths: &PublishedPaths,
    ) -> Result<Vec<Node>, MissingPiece> {
        let text = self.configuration_for(setup, paths)?;
        let own = self.manager()?.filters().iter();
        let mut filters: Vec<Node> = own
            .filter(|filter| envoy::is_of_isotherm(filter))
            .cloned()
            .collect();
        for filter in &mut filters {
            if let Some(path) = &setup.filter {
                set_module(filter, path);
            }
            if filter.str_at("name") == Some(envoy::REQUEST_FILTER)
                && let Some(value) = filter.at_mut("typed_config.config.configuration.value")
            {
                *value = Node::text(&text);
            }
        }
        Ok(filters)
    }

    /// The filter's own configuration. A member per line; the sources that are the filter's defaults are left out.
    fn configuration_for(
        &self,
        setup: &Setup,
        paths: &PublishedPaths,
    ) -> Result<String, MissingPiece> {
        let text = self.filter_configuration()?.as_str().unwrap_or_default();
        let mut own = parse(text).map_err(|error| MissingPiece(error.to_string()))?;
        for default in ["tier", "trusted_origin"] {
            own.remove(default);
        }
        own.set(
            "pools",
            Node::list(setup.pools.iter().filter_map(pool_of_filter).collect()),
        );
        if let Some(pool) = setup.default_pool() {
            own.set("default_cluster", Node::quoted(&pool.cluster));
        }
        if !paths.allowed.is_empty() {
            let allowed = paths.allowed.iter().map(|path| Node::quoted(path));
            own.set("paths", Node::list(allowed.collect()));
        }
        if !paths.apis.is_empty() {
            let apis = paths.apis.iter().map(|(path, api)| {
                Node::map([
                    ("path", Node::quoted(path)),
                    ("api", Node::quoted(api.name())),
                ])
            });
            own.set("apis", Node::list(apis.collect()));
        }
        let lines = own.members().iter().map(|member| {
            let value = flow(&member.value, Style::Json);
            format!("  \"{}\": {value}", member.name)
        });
        Ok(format!("{{\n{}\n}}\n", Vec::from_iter(lines).join(",\n")))
    }

    /// The cluster of the service.
    pub(crate) fn service_cluster(&self, setup: &Setup) -> Result<Node, MissingPiece> {
        let cluster = envoy::cluster(&self.root, SERVICE_CLUSTER);
        let mut cluster = cluster.ok_or_else(|| missing("cluster isotherm"))?.clone();
        if let Some(address) = &setup.service {
            let (kind, endpoint) = endpoint_of(address);
            cluster.set("type", Node::text(kind));
            let host = Node::map([("endpoint", Node::map([("address", endpoint)]))]);
            let hosts = Node::list(vec![Node::map([("lb_endpoints", Node::list(vec![host]))])]);
            let assignment = cluster.at_mut("load_assignment");
            let assignment = assignment.ok_or_else(|| missing("endpoint of the service"))?;
            assignment.set("endpoints", hosts);
        }
        Ok(cluster)
    }

    /// The cluster of the example's pool.
    pub(crate) fn example_cluster(&self) -> Result<&Node, MissingPiece> {
        let name = self.pool()?.cluster;
        envoy::cluster(&self.root, &name).ok_or_else(|| missing("cluster of the pool"))
    }

    /// The cluster of a pool. `old` is the cluster that the routes led to: its TLS and its version of HTTP stay.
    pub(crate) fn pool_cluster(
        &self,
        pool: &Pool,
        old: Option<&Node>,
    ) -> Result<Node, MissingPiece> {
        let mut cluster = self.example_cluster()?.clone();
        cluster.set("name", Node::text(&pool.cluster));
        let discovery = cluster.at_mut("eds_cluster_config");
        let discovery = discovery.ok_or_else(|| missing("eds_cluster_config of the pool"))?;
        discovery.set("service_name", Node::text(&pool.cluster));
        let Some(old) = old else {
            return Ok(cluster);
        };
        if let Some(socket) = old.get("transport_socket") {
            cluster.set("transport_socket", socket.clone());
        }
        let options = old.get("typed_extension_protocol_options");
        let options = options.and_then(|options| options.get(HTTP_OPTIONS));
        let upstream = options.and_then(|options| options.get("upstream_http_protocol_options"));
        if let Some(upstream) = upstream
            && let Some(own) = cluster.at_mut("typed_extension_protocol_options")
            && let Some(own) = own_options(own)
        {
            own.set("upstream_http_protocol_options", upstream.clone());
        }
        let names = [
            "explicit_http_config",
            "auto_config",
            "use_downstream_protocol_config",
        ];
        let found = names
            .into_iter()
            .find_map(|name| Some((name, options?.get(name)?)));
        let http2 = old.get("http2_protocol_options");
        let http2 = http2.map(|own| Node::map([("http2_protocol_options", own.clone())]));
        let found = found.map(|(name, own)| (name, own.clone()));
        if let Some((name, protocol)) = found.or(http2.map(|own| ("explicit_http_config", own)))
            && let Some(own) = cluster.at_mut("typed_extension_protocol_options")
            && let Some(own) = own_options(own)
        {
            own.remove("explicit_http_config");
            own.set(name, protocol);
        }
        Ok(cluster)
    }

    /// The removal of internal headers in front of every filter: the shipped early header mutation without the headers that
    /// steer engines, which the filter removes on its own routes.
    pub(crate) fn early_removals(&self) -> Result<Vec<Node>, MissingPiece> {
        let manager = self.manager()?.node;
        let mutations = manager
            .items_at("early_header_mutation_extensions")
            .flat_map(|extension| extension.items_at("typed_config.mutations"));
        let is_internal = |mutation: &&Node| {
            let removed = mutation.str_at("remove");
            let removed = removed.or(mutation.str_at("remove_on_match.key_matcher.prefix"));
            removed.is_some_and(|name| {
                name.starts_with("x-isotherm-") || name.starts_with("x-gateway-destination")
            })
        };
        let found: Vec<Node> = mutations.filter(is_internal).cloned().collect();
        match found.is_empty() {
            true => Err(missing(
                "early header mutation that removes internal headers",
            )),
            false => Ok(found),
        }
    }

    /// The extension that applies such mutations.
    pub(crate) fn early_extension(&self, mutations: Vec<Node>) -> Result<Node, MissingPiece> {
        let manager = self.manager()?.node;
        let extension = manager.items_at("early_header_mutation_extensions").next();
        let mut extension = extension
            .ok_or_else(|| missing("early header mutation"))?
            .clone();
        let own = extension.at_mut("typed_config");
        own.ok_or_else(|| missing("early header mutation"))?
            .set("mutations", Node::list(mutations));
        Ok(extension)
    }

    /// The removal of internal headers on the way to a cluster.
    pub(crate) fn upstream_filters(&self) -> Result<Node, MissingPiece> {
        let cluster = self.example_cluster()?;
        let options = cluster.get("typed_extension_protocol_options");
        let options = options.and_then(|options| options.get(HTTP_OPTIONS));
        options
            .and_then(|options| options.get("http_filters"))
            .cloned()
            .ok_or_else(|| missing("upstream filter isotherm.internal_headers"))
    }

    /// A setting of the shipped routes to a pool, or of their virtual host.
    pub(crate) fn setting(&self, name: &str) -> Result<Node, MissingPiece> {
        let routes = self.manager()?.routes();
        let mut own = routes.iter().filter(|route| route.destination().is_some());
        let found = own.find_map(|route| route.inherited(name).cloned());
        found.ok_or_else(|| missing(format!("{name} of the routes to a pool")))
    }

    /// The longest silence of a stream.
    pub(crate) fn silence(&self) -> Result<Node, MissingPiece> {
        let silence = self.manager()?.node.get("stream_idle_timeout").cloned();
        silence.ok_or_else(|| missing("stream_idle_timeout"))
    }
}

/// The entry of a pool in the filter's configuration. The pool for every model is the default and has none.
pub(crate) fn pool_of_filter(pool: &Pool) -> Option<Node> {
    let models = pool.models.iter().filter(|model| *model != "*");
    let models: Vec<Node> = models.map(|model| Node::quoted(model)).collect();
    (!models.is_empty()).then(|| {
        Node::map([
            ("models", Node::list(models)),
            ("cluster", Node::quoted(&pool.cluster)),
        ])
    })
}

/// The type of the service's cluster and the address of its endpoint.
pub(crate) fn endpoint_of(address: &ServiceAddress) -> (&'static str, Node) {
    let socket = |host: &str, port: u16| {
        let address = Node::map([
            ("address", Node::text(host)),
            ("port_value", Node::text(&port.to_string())),
        ]);
        Node::map([("socket_address", address)])
    };
    match address {
        ServiceAddress::Socket(address) => {
            ("STATIC", socket(&address.ip().to_string(), address.port()))
        }
        ServiceAddress::Name(name, port) => ("STRICT_DNS", socket(name, *port)),
        ServiceAddress::Pipe(path) => {
            let path = Node::map([("path", Node::quoted(path))]);
            ("STATIC", Node::map([("pipe", path)]))
        }
    }
}

/// Sets the path of the module wherever a filter loads it.
fn set_module(filter: &mut Node, path: &str) {
    filter.change_all(&mut |node| {
        if let Some(name) = node.at_mut("code.local.filename") {
            *name = Node::quoted(path);
        }
    });
}

fn own_options(options: &mut Node) -> Option<&mut Node> {
    let Data::Map { members, .. } = &mut options.data else {
        return None;
    };
    let own = members
        .iter_mut()
        .find(|member| member.name == HTTP_OPTIONS)?;
    Some(&mut own.value)
}

fn missing(piece: impl Into<String>) -> MissingPiece {
    MissingPiece::new(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_has_every_piece() {
        let shipped = ShippedFile::read().unwrap();
        let setup = shipped.complete(&Setup::default()).unwrap();
        let filters = shipped.filters(&setup, &PublishedPaths::default()).unwrap();
        let names: Vec<&str> = filters
            .iter()
            .filter_map(|filter| filter.str_at("name"))
            .collect();
        assert_eq!(names.first(), Some(&"isotherm.request"));
        assert!(names.contains(&"isotherm.ext_proc") && names.contains(&"isotherm.filter_state"));
        shipped.service_cluster(&setup).unwrap();
        shipped.pool_cluster(&setup.pools[0], None).unwrap();
        shipped
            .early_extension(shipped.early_removals().unwrap())
            .unwrap();
        shipped.upstream_filters().unwrap();
        shipped.silence().unwrap();
        for name in ["hash_policy", "request_body_buffer_limit", "retry_policy"] {
            shipped.setting(name).unwrap();
        }
    }

    #[test]
    fn a_piece_that_is_missing_is_named() {
        let root = parse("static_resources: {}\n").unwrap();
        let error = ShippedFile { root }
            .early_removals()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("listener with Isotherm's filters"),
            "{error}"
        );
    }
}
