//! The workloads on which policies are judged, each with the fleet and the load that it runs on.
//!
//! Open loops run at a moderate load, at a high one, and past what the fleet serves, as their names say; closed loops find their
//! own load. The fleets are those of the papers: eight instances for traces (DualMap 4.1), twelve L4s in three regions for
//! chats and trees (SkyLB 5.1). A run is some thousand requests: judging takes policies x workloads x seeds of them.

use core::time::Duration;

use isotherm_engine::model::Preset;

use super::Workload;
use super::chat::Chat;
use super::generator::{Generator, conversation, tools_at};
use super::tree_of_thoughts::TreeOfThoughts;
use crate::compare::Fleet;
use crate::setup::{Arrangement, Change, PROBE_INTERVAL, RegionSetup, Setup};

/// A workload with its fleet.
#[derive(Clone, Debug)]
pub struct Standard {
    /// Name of the workload, unique in the list.
    pub name: &'static str,
    /// The workload.
    pub generator: Generator,
    /// The fleet.
    pub regions: Vec<RegionSetup>,
    /// Faults of the fleet during the run.
    pub changes: Vec<Change>,
    /// Interval between probes of a replica.
    pub probe_interval: Duration,
    /// Services over the one pool, as in [`Setup::services`].
    pub services: usize,
    /// Share of the sessions that another router serves, as in [`Setup::bypass_share`].
    pub bypass_share: f64,
}

impl Standard {
    /// A workload with its fleet, which has no fault and a single service.
    pub const fn new(name: &'static str, generator: Generator, regions: Vec<RegionSetup>) -> Self {
        Self {
            name,
            generator,
            regions,
            changes: Vec::new(),
            probe_interval: PROBE_INTERVAL,
            services: 1,
            bypass_share: 0.0,
        }
    }

    /// The workload of this seed.
    pub fn workload(&self, seed: u64) -> Workload {
        Workload {
            name: self.name.to_owned(),
            ..self.generator.generate(seed)
        }
    }

    /// This workload with its length multiplied by `scale`, at the same load. The first fault moves with it; later ones keep
    /// their distance.
    pub fn scaled(mut self, scale: f64) -> Self {
        self.generator = self.generator.scaled(scale);
        let first = self.changes.iter().map(|change| change.at).min();
        let first = first.unwrap_or_default();
        let earlier = first.saturating_sub(first.mul_f64(scale.clamp(0.0, 1.0)));
        for change in &mut self.changes {
            change.at -= earlier;
        }
        self
    }

    /// Fleet of the workload, in a form that can be cut if its replicas are equal and evenly spread.
    pub fn fleet(&self) -> Fleet {
        let regions = self.regions.iter();
        let equal = Preset::ALL.into_iter().map(|engine| Fleet::Equal {
            engine,
            replicas: regions.clone().map(|region| region.replicas.len()).sum(),
            regions: regions.clone().map(|region| region.name.clone()).collect(),
        });
        let fits = |fleet: &Fleet| fleet.regions() == self.regions;
        equal
            .into_iter()
            .find(fits)
            .unwrap_or_else(|| Fleet::Given(self.regions.clone()))
    }

    /// Set-up of the workload's fleet with this arrangement of routers.
    pub fn setup(&self, seed: u64, arrangement: Arrangement) -> Setup {
        Setup {
            seed,
            changes: self.changes.clone(),
            probe_interval: self.probe_interval,
            services: self.services,
            bypass_share: self.bypass_share,
            ..Setup::regions(self.regions.clone(), arrangement)
        }
    }
}

/// The workloads on which policies are judged.
pub fn standard() -> Vec<Standard> {
    let a100 = Preset::Llama31_8b2xA100;
    let eight = || vec![RegionSetup::new("one", a100.config(), 8)];
    let l4s = |name, replicas| RegionSetup::new(name, Preset::Llama31_8bL4.config(), replicas);
    let three_regions = || ["us", "eu", "asia"].map(|name| l4s(name, 4)).to_vec();
    // Two replicas of half the speed, two of the usual, two of twice the speed.
    let mut mixed_speeds = l4s("one", 6);
    let speeds = [0.5, 0.5, 1.0, 1.0, 2.0, 2.0];
    for (replica, speed) in mixed_speeds.replicas.iter_mut().zip(speeds) {
        replica.speed = speed;
    }
    let heterogeneous = Chat {
        name: "heterogeneous",
        clients: vec![120],
        ..Chat::arena()
    };
    let chats = [Chat::wildchat(), Chat::arena(), heterogeneous];
    let [wildchat, arena, heterogeneous] = chats.map(Generator::Chat);
    let trees = [TreeOfThoughts::uniform(), TreeOfThoughts::mixed()];
    let [tot_2, tot_mixed] = trees.map(Generator::TreeOfThoughts);
    let all = [
        ("conversation-moderate", conversation(6.0), eight()),
        ("conversation-high", conversation(8.0), eight()),
        ("conversation-past", conversation(9.5), eight()),
        ("chat-wildchat", wildchat, three_regions()),
        ("chat-arena", arena, three_regions()),
        ("tot-2", tot_2, three_regions()),
        ("tot-mixed", tot_mixed, three_regions()),
        ("tools-moderate", tools_at(9.0), eight()),
        ("tools-high", tools_at(14.0), eight()),
        ("tools-past", tools_at(16.0), eight()),
        ("bursty", Generator::Bursty(1.0), vec![l4s("one", 8)]),
        ("diurnal", Generator::Diurnal(1.0), three_regions()),
        ("heterogeneous", heterogeneous, vec![mixed_speeds]),
    ];
    let standard = |(name, generator, regions)| Standard::new(name, generator, regions);
    all.map(standard).into()
}
