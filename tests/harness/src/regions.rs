//! Several regions on one machine, each a [`Stack`], with a [`RegionLink`] from each to each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use isotherm_certificates::Authority;
use serde_json::{Value, json};

use crate::bootstrap::Gateway;
use crate::control_plane::NAMESPACE;
use crate::directory::fresh_directory;
use crate::document::Document;
use crate::etcd::Etcd;
use crate::faulty_link::{FaultyLink, NetworkConditions};
use crate::pool::Pool;
use crate::port::{self, ReservedPort};
use crate::stack::{RegionMembership, Stack};
use crate::tools::Tools;

/// Duration of a lease: longer than a busy machine delays a process.
pub const LEASE_MS: u64 = 3_000;

type Edit = Arc<dyn Fn(&str, &mut Document) -> anyhow::Result<()> + Send + Sync>;
/// Links by the names of the region that connects and of the region that accepts.
type Links = BTreeMap<(String, String), RegionLink>;

/// The description of several regions; see [`Regions::builder`].
#[must_use = "regions start with `RegionsBuilder::start`"]
pub struct RegionsBuilder {
    name: String,
    regions: Vec<(String, Pool)>,
    round_trip: Duration,
    distances: Vec<([String; 2], Duration)>,
    plaintext: bool,
    kubeconfig: Option<PathBuf>,
    service_edits: Vec<Edit>,
    envoy_edits: Vec<Edit>,
}

impl RegionsBuilder {
    /// Adds a region; its name is a DNS label.
    pub fn region(mut self, name: &str, pool: Pool) -> Self {
        self.regions.push((name.into(), pool));
        self
    }

    /// Sets the round-trip time between regions; the default is zero.
    pub fn round_trip(mut self, round_trip: Duration) -> Self {
        self.round_trip = round_trip;
        self
    }

    /// Sets the round-trip time between two regions.
    pub fn distance(mut self, one: &str, other: &str, round_trip: Duration) -> Self {
        self.distances
            .push(([one.into(), other.into()], round_trip));
        self
    }

    /// Lets services peer without TLS. Gateways always use TLS.
    pub fn plaintext(mut self) -> Self {
        self.plaintext = true;
        self
    }

    /// Keeps the leases in Lease objects of the API server that a kubeconfig file names, instead of etcd.
    pub fn lease_objects(mut self, kubeconfig: PathBuf) -> Self {
        self.kubeconfig = Some(kubeconfig);
        self
    }

    /// Edits the service's configuration of each region before it starts.
    pub fn service(
        mut self,
        edit: impl Fn(&str, &mut Document) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.service_edits.push(Arc::new(edit));
        self
    }

    /// Edits Envoy's configuration of each region before it starts.
    pub fn envoy(
        mut self,
        edit: impl Fn(&str, &mut Document) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.envoy_edits.push(Arc::new(edit));
        self
    }

    /// Starts everything, and waits until requests can pass in each region. The regions may not have found each other
    /// by then. An error shows the end of the log of the program that failed.
    pub async fn start(self) -> anyhow::Result<Regions> {
        let tools = Tools::find()?;
        let directory = fresh_directory(&tools.output.join("stacks"), &self.name)?;
        let authority = Authority::new()?;
        let mut ports = Vec::new();
        for (name, _) in &self.regions {
            authority.issue(name, &certificates(&directory, name))?;
            ports.push((name, port::reserve()?, port::reserve()?));
        }
        let names = self.regions.iter().map(|(name, _)| name.as_str());
        let store = match self.kubeconfig {
            None => LeaseStore::start(&self.name, names).await?,
            Some(_) => None,
        };
        let mut links = Links::new();
        for (from, ..) in &ports {
            for (to, peering, gateway) in ports.iter().filter(|(to, ..)| to != from) {
                let round_trip = self.round_trip_between(from, to);
                let link = RegionLink::start(round_trip, peering, gateway).await?;
                links.insert(((*from).clone(), (*to).clone()), link);
            }
        }
        let mut gateways = Vec::new();
        let mut starting = Vec::new();
        for ((name, peering, gateway), (_, pool)) in ports.into_iter().zip(&self.regions) {
            let mut stack = Stack::builder(name).workers(1).pool(pool.clone());
            let membership =
                self.membership(name, &links, peering, &gateway, &directory, store.as_ref());
            stack.region = Some(membership);
            if let Some(kubeconfig) = &self.kubeconfig {
                stack = stack.environment("KUBECONFIG", kubeconfig);
            }
            gateways.push(gateway);
            for edit in self.service_edits.clone() {
                let name = name.clone();
                stack = stack.service(move |document| edit(&name, document));
            }
            for edit in self.envoy_edits.clone() {
                let name = name.clone();
                stack = stack.envoy(move |document| edit(&name, document));
            }
            starting.push(async move { anyhow::Ok((name.clone(), stack.start().await?)) });
        }
        Ok(Regions {
            stacks: try_join_all(starting).await?,
            links,
            authority,
            directory,
            store,
            _gateways: gateways,
        })
    }

    fn round_trip_between(&self, from: &str, to: &str) -> Duration {
        let is_between = |pair: &[String; 2]| pair.iter().all(|name| name == from || name == to);
        let distance = self.distances.iter().rfind(|(pair, _)| is_between(pair));
        distance.map_or(self.round_trip, |(_, round_trip)| *round_trip)
    }

    fn membership(
        &self,
        name: &str,
        links: &Links,
        peering: ReservedPort,
        gateway: &ReservedPort,
        directory: &Path,
        store: Option<&LeaseStore>,
    ) -> RegionMembership {
        let certificates = certificates(directory, name);
        let (mut gateways, mut peers) = (Vec::new(), Vec::new());
        for ((_, to), link) in links.iter().filter(|((from, _), _)| from == name) {
            gateways.push((to.clone(), link.gateway.address()));
            peers.push(json!({
                "name": to, "address": link.peering.address().to_string(),
                "replicas": ["127.0.0.0/8"],
            }));
        }
        let mut section = json!({ "name": name, "peers": peers });
        let link = store.and_then(|store| store.links.get(name));
        let etcd = link.map(|link| {
            let endpoints = [link.link.address().to_string()];
            json!({ "etcd": endpoints, "lease_ms": LEASE_MS })
        });
        let objects = self.kubeconfig.as_ref();
        let objects = objects.map(|_| json!({ "kubernetes": NAMESPACE, "lease_ms": LEASE_MS }));
        if let (Some(section), Some(store)) = (section.as_object_mut(), etcd.or(objects)) {
            section.insert("store".into(), store);
        }
        if let Some(section) = section.as_object_mut()
            && !self.plaintext
        {
            let file = |name| certificates.join(name);
            let tls = json!({ "certificate": file("region.pem"), "key": file("region.key"), "ca": file("ca.pem") });
            section.insert("tls".into(), tls);
        }
        RegionMembership {
            gateway: Some(Gateway {
                region: name.to_owned(),
                listen: gateway.address(),
                peers: gateways,
                certificates,
            }),
            section,
            peering: vec![peering],
            directory: directory.join(name),
        }
    }
}

/// The path on which one region reaches another. Replicas are reached directly.
#[derive(Debug)]
pub struct RegionLink {
    /// The network conditions of both proxies: delay, black hole, cut.
    pub conditions: NetworkConditions,
    /// The proxy to the other region's service.
    pub peering: FaultyLink,
    /// The proxy to the other region's Envoy, for forwarded requests and health checks.
    pub gateway: FaultyLink,
}

impl RegionLink {
    async fn start(
        round_trip: Duration,
        peering: &ReservedPort,
        gateway: &ReservedPort,
    ) -> anyhow::Result<Self> {
        let conditions = NetworkConditions::with_round_trip(round_trip);
        Ok(Self {
            peering: FaultyLink::start(&conditions, vec![peering.address()]).await?,
            gateway: FaultyLink::start(&conditions, vec![gateway.address()]).await?,
            conditions,
        })
    }
}

/// The store of leases, and the path on which each region reaches it.
#[derive(Debug)]
struct LeaseStore {
    etcd: Etcd,
    links: BTreeMap<String, StoreLink>,
}

#[derive(Debug)]
struct StoreLink {
    conditions: NetworkConditions,
    link: FaultyLink,
}

impl LeaseStore {
    /// Starts etcd and the links; `None`, with a message, where etcd is not installed.
    async fn start(
        name: &str,
        regions: impl Iterator<Item = &str>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(etcd) = Etcd::start(name)? else {
            return Ok(None);
        };
        let mut links = BTreeMap::new();
        for region in regions {
            let conditions = NetworkConditions::with_round_trip(Duration::ZERO);
            let link = FaultyLink::start(&conditions, vec![etcd.address()]).await?;
            links.insert(region.to_owned(), StoreLink { conditions, link });
        }
        Ok(Some(Self { etcd, links }))
    }
}

fn certificates(directory: &Path, region: &str) -> PathBuf {
    directory.join(region).join("tls")
}

/// Several regions, running. They end when this is dropped.
#[derive(Debug)]
pub struct Regions {
    // Stacks before the links, so that their end does not look like a network fault.
    stacks: Vec<(String, Stack)>,
    links: Links,
    authority: Authority,
    directory: PathBuf,
    store: Option<LeaseStore>,
    _gateways: Vec<ReservedPort>,
}

impl Regions {
    /// Describes regions; their logs are in `target/stacks/NAME.PROCESS.NUMBER`, one directory for each.
    pub fn builder(name: &str) -> RegionsBuilder {
        RegionsBuilder {
            name: name.into(),
            regions: Vec::new(),
            round_trip: Duration::ZERO,
            distances: Vec::new(),
            plaintext: false,
            kubeconfig: None,
            service_edits: Vec::new(),
            envoy_edits: Vec::new(),
        }
    }

    /// The names of the regions, in order of their description.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.stacks.iter().map(|(name, _)| name.as_str())
    }

    /// A region: its Envoy, services and engines.
    pub fn region(&self, name: &str) -> anyhow::Result<&Stack> {
        let found = self.stacks.iter().find(|(region, _)| region == name);
        let stack = found.map(|(_, stack)| stack);
        stack.with_context(|| format!("no region {name}"))
    }

    /// A region, to be killed or restarted in part.
    pub fn region_mut(&mut self, name: &str) -> anyhow::Result<&mut Stack> {
        let found = self.stacks.iter_mut().find(|(region, _)| region == name);
        let stack = found.map(|(_, stack)| stack);
        stack.with_context(|| format!("no region {name}"))
    }

    /// The network on which `from` reaches `to`. The other direction is a link of its own, since each region connects.
    pub fn link(&self, from: &str, to: &str) -> anyhow::Result<&RegionLink> {
        self.links
            .get(&(from.to_owned(), to.to_owned()))
            .with_context(|| format!("no link from {from} to {to}"))
    }

    /// Both links between two regions.
    pub fn links_between(&self, one: &str, other: &str) -> anyhow::Result<[&RegionLink; 2]> {
        Ok([self.link(one, other)?, self.link(other, one)?])
    }

    /// The store of leases; `None` where etcd is not installed.
    pub fn etcd(&mut self) -> Option<&mut Etcd> {
        self.store.as_mut().map(|store| &mut store.etcd)
    }

    /// The network on which a region reaches the store of leases; `None` where etcd is not installed.
    pub fn store_link(&self, region: &str) -> Option<&NetworkConditions> {
        let link = self.store.as_ref()?.links.get(region)?;
        Some(&link.conditions)
    }

    /// The authority that signs the regions' certificates.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The directory of a region's certificate, which its service and its Envoy read again when it changes.
    pub fn certificates(&self, region: &str) -> PathBuf {
        certificates(&self.directory, region)
    }

    /// The directory of logs and generated files, with one directory for each region.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads `GET /api/regions` of a region's service: the states of its peers.
    pub async fn status(&self, region: &str) -> anyhow::Result<Value> {
        self.region(region)?.service().get("/api/regions").await
    }
}
