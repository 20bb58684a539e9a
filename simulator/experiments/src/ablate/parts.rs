//! The changes: each constant and each rule, with up to three variants.

use core::time::Duration;

use isotherm_router::{Eviction, ForwardingRule, Push, QueueOrder, RegionChoice, RouterConfig};
use isotherm_simulator::{Arrangement, Setup};

/// Outstanding requests of a replica with the push rule `outstanding`.
const OUTSTANDING: Push = Push::Outstanding { max: 32 };
/// Crate of the constants; a shown name leaves it out.
const CRATE: &str = "isotherm_router::";

/// A change of a constant or of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Without,
    Halved,
    Doubled,
}

impl Variant {
    pub(super) const ALL: [Self; 3] = [Self::Without, Self::Halved, Self::Doubled];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Halved => "halved",
            Self::Doubled => "doubled",
        }
    }

    const fn factor(self) -> f64 {
        match self {
            Self::Without => 0.0,
            Self::Halved => 0.5,
            Self::Doubled => 2.0,
        }
    }
}

/// A constant or a rule.
#[derive(Clone, Debug)]
pub(super) struct PolicyPart {
    pub(super) name: String,
    subject: Subject,
}

#[derive(Clone, Copy, Debug)]
enum Subject {
    /// Name of a constant of the router.
    Constant(&'static str),
    /// A value of the configuration, multiplied by a factor.
    Value(fn(&mut RouterConfig, f64)),
    /// A rule that is on or off.
    Switch(fn(&mut Setup)),
    /// The seed of the run.
    Chance,
}

/// A change that a run has: a part in one of its variants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    subject: Subject,
    variant: Variant,
}

impl PolicyPart {
    /// The change of a variant, if the line has this variant.
    pub(super) fn change(&self, variant: Variant) -> Option<Change> {
        let subject = self.subject;
        let is_there = variant == Variant::Without || !matches!(subject, Subject::Switch(_));
        is_there.then_some(Change { subject, variant })
    }

    pub(super) const fn is_chance(&self) -> bool {
        matches!(self.subject, Subject::Chance)
    }
}

impl Change {
    /// The constant of the whole process that the change multiplies, and the factor.
    pub(super) const fn constant(self) -> Option<(&'static str, f64)> {
        match self.subject {
            Subject::Constant(name) => Some((name, self.variant.factor())),
            _ => None,
        }
    }

    /// Applies a change of the configuration or of the seed.
    pub(super) fn apply(self, setup: &mut Setup) {
        match self.subject {
            Subject::Constant(_) => {}
            Subject::Value(set) => change(setup, |config| set(config, self.variant.factor())),
            Subject::Switch(set) => set(setup),
            Subject::Chance => setup.seed ^= (1 + self.variant as u64) << 32,
        }
    }
}

/// Every line: chance, these constants, values of the configuration, and switches.
pub(super) fn all(constants: &[&'static str]) -> Vec<PolicyPart> {
    let line = |name: &str, subject| PolicyPart {
        name: name.to_owned(),
        subject,
    };
    let constants = constants.iter().map(|name| {
        let short = name.strip_prefix(CRATE).unwrap_or(name);
        line(short, Subject::Constant(name))
    });
    let values = VALUES
        .iter()
        .map(|(name, set)| line(name, Subject::Value(*set)));
    let switches = SWITCHES.iter();
    let switches = switches.map(|(name, set)| line(name, Subject::Switch(*set)));
    let chance = [line("chance (another seed of the run)", Subject::Chance)];
    let lines = chance.into_iter().chain(constants);
    lines.chain(values).chain(switches).collect()
}

type Value = (&'static str, fn(&mut RouterConfig, f64));
type Switch = (&'static str, fn(&mut Setup));

/// Values of the configuration, which a factor changes.
#[rustfmt::skip]
const VALUES: [Value; 8] = [
    ("config: ttft_slo", |config, factor| scale(&mut config.ttft_slo, factor)),
    ("config: queue.wait_max", |config, factor| scale(&mut config.queue.wait_max, factor)),
    ("config: index.bytes_max", |config, factor| config.index.bytes_max = (config.index.bytes_max as f64 * factor) as usize),
    ("config: probe_stale_after", |config, factor| scale(&mut config.probe_stale_after, factor)),
    ("config: region.queue_max", |config, factor| config.region.queue_max = (f64::from(config.region.queue_max) * factor) as u32),
    ("config: region.stale_after", |config, factor| scale(&mut config.region.stale_after, factor)),
    ("config: adapter_load", |config, factor| scale(&mut config.adapter_load, factor)),
    ("config: adapter_slots", |config, factor| config.adapter_slots = (f64::from(config.adapter_slots) * factor) as u32),
];

/// Rules that are on or off.
#[rustfmt::skip]
const SWITCHES: [Switch; 9] = [
    ("rule: push blindly", |setup| change(setup, |config| config.push = Push::Blind)),
    ("rule: push up to 32 outstanding", |setup| change(setup, |config| config.push = OUTSTANDING)),
    ("rule: first come, first served", |setup| change(setup, |config| config.queue.order = QueueOrder::Fcfs)),
    ("rule: earliest due time first", |setup| change(setup, |config| config.queue.order = QueueOrder::Edf)),
    ("rule: forward as published", |setup| change(setup, |config| { config.region.forwarding = ForwardingRule::Published; })),
    ("rule: forward by utilisation", |setup| change(setup, |config| { config.region.choice = RegionChoice::Utilisation; })),
    ("rule: no forwarding", |setup| { if let Arrangement::Router(config) = &setup.arrangement { setup.arrangement = Arrangement::RegionLocal(config.clone()); } }),
    ("rule: index evicts first in, first out", |setup| change(setup, |config| config.index.eviction = Eviction::Fifo)),
    ("rule: no quarantine", |setup| change(setup, |config| config.quarantine = Duration::ZERO)),
];

/// Changes the configuration of the routers of a set-up.
fn change(setup: &mut Setup, change: impl FnOnce(&mut RouterConfig)) {
    match &mut setup.arrangement {
        Arrangement::Router(config)
        | Arrangement::RegionLocal(config)
        | Arrangement::Central { config, .. } => change(config),
        Arrangement::Oracle => {}
    }
}

fn scale(time: &mut Duration, factor: f64) {
    *time = time.mul_f64(factor);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use isotherm_engine::model::Preset;

    use super::*;

    #[test]
    fn every_line_has_a_name_of_its_own_and_a_variant_without() {
        let all = all(&[
            "isotherm_router::queue::FIRST",
            "isotherm_router::queue::SECOND",
        ]);
        let names: BTreeSet<&str> = all.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.contains("queue::FIRST"));
        assert!(
            all.iter()
                .all(|line| line.change(Variant::Without).is_some())
        );
    }

    #[test]
    fn every_change_of_the_set_up_differs_from_the_shipped_one() {
        let shipped = || {
            let arrangement = Arrangement::Router(RouterConfig::default());
            Setup::one_region(Preset::Llama31_8bL4.config(), 2, arrangement)
        };
        let text = |setup: &Setup| format!("{setup:?}");
        for line in all(&[]) {
            for change in Variant::ALL.into_iter().filter_map(|one| line.change(one)) {
                let mut setup = shipped();
                change.apply(&mut setup);
                assert_ne!(text(&setup), text(&shipped()), "{}", line.name);
            }
        }
    }
}
