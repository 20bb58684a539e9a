//! Everything of a run but its workload.

use core::time::Duration;

use isotherm_engine::model::Config;
use isotherm_router::RouterConfig;

use crate::network::Network;
use crate::telemetry::Telemetry;

/// Interval between probes of a replica: the service's default.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Objective for the time to the first token: DualMap's.
pub const SLO: Duration = Duration::from_secs(5);
/// When a run is cut: no workload is that long, a run that does not end is.
pub const LIMIT: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Everything of a run but its workload.
///
/// Replicas are numbered over the regions in order, then the replicas that join later, in the order of [`Setup::changes`].
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of everything random.
    pub seed: u64,
    /// Regions with their replicas.
    pub regions: Vec<RegionSetup>,
    /// Delays of messages.
    pub network: Network,
    /// Arrangement of routers.
    pub arrangement: Arrangement,
    /// Telemetry profile of the engines.
    pub telemetry: Telemetry,
    /// Interval between probes of a replica.
    pub probe_interval: Duration,
    /// Objective for the time to the first token; only the figures use it.
    pub slo: Duration,
    /// Changes of the fleet during the run.
    pub changes: Vec<Change>,
    /// Virtual time after which the run is cut.
    pub limit: Duration,
    /// Events after which the run is cut: a router whose timeout is always past would take for ever.
    pub events_max: u64,
    /// Services over the pool, which tell each other their placements; the sessions are spread over them. Where there are several regions,
    /// each has one service.
    pub services: usize,
    /// Share of the sessions whose requests go to replicas in turn, past the router, which sees only their load: another router serves them.
    /// Figures leave them out.
    pub bypass_share: f64,
}

/// A region: its replicas at the start.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionSetup {
    /// Name of the region, which gives its position on hash rings.
    pub name: String,
    /// Replicas of the region.
    pub replicas: Vec<ReplicaSetup>,
}

/// A replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaSetup {
    /// Configuration of the engine.
    pub config: Config,
    /// How fast it is, next to what the engine's timing says: 0.5 takes twice as long for everything.
    pub speed: f64,
    /// Whether the engine keeps prefixes in its cache.
    pub has_prefix_caching: bool,
}

/// Arrangement of routers.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrangement {
    /// The shipped core: one router a region, which forwards to the others when there are several.
    Router(RouterConfig),
    /// A router in each region, without forwarding.
    RegionLocal(RouterConfig),
    /// A single router for the replicas of all regions.
    Central {
        /// Configuration of the router.
        config: RouterConfig,
        /// Region of the router.
        region: usize,
    },
    /// No router: the oracle, which sees into the engines.
    Oracle,
}

/// A change of the fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// When.
    pub at: Duration,
    /// Kind of the change.
    pub what: Action,
}

/// Kinds of changes of the fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// A replica joins, with an empty cache.
    Join {
        /// Region of the replica.
        region: usize,
        /// Engine and speed of the replica.
        replica: ReplicaSetup,
    },
    /// A replica finishes what it has, and gets nothing new.
    Drain {
        /// Index of the replica.
        replica: usize,
    },
    /// A replica leaves the pool. What it has in flight ends as it ends.
    Leave {
        /// Index of the replica.
        replica: usize,
    },
    /// A replica becomes slower, or faster.
    Speed {
        /// Index of the replica.
        replica: usize,
        /// As [`ReplicaSetup::speed`].
        speed: f64,
    },
    /// A replica restarts and nothing tells the service: its cache is empty, its counters begin at zero, and the requests that it
    /// had start anew, as a proxy in front of it retries them.
    Restart {
        /// Index of the replica.
        replica: usize,
    },
}

impl Setup {
    /// A single region of equal replicas, with every default.
    pub fn one_region(config: Config, replicas: usize, arrangement: Arrangement) -> Self {
        Self::regions(vec![RegionSetup::new("one", config, replicas)], arrangement)
    }

    /// A set-up of these regions, with every default.
    pub fn regions(regions: Vec<RegionSetup>, arrangement: Arrangement) -> Self {
        Self {
            seed: 1,
            regions,
            network: Network::default(),
            arrangement,
            telemetry: Telemetry::default(),
            probe_interval: PROBE_INTERVAL,
            slo: SLO,
            changes: Vec::new(),
            limit: LIMIT,
            events_max: u64::MAX,
            services: 1,
            bypass_share: 0.0,
        }
    }
}

impl RegionSetup {
    /// A region of equal replicas.
    pub fn new(name: &str, config: Config, replicas: usize) -> Self {
        Self {
            name: name.to_owned(),
            replicas: vec![ReplicaSetup::new(config); replicas],
        }
    }
}

impl ReplicaSetup {
    /// A replica as fast as its engine's timing says.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            speed: 1.0,
            has_prefix_caching: true,
        }
    }

    /// Configuration of the engine with the replica's speed applied.
    pub fn engine(&self) -> Config {
        Config {
            timing: self.config.timing.slowed(1.0 / self.speed.max(1e-6)),
            ..self.config
        }
    }
}
