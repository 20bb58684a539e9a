//! Several regions on one machine, each a [`Stack`], with a [`RegionLink`] from each to each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::bootstrap::Gateway;
use crate::certificates::Authority;
use crate::document::Document;
use crate::pool::Pool;
use crate::port::{self, ReservedPort};
use crate::region_link::RegionLink;
use crate::stack::{RegionMembership, Stack, fresh_directory};
use crate::tools::Tools;

type Edit = Arc<dyn Fn(&str, &mut Document) -> anyhow::Result<()> + Send + Sync>;

/// What is to be started; see [`Regions::builder`].
pub struct RegionsBuilder {
    name: String,
    regions: Vec<(String, Vec<Pool>)>,
    services: usize,
    round_trip: Duration,
    distances: Vec<([String; 2], Duration)>,
    plaintext: bool,
    service_edits: Vec<Edit>,
    envoy_edits: Vec<Edit>,
    log_filter: String,
    workers: u16,
}

impl RegionsBuilder {
    /// Adds a region; its name is a DNS label.
    #[must_use]
    pub fn region(mut self, name: &str, pool: Pool) -> Self {
        self.regions.push((name.into(), vec![pool]));
        self
    }

    /// Adds another pool to the region that was added last.
    #[must_use]
    pub fn pool(mut self, pool: Pool) -> Self {
        if let Some((_, pools)) = self.regions.last_mut() {
            pools.push(pool);
        }
        self
    }

    /// How many services each region has; one unless set.
    #[must_use]
    pub fn services(mut self, count: usize) -> Self {
        self.services = count.max(1);
        self
    }

    /// How long a question to another region and its answer are on their way; nothing unless set.
    #[must_use]
    pub fn round_trip(mut self, round_trip: Duration) -> Self {
        self.round_trip = round_trip;
        self
    }

    /// The same, between two regions only.
    #[must_use]
    pub fn distance(mut self, one: &str, other: &str, round_trip: Duration) -> Self {
        self.distances
            .push(([one.into(), other.into()], round_trip));
        self
    }

    /// Services speak to each other without TLS. (Envoys never do.)
    #[must_use]
    pub fn plaintext(mut self) -> Self {
        self.plaintext = true;
        self
    }

    /// Changes the service's configuration of each region before it starts.
    #[must_use]
    pub fn service(
        mut self,
        edit: impl Fn(&str, &mut Document) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.service_edits.push(Arc::new(edit));
        self
    }

    /// Changes Envoy's configuration of each region before it starts.
    #[must_use]
    pub fn envoy(
        mut self,
        edit: impl Fn(&str, &mut Document) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.envoy_edits.push(Arc::new(edit));
        self
    }

    /// What the services log, as their `--log`; `info` unless set.
    #[must_use]
    pub fn log(mut self, filter: &str) -> Self {
        self.log_filter = filter.into();
        self
    }

    /// How many worker threads each Envoy has; one unless set.
    #[must_use]
    pub fn workers(mut self, workers: u16) -> Self {
        self.workers = workers;
        self
    }

    /// Starts everything, and waits until a request can go all the way in each region. Whether the regions have found
    /// each other by then is another question.
    ///
    /// # Errors
    /// When a program is missing, or does not become ready in time; with the end of its log.
    pub async fn start(self) -> anyhow::Result<Regions> {
        let tools = Tools::find()?;
        let directory = fresh_directory(&tools.output.join("stacks"), &self.name)?;
        let authority = Authority::new()?;
        let sites = self.regions.iter();
        let sites = sites.map(|(name, _)| RegionPlan::new(name, self.services, &directory));
        let sites = sites.collect::<anyhow::Result<Vec<RegionPlan>>>()?;
        let mut links = BTreeMap::new();
        for from in &sites {
            authority.issue(&from.name, &from.certificates)?;
            for to in sites.iter().filter(|to| to.name != from.name) {
                let services = to.peering.iter().map(ReservedPort::address).collect();
                let round_trip = self.round_trip_of(&from.name, &to.name);
                let link = RegionLink::start(round_trip, services, to.gateway.address()).await?;
                links.insert((from.name.clone(), to.name.clone()), link);
            }
        }
        let mut gateways = Vec::new();
        let mut starting = Vec::new();
        for (mut site, (name, pools)) in sites.into_iter().zip(self.regions) {
            let mut stack = Stack::builder(&name)
                .workers(self.workers)
                .log(&self.log_filter)
                .member(site.membership(&links, self.plaintext, &directory));
            gateways.push(site.gateway);
            stack = pools
                .into_iter()
                .fold(stack, |stack, pool| stack.pool(pool));
            for edit in self.service_edits.clone() {
                let name = name.clone();
                stack = stack.service(move |document| edit(&name, document));
            }
            for edit in self.envoy_edits.clone() {
                let name = name.clone();
                stack = stack.envoy(move |document| edit(&name, document));
            }
            starting.push(async move { anyhow::Ok((name, stack.start().await?)) });
        }
        let stacks = try_join_all(starting).await?;
        Ok(Regions {
            stacks,
            links,
            authority,
            directory,
            _gateways: gateways,
        })
    }
}

impl RegionsBuilder {
    fn round_trip_of(&self, from: &str, to: &str) -> Duration {
        let between = |pair: &[String; 2]| pair.iter().all(|name| name == from || name == to);
        let set = self.distances.iter().rfind(|(pair, _)| between(pair));
        set.map_or(self.round_trip, |(_, round_trip)| *round_trip)
    }
}

/// Where a region will be.
struct RegionPlan {
    name: String,
    certificates: PathBuf,
    gateway: ReservedPort,
    peering: Vec<ReservedPort>,
}

impl RegionPlan {
    fn new(name: &str, services: usize, directory: &Path) -> anyhow::Result<Self> {
        let peering = (0..services).map(|_| port::reserve());
        Ok(Self {
            name: name.to_owned(),
            certificates: directory.join(name).join("tls"),
            gateway: port::reserve()?,
            peering: peering.collect::<anyhow::Result<_>>()?,
        })
    }

    fn membership(
        &mut self,
        links: &BTreeMap<(String, String), RegionLink>,
        plaintext: bool,
        directory: &Path,
    ) -> RegionMembership {
        let from_here = links.iter().filter(|((from, _), _)| *from == self.name);
        let (mut gateways, mut peers) = (Vec::new(), Vec::new());
        for ((_, to), link) in from_here {
            gateways.push((to.clone(), link.gateway().address()));
            peers.push(json!({ "name": to, "address": link.peering().address().to_string() }));
        }
        let file = |name| self.certificates.join(name);
        let tls = || json!({ "certificate": file("region.pem"), "key": file("region.key"), "ca": file("ca.pem") });
        let (security, how) = if plaintext {
            ("plaintext", json!(true))
        } else {
            ("tls", tls())
        };
        let section = json!({
            "name": self.name,
            "state_file": "region-state.json",
            "peers": peers,
            security: how,
        });
        RegionMembership {
            gateway: Some(Gateway {
                region: self.name.clone(),
                listen: self.gateway.address(),
                peers: gateways,
                certificates: self.certificates.clone(),
            }),
            section,
            peering: std::mem::take(&mut self.peering),
            directory: directory.to_owned(),
        }
    }
}

/// Several regions, running. They end when this is dropped.
#[derive(Debug)]
pub struct Regions {
    // Stacks before the links, so that what ends them is not taken for a fault of the network.
    stacks: Vec<(String, Stack)>,
    links: BTreeMap<(String, String), RegionLink>,
    authority: Authority,
    directory: PathBuf,
    _gateways: Vec<ReservedPort>,
}

impl Regions {
    /// Describes regions; their logs are under `target/stacks/NAME-...`, a directory for each.
    #[must_use]
    pub fn builder(name: &str) -> RegionsBuilder {
        RegionsBuilder {
            name: name.into(),
            regions: Vec::new(),
            services: 1,
            round_trip: Duration::ZERO,
            distances: Vec::new(),
            plaintext: false,
            service_edits: Vec::new(),
            envoy_edits: Vec::new(),
            log_filter: "info".into(),
            workers: 1,
        }
    }

    /// The names of the regions, in the order in which they were described.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.stacks.iter().map(|(name, _)| name.as_str())
    }

    /// One region: its Envoy, services and engines.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn region(&self, name: &str) -> anyhow::Result<&Stack> {
        let found = self.stacks.iter().find(|(region, _)| region == name);
        found
            .map(|(_, stack)| stack)
            .with_context(|| format!("no region {name}"))
    }

    /// One region, to be killed or restarted in part.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn region_mut(&mut self, name: &str) -> anyhow::Result<&mut Stack> {
        let found = self.stacks.iter_mut().find(|(region, _)| region == name);
        found
            .map(|(_, stack)| stack)
            .with_context(|| format!("no region {name}"))
    }

    /// The network by which `from` reaches `to`. The other direction is a link of its own, since each region dials.
    ///
    /// # Errors
    /// When there is none.
    pub fn link(&self, from: &str, to: &str) -> anyhow::Result<&RegionLink> {
        self.links
            .get(&(from.to_owned(), to.to_owned()))
            .with_context(|| format!("no link from {from} to {to}"))
    }

    /// Both links between two regions.
    ///
    /// # Errors
    /// When there are none.
    pub fn links_between(&self, one: &str, other: &str) -> anyhow::Result<[&RegionLink; 2]> {
        Ok([self.link(one, other)?, self.link(other, one)?])
    }

    /// Who signs the regions' certificates.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Where a region's certificate is, which its service and its Envoy read again when it changes.
    #[must_use]
    pub fn certificates(&self, region: &str) -> PathBuf {
        self.directory.join(region).join("tls")
    }

    /// Where logs and generated files are, a directory for each region.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What the (first) service of a region says of the regions.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self, region: &str) -> anyhow::Result<Value> {
        let service = self.region(region)?.service();
        service
            .admin_request(reqwest::Method::GET, "/api/regions", None)
            .await
    }
}
