//! The shipped Envoy configurations, `envoy/standalone.yaml` and `envoy/region.yaml`, with other addresses.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::document::Document;
use crate::filters::{FILTERS, LISTENERS, edit_filter, set_in_filter};
use crate::tools::Tools;

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

/// A model and its cluster.
pub(crate) struct Route {
    pub(crate) model: String,
    pub(crate) cluster: String,
}

/// The values that replace those of the files.
pub(crate) struct Bootstrap<'a> {
    /// Address of the clients' listener.
    pub(crate) listen: SocketAddr,
    /// Addresses of the services.
    pub(crate) services: &'a [SocketAddr],
    /// Models and their clusters.
    pub(crate) routes: &'a [Route],
    /// Gateway of a region; selects `region.yaml`.
    pub(crate) gateway: Option<&'a Gateway>,
}

/// Envoy's configuration for several regions.
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

impl Bootstrap<'_> {
    /// The configuration for this Envoy.
    pub(crate) fn document(&self, tools: &Tools) -> anyhow::Result<Document> {
        let file = self.gateway.map_or(&tools.standalone, |_| &tools.region);
        let mut document = Document::read(file)?;
        document.set("admin/address/socket_address/port_value", 0)?;
        document.set(
            &format!("{LISTENERS}/name=llm/address"),
            endpoint(self.listen),
        )?;
        let module = Value::from(tools.filter.to_string_lossy());
        for filter in ["isotherm.request", "isotherm.response"] {
            set_in_filter(&mut document, filter, MODULE, &module)?;
        }
        self.set_services(&mut document)?;
        self.set_pools(&mut document)?;
        if let Some(gateway) = self.gateway {
            gateway.set(&mut document, tools)?;
        }
        Ok(document)
    }

    fn set_services(&self, document: &mut Document) -> anyhow::Result<()> {
        let path = format!("{CLUSTERS}/name=isotherm/{ENDPOINT}");
        let example = Document::from(document.get(&format!("{path}/0"))?.clone());
        let hosts = self.services.iter().map(|service| {
            let mut host = example.clone();
            host.set("endpoint/address", endpoint(*service))?;
            Ok(host.value().clone())
        });
        let hosts = hosts.collect::<anyhow::Result<Vec<Value>>>()?;
        document.set(&path, hosts)
    }

    fn set_pools(&self, document: &mut Document) -> anyhow::Result<()> {
        let example = document
            .get(&format!("{CLUSTERS}/name={EXAMPLE_CLUSTER}"))?
            .clone();
        for route in self.routes {
            if route.cluster != EXAMPLE_CLUSTER {
                let mut cluster = Document::from(example.clone());
                cluster.set("name", route.cluster.as_str())?;
                cluster.set("eds_cluster_config/service_name", route.cluster.as_str())?;
                document.push(CLUSTERS, cluster.value().clone())?;
            }
        }
        edit_filter(document, "isotherm.request", |filter| {
            let pools = self
                .routes
                .iter()
                .map(|route| json!({ "models": [route.model], "cluster": route.cluster }));
            filter.set("pools", pools.collect::<Vec<Value>>())?;
            let first = self.routes.first();
            let default = first.map_or(EXAMPLE_CLUSTER, |route| &route.cluster);
            filter.set("default_cluster", default)
        })
    }
}

impl Gateway {
    fn set(&self, document: &mut Document, tools: &Tools) -> anyhow::Result<()> {
        const CHAIN: &str = "static_resources/listeners/name=regions/filter_chains/0";
        let node = format!("isotherm-{}", self.region);
        document.set("node/id", node.as_str())?;
        document.set("node/cluster", node)?;
        document.set(
            &format!("{LISTENERS}/name=regions/address"),
            endpoint(self.listen),
        )?;
        let secrets = self.write_secrets(tools)?;
        let context = format!("{CHAIN}/transport_socket/typed_config/common_tls_context");
        secrets.set(document, &context)?;
        let names = self.peers.iter().map(|(peer, _)| san(peer));
        let names = names.collect::<Vec<Value>>();
        document.set(&format!("{context}/{NAMES}"), names)?;
        self.set_forwarding_policies(document)?;
        self.set_peers(document, &secrets)
    }

    /// Sets which certificate may forward requests of which region.
    fn set_forwarding_policies(&self, document: &mut Document) -> anyhow::Result<()> {
        let path = format!(
            "{LISTENERS}/name=regions/{FILTERS}/name=isotherm.forwarded_requests/typed_config/rules/policies"
        );
        let example = Document::from(document.get(&format!("{path}/eu"))?.clone());
        let mut policies = serde_json::Map::new();
        for (peer, _) in &self.peers {
            let mut policy = example.clone();
            policy.set("permissions/0/header/string_match/exact", peer.as_str())?;
            let name = "principals/0/authenticated/principal_name/exact";
            policy.set(name, format!("{peer}.isotherm"))?;
            policies.insert(peer.clone(), policy.value().clone());
        }
        document.set(&path, policies)
    }

    /// Adds two clusters for each peer, with the first peer of the file as the template.
    fn set_peers(&self, document: &mut Document, secrets: &Secrets) -> anyhow::Result<()> {
        const SOCKET: &str = "transport_socket/typed_config";
        let [example, _] = EXAMPLE_PEERS.map(clusters_of);
        let example = example.map(|name| document.get(&format!("{CLUSTERS}/name={name}")).cloned());
        let [peer_cluster, gateways] = example;
        let (peer_cluster, gateways) = (Document::from(peer_cluster?), Document::from(gateways?));
        let replaced: Vec<String> = EXAMPLE_PEERS.into_iter().flat_map(clusters_of).collect();
        let list = document
            .get_mut(CLUSTERS)?
            .as_array_mut()
            .context("clusters are a list")?;
        list.retain(|cluster| {
            let name = cluster.get("name").and_then(Value::as_str);
            !name.is_some_and(|name| replaced.iter().any(|replaced| replaced == name))
        });
        for (peer, address) in &self.peers {
            let [peer_name, gateways_name] = clusters_of(peer);
            let mut peer_cluster = peer_cluster.clone();
            peer_cluster.set("name", peer_name)?;
            peer_cluster.set(
                "cluster_type/typed_config/clusters/0",
                gateways_name.as_str(),
            )?;
            document.push(CLUSTERS, peer_cluster.value().clone())?;

            let mut gateways = gateways.clone();
            gateways.set("name", gateways_name.as_str())?;
            gateways.set("load_assignment/cluster_name", gateways_name)?;
            gateways.set(
                &format!("{ENDPOINT}/0/endpoint/address"),
                endpoint(*address),
            )?;
            gateways.set(&format!("{SOCKET}/sni"), format!("{peer}.isotherm"))?;
            let context = format!("{SOCKET}/common_tls_context");
            secrets.set(&mut gateways, &context)?;
            gateways.set(&format!("{context}/{NAMES}"), vec![san(peer)])?;
            document.push(CLUSTERS, gateways.value().clone())?;
        }
        Ok(())
    }

    /// Writes the files through which Envoy watches certificates.
    fn write_secrets(&self, tools: &Tools) -> anyhow::Result<Secrets> {
        let directory = tools
            .region
            .parent()
            .context("region.yaml is in a directory")?
            .join("tls");
        let write = |name: &str, paths: &[(&str, &str)]| {
            let mut document = Document::read(&directory.join(name))?;
            for (path, file) in paths {
                let file = self.certificates.join(file);
                document.set(path, file.to_string_lossy().into_owned())?;
            }
            let path = self.certificates.join(name);
            document.write(&path)?;
            anyhow::Ok(path.to_string_lossy().into_owned())
        };
        fs::create_dir_all(&self.certificates)?;
        let authority = "resources/0/validation_context";
        let certificate = "resources/0/tls_certificate";
        Ok(Secrets {
            authority: write(
                "authority.yaml",
                &[
                    (&format!("{authority}/trusted_ca/filename"), "ca.pem"),
                    (&format!("{authority}/watched_directory/path"), ""),
                ],
            )?,
            certificate: write(
                "certificate.yaml",
                &[
                    (
                        &format!("{certificate}/certificate_chain/filename"),
                        "region.pem",
                    ),
                    (&format!("{certificate}/private_key/filename"), "region.key"),
                    (&format!("{certificate}/watched_directory/path"), ""),
                ],
            )?,
        })
    }
}

/// Paths of the files that refer to the certificates.
struct Secrets {
    authority: String,
    certificate: String,
}

impl Secrets {
    fn set(&self, document: &mut Document, context: &str) -> anyhow::Result<()> {
        const FILE: &str = "sds_config/path_config_source/path";
        document.set(
            &format!("{context}/tls_certificate_sds_secret_configs/0/{FILE}"),
            self.certificate.as_str(),
        )?;
        document.set(
            &format!(
                "{context}/combined_validation_context/validation_context_sds_secret_config/{FILE}"
            ),
            self.authority.as_str(),
        )
    }
}

/// The cluster of a peer that the service names, and the cluster of its gateways.
fn clusters_of(peer: &str) -> [String; 2] {
    [format!("region-{peer}"), format!("region-{peer}-gateways")]
}

fn san(region: &str) -> Value {
    json!({ "san_type": "DNS", "matcher": { "exact": format!("{region}.isotherm") } })
}

fn endpoint(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn tools() -> Tools {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap();
        Tools {
            envoy: "envoy".into(),
            filter: "/filter.wasm".into(),
            isotherm: "isotherm".into(),
            engine: "engine".into(),
            standalone: root.join("envoy/standalone.yaml"),
            region: root.join("envoy/region.yaml"),
            output: "target".into(),
        }
    }

    fn route(name: &str) -> Route {
        Route {
            model: format!("{name}-model"),
            cluster: name.into(),
        }
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn bootstrap(gateway: Option<&Gateway>) -> Document {
        let bootstrap = Bootstrap {
            listen: address(1234),
            services: &[address(4321), address(4322)],
            routes: &[route("llama"), route("second")],
            gateway,
        };
        bootstrap.document(&tools()).unwrap()
    }

    #[test]
    fn the_standalone_file_has_every_replaced_value() {
        let document = bootstrap(None);
        assert_eq!(
            document
                .get("static_resources/clusters/name=second/eds_cluster_config/service_name")
                .unwrap(),
            "second"
        );
        let text = document.value().to_string();
        for expected in ["1234", "4321", "4322", "/filter.wasm", "second-model"] {
            assert!(text.contains(expected), "no {expected}");
        }
        for replaced in ["9002", "10000", "isotherm_filter.wasm"] {
            assert!(!text.contains(replaced), "{replaced} stayed");
        }
    }

    #[test]
    fn the_region_file_has_every_replaced_value() {
        let certificates =
            std::env::temp_dir().join(format!("isotherm-tls-{}", std::process::id()));
        let peers = vec![
            ("north".to_owned(), address(7001)),
            ("south".to_owned(), address(7002)),
            ("west".to_owned(), address(7003)),
        ];
        let document = bootstrap(Some(&Gateway {
            region: "east".into(),
            listen: address(7000),
            peers,
            certificates: certificates.clone(),
        }));
        let secret = fs::read_to_string(certificates.join("certificate.yaml")).unwrap();
        fs::remove_dir_all(&certificates).unwrap();
        assert!(secret.contains(&*certificates.join("region.key").to_string_lossy()));
        let text = document.value().to_string();
        let directory = certificates.to_string_lossy().into_owned();
        for expected in [
            "7000",
            "7001",
            "7002",
            "7003",
            "region-north",
            "south.isotherm",
            "isotherm-east",
            &directory,
        ] {
            assert!(text.contains(expected), "no {expected}");
        }
        for replaced in [
            "9002",
            ":10000}",
            "10443",
            "isotherm_filter.wasm",
            "envoy/tls",
            "eu.isotherm",
            "region-eu",
            "asia",
        ] {
            assert!(!text.contains(replaced), "{replaced} stayed");
        }
    }
}
