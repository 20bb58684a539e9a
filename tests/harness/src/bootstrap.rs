//! The shipped Envoy configurations, `envoy/standalone.yaml` and `envoy/region.yaml`, with other addresses. Programs have them
//! built in, since an installed demo has no checkout beside it.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::filters::{FILTERS, LISTENERS, edit_filter, set_in_filter};
use crate::pool::Pool;
use crate::tools::Tools;

const STANDALONE: &str = include_str!("../../../envoy/standalone.yaml");
const REGION: &str = include_str!("../../../envoy/region.yaml");
const AUTHORITY: &str = include_str!("../../../envoy/tls/authority.yaml");
const CERTIFICATE: &str = include_str!("../../../envoy/tls/certificate.yaml");
const CLUSTERS: &str = "static_resources/clusters";
/// Path of the module below a filter's `typed_config`.
const MODULE: &str = "config/vm_config/code/local/filename";
/// Name of the pool's cluster in the files.
const EXAMPLE_CLUSTER: &str = "llama";
/// The peers in `region.yaml`; the first is the template of all peers.
const EXAMPLE_PEERS: [&str; 2] = ["eu", "asia"];
/// Path of the accepted certificate names below a TLS context.
const NAMES: &str =
    "combined_validation_context/default_validation_context/match_typed_subject_alt_names";
const ENDPOINT: &str = "load_assignment/endpoints/0/lb_endpoints";

/// Envoy's configuration for several regions, from `region.yaml`.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    /// Name of this region.
    pub(crate) region: String,
    /// Address of the listener for other regions.
    pub(crate) listen: SocketAddr,
    /// Names of the other regions, and addresses of their gateways.
    pub(crate) peers: Vec<(String, SocketAddr)>,
    /// Directory of `region.pem`, `region.key` and `ca.pem`.
    pub(crate) certificates: PathBuf,
}

/// The early header mutations of a listener.
const EARLY_MUTATIONS: &str = "/filter_chains/0/filters/0/typed_config/early_header_mutation_extensions/0/typed_config/mutations";

/// The configuration of an Envoy that listens for clients at `listen`.
pub(crate) fn envoy_document(
    tools: &Tools,
    listen: SocketAddr,
    services: &[SocketAddr],
    pools: &[Pool],
    gateway: Option<&Gateway>,
) -> anyhow::Result<Document> {
    let mut document = Document::parse(gateway.map_or(STANDALONE, |_| REGION))?;
    document.set("admin/address/socket_address/port_value", 0)?;
    document.set(&format!("{LISTENERS}/name=llm/address"), endpoint(listen))?;
    let module = Value::from(tools.filter.to_string_lossy());
    set_in_filter(&mut document, "isotherm.request", MODULE, &module)?;
    let path = format!("{CLUSTERS}/name=isotherm/{ENDPOINT}");
    let example = document.get(&format!("{path}/0"))?;
    let hosts = services
        .iter()
        .map(|service| instance(example, &[("endpoint/address", endpoint(*service))]))
        .collect::<anyhow::Result<Vec<Value>>>()?;
    document.set(&path, hosts)?;
    set_pools(&mut document, pools)?;
    if let Some(gateway) = gateway {
        gateway.set(&mut document)?;
    }
    Ok(document)
}

/// A copy of `template` with other values at some paths.
fn instance(template: &Value, values: &[(&str, Value)]) -> anyhow::Result<Value> {
    let mut document = Document(template.clone());
    for (path, value) in values {
        document.set(path, value.clone())?;
    }
    Ok(document.0)
}

fn set_pools(document: &mut Document, pools: &[Pool]) -> anyhow::Result<()> {
    let example = format!("{CLUSTERS}/name={EXAMPLE_CLUSTER}");
    let example = document.get(&example)?.clone();
    for pool in pools.iter().filter(|pool| pool.cluster != EXAMPLE_CLUSTER) {
        let name = Value::from(pool.cluster.as_str());
        let values = [
            ("name", name.clone()),
            ("eds_cluster_config/service_name", name),
        ];
        document.push(CLUSTERS, instance(&example, &values)?)?;
    }
    let default = pools.first().map_or(EXAMPLE_CLUSTER, |pool| &pool.cluster);
    set_default_pool(document, default)?;
    edit_filter(document, "isotherm.request", |filter| {
        let pools_of_filter = pools
            .iter()
            .map(|pool| json!({ "models": [pool.model], "cluster": pool.cluster }));
        filter.set("pools", pools_of_filter.collect::<Vec<Value>>())?;
        filter.set("default_cluster", default)
    })
}

/// Names the cluster of requests that no filter has seen, in the early header mutation of each listener that has one.
fn set_default_pool(document: &mut Document, cluster: &str) -> anyhow::Result<()> {
    let listeners = document.get_mut(LISTENERS)?.as_array_mut();
    for listener in listeners.context("listeners are a list")? {
        let mutations = listener.pointer_mut(EARLY_MUTATIONS);
        for mutation in mutations
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(value) = mutation.pointer_mut("/append/header/value") {
                *value = cluster.into();
            }
        }
    }
    Ok(())
}

impl Gateway {
    fn set(&self, document: &mut Document) -> anyhow::Result<()> {
        const LISTENER: &str = "static_resources/listeners/name=regions";
        let node = format!("isotherm-{}", self.region);
        document.set("node/id", node.as_str())?;
        document.set("node/cluster", node)?;
        document.set(&format!("{LISTENER}/address"), endpoint(self.listen))?;
        let secrets = self.write_secrets()?;
        let context =
            format!("{LISTENER}/filter_chains/0/transport_socket/typed_config/common_tls_context");
        for (path, file) in &secrets {
            document.set(&format!("{context}/{path}"), file.clone())?;
        }
        let names: Vec<Value> = self.peers.iter().map(|(peer, _)| san(peer)).collect();
        document.set(&format!("{context}/{NAMES}"), names)?;
        self.set_forwarding_policies(document)?;
        self.set_peers(document, &secrets)
    }

    /// Sets which certificate may forward requests of which region.
    fn set_forwarding_policies(&self, document: &mut Document) -> anyhow::Result<()> {
        let path = format!(
            "{LISTENERS}/name=regions/{FILTERS}/name=isotherm.forwarded_requests/typed_config/rules/policies"
        );
        let example = document.get(&format!("{path}/eu"))?.clone();
        let mut policies = Map::new();
        for (peer, _) in &self.peers {
            let origin = "permissions/0/header/string_match/exact";
            let certificate = "principals/0/authenticated/principal_name/exact";
            let values = [
                (origin, peer.as_str().into()),
                (certificate, dns_name(peer).into()),
            ];
            policies.insert(peer.clone(), instance(&example, &values)?);
        }
        document.set(&path, policies)
    }

    /// Adds two clusters for each peer, with the first peer of the file as the template.
    fn set_peers(&self, document: &mut Document, secrets: &[(&str, Value)]) -> anyhow::Result<()> {
        const SOCKET: &str = "transport_socket/typed_config";
        let [example, _] = EXAMPLE_PEERS.map(clusters_of);
        let [peer_example, gateways_example] =
            example.map(|name| document.get(&format!("{CLUSTERS}/name={name}")).cloned());
        let (peer_example, mut gateways_example) = (peer_example?, Document(gateways_example?));
        for (path, file) in secrets {
            let path = format!("{SOCKET}/common_tls_context/{path}");
            gateways_example.set(&path, file.clone())?;
        }
        let replaced = EXAMPLE_PEERS.map(clusters_of).concat();
        let clusters = document.get_mut(CLUSTERS)?.as_array_mut();
        let clusters = clusters.context("clusters are a list")?;
        clusters.retain(|cluster| {
            let name = cluster.get("name").and_then(Value::as_str);
            name.is_none_or(|name| !replaced.iter().any(|replaced| replaced == name))
        });
        for (peer, address) in &self.peers {
            let [name, gateways] = clusters_of(peer).map(Value::from);
            let values = [
                ("name", name),
                ("cluster_type/typed_config/clusters/0", gateways.clone()),
            ];
            clusters.push(instance(&peer_example, &values)?);
            let values = [
                ("name", gateways.clone()),
                ("load_assignment/cluster_name", gateways),
                (
                    &format!("{ENDPOINT}/0/endpoint/address"),
                    endpoint(*address),
                ),
                (&format!("{SOCKET}/sni"), dns_name(peer).into()),
                (
                    &format!("{SOCKET}/common_tls_context/{NAMES}"),
                    vec![san(peer)].into(),
                ),
            ];
            clusters.push(instance(&gateways_example.0, &values)?);
        }
        Ok(())
    }

    /// Writes the files through which Envoy watches certificates; returns their paths, by the field of a TLS context.
    fn write_secrets(&self) -> anyhow::Result<[(&'static str, Value); 2]> {
        let write = |name: &str, text: &str, secret: &str, files: &[(&str, &str)]| {
            let mut document = Document::parse(text)?;
            for (field, file) in files {
                let file = self.certificates.join(file);
                let path = format!("resources/0/{secret}/{field}");
                document.set(&path, file.to_string_lossy())?;
            }
            let path = self.certificates.join(name);
            document.write(&path)?;
            anyhow::Ok(Value::from(path.to_string_lossy()))
        };
        fs::create_dir_all(&self.certificates)?;
        let authority = [
            ("trusted_ca/filename", "ca.pem"),
            ("watched_directory/path", ""),
        ];
        let certificate = [
            ("certificate_chain/filename", "region.pem"),
            ("private_key/filename", "region.key"),
            ("watched_directory/path", ""),
        ];
        Ok([
            (
                "combined_validation_context/validation_context_sds_secret_config/sds_config/path_config_source/path",
                write(
                    "authority.yaml",
                    AUTHORITY,
                    "validation_context",
                    &authority,
                )?,
            ),
            (
                "tls_certificate_sds_secret_configs/0/sds_config/path_config_source/path",
                write(
                    "certificate.yaml",
                    CERTIFICATE,
                    "tls_certificate",
                    &certificate,
                )?,
            ),
        ])
    }
}

/// The cluster of a peer that the service names, and the cluster of its gateways.
fn clusters_of(peer: &str) -> [String; 2] {
    [format!("region-{peer}"), format!("region-{peer}-gateways")]
}

/// The name in a region's certificate.
fn dns_name(region: &str) -> String {
    format!("{region}.isotherm")
}

fn san(region: &str) -> Value {
    json!({ "san_type": "DNS", "matcher": { "exact": dns_name(region) } })
}

fn endpoint(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Tools {
        Tools {
            envoy: "envoy".into(),
            filter: "/filter.wasm".into(),
            isotherm: "isotherm".into(),
            engine: "engine".into(),
            output: "target".into(),
        }
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn bootstrap(gateway: Option<&Gateway>) -> Document {
        let services = [address(4321), address(4322)];
        let pools =
            ["llama", "second"].map(|name| Pool::new(&format!("{name}-model")).cluster(name));
        envoy_document(&tools(), address(1234), &services, &pools, gateway).unwrap()
    }

    fn check_replaced(text: &str, expected: &[&str], replaced: &[&str]) {
        for value in expected {
            assert!(text.contains(value), "no {value}");
        }
        for value in replaced {
            assert!(!text.contains(value), "{value} stayed");
        }
    }

    #[test]
    fn the_standalone_file_has_every_replaced_value() {
        let document = bootstrap(None);
        let service_name = "static_resources/clusters/name=second/eds_cluster_config/service_name";
        assert_eq!(document.get(service_name).unwrap(), "second");
        check_replaced(
            &document.0.to_string(),
            &["1234", "4321", "4322", "/filter.wasm", "second-model"],
            &["9002", "10000", "isotherm_filter.wasm"],
        );
    }

    #[test]
    fn the_region_file_has_every_replaced_value() {
        let certificates =
            std::env::temp_dir().join(format!("isotherm-tls-{}", std::process::id()));
        let peers = [("north", 7001), ("south", 7002), ("west", 7003)];
        let document = bootstrap(Some(&Gateway {
            region: "east".into(),
            listen: address(7000),
            peers: peers
                .map(|(peer, port)| (peer.to_owned(), address(port)))
                .into(),
            certificates: certificates.clone(),
        }));
        let secret = fs::read_to_string(certificates.join("certificate.yaml")).unwrap();
        fs::remove_dir_all(&certificates).unwrap();
        assert!(secret.contains(&*certificates.join("region.key").to_string_lossy()));
        let directory = certificates.to_string_lossy();
        check_replaced(
            &document.0.to_string(),
            &[
                "7000",
                "7001",
                "7002",
                "7003",
                "region-north",
                "south.isotherm",
                "isotherm-east",
                &directory,
            ],
            &[
                "9002",
                ":10000}",
                "10443",
                "isotherm_filter.wasm",
                "envoy/tls",
                "eu.isotherm",
                "region-eu",
                "asia",
            ],
        );
    }
}
