//! `isotherm envoy new`: the shipped file with other pools, addresses and paths.
//!
//! The edits replace values where they stand, so everything else keeps the bytes of the shipped file, its comments included.

use std::net::SocketAddr;

use crate::pool::{Pool, ServiceAddress, Setup};
use crate::shipped::{MissingPiece, ShippedFile, TEXT, endpoint_of, pool_of_filter};
use crate::yaml::{Edits, Node, parse};

/// Addresses of the new Envoy. An absent one stays as in the shipped file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Addresses {
    /// Address for clients.
    pub clients: Option<SocketAddr>,
    /// Address of the admin interface.
    pub admin: Option<SocketAddr>,
}

/// Writes a complete configuration.
pub fn create(setup: &Setup, addresses: &Addresses) -> Result<String, MissingPiece> {
    let shipped = ShippedFile::read()?;
    let mut edits = Edits::new(TEXT);
    if !setup.pools.is_empty() {
        set_pools(&mut edits, &shipped, setup)?;
    }
    if let Some(address) = &setup.service {
        set_service(&mut edits, &shipped, address)?;
    }
    if let Some(path) = &setup.filter {
        for node in shipped.root().all() {
            if let Some(name) = node.at("code.local.filename") {
                edits.replace(name, &Node::quoted(path));
            }
        }
    }
    if let Some(clients) = addresses.clients {
        let listener = shipped.root().items_at("static_resources.listeners").next();
        let address = listener.and_then(|listener| listener.at("address.socket_address"));
        set_address(&mut edits, address, clients)?;
    }
    if let Some(admin) = addresses.admin {
        let address = shipped.root().at("admin.address.socket_address");
        set_address(&mut edits, address, admin)?;
    }
    edits.apply().map_err(MissingPiece::new)
}

/// Names the pools: in the filter's configuration, in the clusters, and the default pool wherever a cluster's name stands.
fn set_pools(
    edits: &mut Edits<'_>,
    shipped: &ShippedFile,
    setup: &Setup,
) -> Result<(), MissingPiece> {
    let example = shipped.pool()?;
    let (Some(first), Some(default)) = (setup.pools.first(), setup.default_pool()) else {
        return Ok(());
    };
    set_filter_pools(edits, shipped, setup, default)?;
    let cluster = shipped.example_cluster()?;
    let own = cluster.span.clone();
    for node in shipped.root().all() {
        if node.as_str() == Some(&example.cluster) && node.site == node.span {
            let name = if own.contains(&node.span.start) {
                first
            } else {
                default
            };
            edits.replace(node, &Node::text(&name.cluster));
        }
    }
    let start = cluster.span.start - cluster.column;
    let start = TEXT
        .get(..start)
        .and_then(|text| text.rfind('\n'))
        .unwrap_or(start);
    let end = cluster
        .members()
        .last()
        .map_or(own.end, |member| member.end());
    let end = end
        + TEXT
            .get(end..)
            .and_then(|rest| rest.find('\n'))
            .unwrap_or_default();
    for pool in setup.pools.iter().skip(1) {
        let text = TEXT.get(start..end).unwrap_or_default();
        let text = renamed_cluster(text, start, cluster, &example, pool);
        edits.replace_bytes(end..end, format!("\n{text}"));
    }
    Ok(())
}

/// The text of a cluster with the name of another pool.
fn renamed_cluster(
    text: &str,
    start: usize,
    cluster: &Node,
    example: &Pool,
    pool: &Pool,
) -> String {
    let mut names: Vec<&Node> = cluster
        .all()
        .into_iter()
        .filter(|node| node.as_str() == Some(&example.cluster))
        .collect();
    names.sort_by_key(|node| node.span.start);
    let mut renamed = String::new();
    let mut done = 0;
    for name in names {
        let (from, to) = (name.span.start - start, name.span.end - start);
        renamed.push_str(text.get(done..from).unwrap_or_default());
        renamed.push_str(&pool.cluster);
        done = to;
    }
    renamed + text.get(done..).unwrap_or_default()
}

/// Sets the pools in the JSON text of the filter's configuration.
fn set_filter_pools(
    edits: &mut Edits<'_>,
    shipped: &ShippedFile,
    setup: &Setup,
    default: &Pool,
) -> Result<(), MissingPiece> {
    let node = shipped.filter_configuration()?;
    let text = TEXT.get(node.span.clone()).unwrap_or_default();
    let at = text.find('{').unwrap_or_default();
    let json = text.get(at..).unwrap_or_default();
    let base = node.span.start + at;
    let own = parse(json).map_err(|error| MissingPiece::new(error.to_string()))?;
    let pools = Node::list(setup.pools.iter().filter_map(pool_of_filter).collect());
    let values = [
        ("pools", pools),
        ("default_cluster", Node::quoted(&default.cluster)),
    ];
    for (name, value) in values {
        let old = own
            .get(name)
            .ok_or_else(|| MissingPiece::new(format!("`{name}` in the filter's configuration")))?;
        let bytes = base + old.span.start..base + old.span.end;
        edits.replace_bytes(bytes, crate::yaml::flow(&value, crate::yaml::Style::Json));
    }
    Ok(())
}

fn set_service(
    edits: &mut Edits<'_>,
    shipped: &ShippedFile,
    address: &ServiceAddress,
) -> Result<(), MissingPiece> {
    let missing = || MissingPiece::new("endpoint of the service");
    let clusters = shipped.root().items_at("static_resources.clusters");
    let service = clusters
        .filter(|cluster| cluster.str_at("name") == Some(crate::envoy::SERVICE_CLUSTER))
        .last()
        .ok_or_else(missing)?;
    let (kind, endpoint) = endpoint_of(address);
    edits.replace(service.get("type").ok_or_else(missing)?, &Node::text(kind));
    let hosts = service.items_at("load_assignment.endpoints");
    let mut hosts = hosts.flat_map(|locality| locality.items_at("lb_endpoints"));
    let host = hosts.next().and_then(|host| host.get("endpoint"));
    let host = host.ok_or_else(missing)?;
    let member = host.member("address").ok_or_else(missing)?;
    edits.replace_member(host, member, "address", &endpoint);
    Ok(())
}

fn set_address(
    edits: &mut Edits<'_>,
    address: Option<&Node>,
    new: SocketAddr,
) -> Result<(), MissingPiece> {
    let missing = || MissingPiece::new("address of the listener or of the admin interface");
    let address = address.ok_or_else(missing)?;
    let port = Node::text(&new.port().to_string());
    edits.replace(
        address.get("address").ok_or_else(missing)?,
        &Node::text(&new.ip().to_string()),
    );
    edits.replace(address.get("port_value").ok_or_else(missing)?, &port);
    Ok(())
}
