//! The fleet of a comparison: equal replicas spread evenly over regions, or a given set-up.

use isotherm_engine::model::Preset;

use crate::setup::RegionSetup;

/// A fleet.
#[derive(Clone, Debug, PartialEq)]
pub enum Fleet {
    /// Equal replicas.
    Equal {
        /// Engine of the replicas.
        engine: Preset,
        /// Number of replicas, over all regions.
        replicas: usize,
        /// The regions' names: at least one.
        regions: Vec<String>,
    },
    /// The fleet of a standard workload.
    Given(Vec<RegionSetup>),
}

impl Fleet {
    /// The regions with their replicas; the first ones have one more where the number does not divide.
    pub fn regions(&self) -> Vec<RegionSetup> {
        match self {
            Self::Given(regions) => regions.clone(),
            Self::Equal {
                engine,
                replicas,
                regions,
            } => {
                let count = regions.len().max(1);
                let region = |(index, name): (usize, &String)| {
                    let one_more = usize::from(index < replicas % count);
                    RegionSetup::new(name, engine.config(), replicas / count + one_more)
                };
                regions.iter().enumerate().map(region).collect()
            }
        }
    }

    /// Number of replicas.
    pub fn replicas(&self) -> usize {
        self.regions()
            .iter()
            .map(|region| region.replicas.len())
            .sum()
    }

    /// The longest request that every replica takes, prompt and answer, tokens.
    pub fn request_tokens_max(&self) -> u32 {
        let regions = self.regions();
        let replicas = regions.iter().flat_map(|region| &region.replicas);
        let most = replicas
            .map(|replica| replica.config.request_tokens_max())
            .min();
        most.unwrap_or(0)
    }

    /// This fleet with another number of replicas; `None` when its replicas differ, so that it cannot be cut evenly.
    pub fn of(&self, count: usize) -> Option<Self> {
        let mut fleet = self.clone();
        match &mut fleet {
            Self::Given(_) => return None,
            Self::Equal { replicas, .. } => *replicas = count,
        }
        Some(fleet)
    }

    /// Description of the fleet.
    pub fn describe(&self) -> String {
        match self {
            Self::Given(regions) => format!(
                "{} replicas in {} region(s), as the standard workload has them",
                self.replicas(),
                regions.len()
            ),
            Self::Equal {
                engine,
                replicas,
                regions,
            } => match regions.len() {
                1 => format!("{replicas} x {engine}"),
                count => format!(
                    "{replicas} x {engine} in {count} regions ({})",
                    regions.join(", ")
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_spread_evenly() {
        let fleet = Fleet::Equal {
            engine: Preset::Llama31_8bL4,
            replicas: 8,
            regions: ["a", "b", "c"].map(str::to_owned).into(),
        };
        let counts = |fleet: &Fleet| -> Vec<usize> {
            fleet
                .regions()
                .iter()
                .map(|region| region.replicas.len())
                .collect()
        };
        assert_eq!(counts(&fleet), [3, 3, 2]);
        assert_eq!(counts(&fleet.of(4).unwrap()), [2, 1, 1]);
        assert_eq!(fleet.replicas(), 8);
    }
}
