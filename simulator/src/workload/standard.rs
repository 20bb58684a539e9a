//! The workloads on which policies are judged, each with the fleet and the load that it runs on.
//!
//! Open loops are played at a moderate load, at a high one, and about where the fleet ends, as their names say; closed loops find
//! their own.
//! The fleets are those of the papers: eight instances for traces (DualMap 4.1), twelve L4s in three regions for chats and trees
//! (SkyLB 5.1). A run is short, some thousand requests: judging takes policies x workloads x seeds of them.

use isotherm_engine::model::Preset;

use super::Workload;
use super::bursty::Bursty;
use super::chat::Chat;
use super::diurnal::Diurnal;
use super::generator::{Generator, conversation};
use super::tools::Tools;
use super::tree_of_thoughts::TreeOfThoughts;
use crate::compare::Fleet;
use crate::setup::{Arrangement, RegionSetup, ReplicaSetup, Setup};

/// A workload with its fleet.
#[derive(Clone, Debug)]
pub struct Standard {
    /// Name of the workload, unique in the list.
    pub name: &'static str,
    /// The workload.
    pub generator: Generator,
    /// The fleet.
    pub regions: Vec<RegionSetup>,
}

impl Standard {
    /// The workload of this seed.
    #[must_use]
    pub fn workload(&self, seed: u64) -> Workload {
        Workload {
            name: self.name.to_owned(),
            ..self.generator.generate(seed)
        }
    }

    /// Fleet of the workload, in a form that can be cut if its replicas are equal and evenly spread.
    #[must_use]
    pub fn fleet(&self) -> Fleet {
        let equal = Preset::ALL.into_iter().find_map(|engine| {
            let fleet = Fleet::Equal {
                engine,
                replicas: self
                    .regions
                    .iter()
                    .map(|region| region.replicas.len())
                    .sum(),
                regions: self
                    .regions
                    .iter()
                    .map(|region| region.name.clone())
                    .collect(),
            };
            (fleet.regions() == self.regions).then_some(fleet)
        });
        equal.unwrap_or_else(|| Fleet::Given(self.regions.clone()))
    }

    /// Set-up of the workload's fleet with this arrangement of routers.
    #[must_use]
    pub fn setup(&self, seed: u64, arrangement: Arrangement) -> Setup {
        Setup {
            seed,
            ..Setup::regions(self.regions.clone(), arrangement)
        }
    }
}

/// The workloads on which policies are judged.
#[must_use]
pub fn standard() -> Vec<Standard> {
    let of = |name, generator, regions| Standard {
        name,
        generator,
        regions,
    };
    let tools = |requests_per_s| {
        Generator::Tools(Tools {
            requests_per_s,
            ..Tools::default()
        })
    };
    vec![
        of("conversation-moderate", conversation(6.0), eight()),
        of("conversation-high", conversation(8.0), eight()),
        of("conversation-past", conversation(9.5), eight()),
        of(
            "chat-wildchat",
            Generator::Chat(Chat::wildchat()),
            three_regions(),
        ),
        of(
            "chat-arena",
            Generator::Chat(Chat::arena()),
            three_regions(),
        ),
        of(
            "tot-2",
            Generator::TreeOfThoughts(TreeOfThoughts::uniform()),
            three_regions(),
        ),
        of(
            "tot-mixed",
            Generator::TreeOfThoughts(TreeOfThoughts::mixed()),
            three_regions(),
        ),
        of("tools-moderate", tools(9.0), eight()),
        of("tools-high", tools(14.0), eight()),
        of("tools-past", tools(16.0), eight()),
        of("bursty", Generator::Bursty(Bursty::default()), l4s(8)),
        of(
            "diurnal",
            Generator::Diurnal(Diurnal::default()),
            three_regions(),
        ),
        of(
            "heterogeneous",
            Generator::Chat(one_region_chat()),
            mixed_speeds(),
        ),
    ]
}

/// Eight replicas of two A100s each, in one region.
fn eight() -> Vec<RegionSetup> {
    vec![RegionSetup::new(
        "one",
        Preset::Llama31_8b2xA100.config(),
        8,
    )]
}

/// L4s in one region.
fn l4s(replicas: usize) -> Vec<RegionSetup> {
    vec![RegionSetup::new(
        "one",
        Preset::Llama31_8bL4.config(),
        replicas,
    )]
}

/// Four L4s in each of three regions.
fn three_regions() -> Vec<RegionSetup> {
    ["us", "eu", "asia"]
        .map(|name| RegionSetup::new(name, Preset::Llama31_8bL4.config(), 4))
        .into()
}

/// Two replicas of half the speed, two of the usual, two of twice the speed.
fn mixed_speeds() -> Vec<RegionSetup> {
    let config = Preset::Llama31_8bL4.config();
    let replicas = [0.5, 0.5, 1.0, 1.0, 2.0, 2.0]
        .map(|speed| ReplicaSetup { config, speed })
        .into();
    vec![RegionSetup {
        name: "one".to_owned(),
        replicas,
    }]
}

/// Arena's people, all in one region.
fn one_region_chat() -> Chat {
    Chat {
        name: "heterogeneous",
        clients: vec![120],
        ..Chat::arena()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_standard_workload_is_short_and_fits_its_fleet() {
        let all = standard();
        let names: BTreeSet<&str> = all.iter().map(|standard| standard.name).collect();
        assert_eq!(names.len(), all.len());
        for standard in all {
            let workload = standard.workload(1);
            assert_eq!(workload.name, standard.name);
            assert!(standard.generator.regions() <= standard.regions.len());
            if workload.sends_until.is_none() {
                assert!(
                    (1_000..=4_500).contains(&workload.requests()),
                    "{} has {}",
                    standard.name,
                    workload.requests()
                );
            }
            let most = standard
                .regions
                .iter()
                .flat_map(|region| &region.replicas)
                .map(|replica| replica.config.request_tokens_max())
                .min();
            let longest = workload
                .sessions
                .iter()
                .flat_map(|session| &session.steps)
                .map(|step| step.prompt.tokens() + step.output_tokens)
                .max();
            assert!(
                longest <= most,
                "{}: {longest:?} of {most:?}",
                standard.name
            );
        }
    }
}
