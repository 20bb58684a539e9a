//! Everything of a run but its workload.

use core::time::Duration;

use isotherm_engine::model::Config;
use isotherm_router::{Ablation, RouterConfig};

use crate::network::Network;

/// How often a replica is probed: the service's own default.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Within what time a first token is wanted: what DualMap takes.
pub const SLO: Duration = Duration::from_secs(5);
/// When a run is cut: no workload is that long, a run that does not end is.
pub const LIMIT: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Everything of a run but its workload.
///
/// Replicas are numbered over the regions in order, then those that join later, in the order of [`Setup::changes`].
#[derive(Clone, Debug)]
pub struct Setup {
    /// What everything random follows from.
    pub seed: u64,
    /// One or many.
    pub regions: Vec<RegionSetup>,
    /// How long messages take.
    pub network: Network,
    /// Who decides.
    pub balancing: Balancing,
    /// Parts of the policy that are switched off in every router.
    pub ablation: Option<Ablation>,
    /// Between two probes of one replica. A probe says what the engine had when it read it, and is told after the way back.
    pub probe_interval: Duration,
    /// Within what time a first token is wanted; the figures count it, nobody is told.
    pub slo: Duration,
    /// What happens to the fleet on the way.
    pub changes: Vec<Change>,
    /// Virtual time after which the run is cut.
    pub limit: Duration,
}

/// A region: its replicas at the start.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionSetup {
    /// Its name, which places it on hash rings.
    pub name: String,
    /// Its replicas.
    pub replicas: Vec<ReplicaSetup>,
}

/// One replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaSetup {
    /// Its engine.
    pub config: Config,
    /// How fast it is, next to what the engine's timing says: 0.5 takes twice as long for everything.
    pub speed: f64,
}

/// Who decides.
#[derive(Clone, Debug, PartialEq)]
pub enum Balancing {
    /// The shipped core: one router a region, which forwards to the others when there are several.
    Router(RouterConfig),
    /// One router a region, and nothing is forwarded.
    RegionLocal(RouterConfig),
    /// One router for the replicas of all regions.
    Central {
        /// What it is told.
        config: RouterConfig,
        /// Where it stands.
        region: usize,
    },
    /// It sees into the engines.
    Oracle,
}

/// Something that happens to the fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// When.
    pub at: Duration,
    /// What.
    pub what: Action,
}

/// What can happen to the fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// A replica joins, with an empty cache.
    Join {
        /// Its region.
        region: usize,
        /// What it is like.
        replica: ReplicaSetup,
    },
    /// A replica finishes what it has, and gets nothing new.
    Drain {
        /// Which one.
        replica: usize,
    },
    /// A replica leaves the pool. What it has in flight ends as it ends.
    Leave {
        /// Which one.
        replica: usize,
    },
    /// A replica becomes slower, or faster.
    Speed {
        /// Which one.
        replica: usize,
        /// As [`ReplicaSetup::speed`].
        speed: f64,
    },
}

impl Setup {
    /// One region of equal replicas, with every default.
    #[must_use]
    pub fn one_region(config: Config, replicas: usize, balancing: Balancing) -> Self {
        Self::regions(vec![RegionSetup::new("one", config, replicas)], balancing)
    }

    /// These regions, with every default.
    #[must_use]
    pub fn regions(regions: Vec<RegionSetup>, balancing: Balancing) -> Self {
        Self {
            seed: 1,
            regions,
            network: Network::default(),
            balancing,
            ablation: None,
            probe_interval: PROBE_INTERVAL,
            slo: SLO,
            changes: Vec::new(),
            limit: LIMIT,
        }
    }
}

impl RegionSetup {
    /// A region of equal replicas.
    #[must_use]
    pub fn new(name: &str, config: Config, replicas: usize) -> Self {
        Self {
            name: name.to_owned(),
            replicas: vec![ReplicaSetup::new(config); replicas],
        }
    }
}

impl ReplicaSetup {
    /// A replica as fast as its engine's timing says.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, speed: 1.0 }
    }

    /// Its engine, its speed counted in.
    #[must_use]
    pub fn engine(&self) -> Config {
        Config {
            timing: self.config.timing.slowed(1.0 / self.speed.max(1e-6)),
            ..self.config
        }
    }
}
