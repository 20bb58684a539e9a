//! Shared by the experiments after DualMap: policies, fleet, a sweep over the request rate.
//!
//! The paper's instances are one Ascend 910B4 each with Qwen2.5-7B and a cache of a million tokens. The nearest measured
//! engine, Llama-3.1-8B on two A100, caches 944,000 tokens and prefills several times as fast: only the order of the policies
//! compares, not the rates.
//!
//! Cache Affinity is a consistent hash of the first two blocks of 512 tokens of a prompt (A.1.1). Least Loaded goes by
//! outstanding requests (the paper's by pending tokens). The baselines push at once, as in the paper. DualMap and `isotherm`
//! let requests wait in the router: only there can DualMap still migrate them.

use isotherm_engine::model::presets::Preset;
use isotherm_policies::PolicyName;
use isotherm_report::number::short;
use isotherm_router::Push;
use isotherm_simulator::{Arrangement, Setup};

use crate::context::{Context, WorkloadSource, config};
use crate::figures::ATTAINMENT;
use crate::rows::{Panel, Rows, highest};
use crate::workloads;

pub(crate) const AFFINITY: &str = "Cache Affinity";
pub(crate) const LEAST_LOADED: &str = "Least Loaded";
pub(crate) const MIN_TTFT: &str = "Min TTFT";
pub(crate) const PREBLE: &str = "Preble";
pub(crate) const DUAL_MAP: &str = "DualMap";
pub(crate) const ISOTHERM: &str = "isotherm";
/// In the order of the colours.
pub(crate) const SYSTEMS: [&str; 6] =
    [AFFINITY, LEAST_LOADED, MIN_TTFT, PREBLE, DUAL_MAP, ISOTHERM];
/// Baselines of the paper.
pub(crate) const BASELINES: [&str; 4] = [AFFINITY, LEAST_LOADED, MIN_TTFT, PREBLE];

pub(crate) const CONVERSATION: &str = "Conversation";
pub(crate) const TOOLS: &str = "Tool&Agent";

pub(crate) const REPLICAS: usize = 8;
/// Share of requests within the SLO that makes goodput.
pub(crate) const GOODPUT_SHARE: f64 = 0.9;

/// The arrangement of a system.
pub(crate) fn arrangement(system: &str) -> Arrangement {
    let push = match system {
        DUAL_MAP | ISOTHERM => Push::Pending,
        _ => Push::Blind,
    };
    Arrangement::Router(config(policy(system), push))
}

/// The policy of a system.
pub(crate) fn policy(system: &str) -> PolicyName {
    match system {
        AFFINITY => PolicyName::ConsistentHash,
        MIN_TTFT => PolicyName::MinTtft,
        PREBLE => PolicyName::Preble,
        DUAL_MAP => PolicyName::DualMap,
        ISOTHERM => PolicyName::Isotherm,
        _ => PolicyName::LeastOutstanding,
    }
}

/// Remark on the systems and on the second workload.
pub(crate) const PUSHING: &str = "The paper's baselines push each request at once, as published; DualMap and isotherm hold back what an engine cannot take yet. \
                                  Tool&Agent is synthetic.";

/// A fleet of the paper's size.
pub(crate) fn setup(replicas: usize, arrangement: Arrangement) -> Setup {
    Setup::one_region(Preset::Llama31_8b2xA100.config(), replicas, arrangement)
}

/// The workload of a group at a rate, keyed for Cache Affinity.
pub(crate) fn source(context: &Context, group: &str, rate: f64) -> WorkloadSource {
    let drawn = if group == TOOLS {
        workloads::tools(rate, context.size(4_000))
    } else {
        workloads::conversation(&context.effort, rate)
    };
    workloads::keyed_by_prefix(drawn)
}

/// The runs of a group over the request rate.
#[derive(Clone, Copy)]
pub(crate) struct Sweep<'a> {
    pub(crate) rows: &'a Rows,
    pub(crate) group: &'a str,
}

impl<'a> Sweep<'a> {
    pub(crate) fn new(rows: &'a Rows, group: &'a str) -> Self {
        Self { rows, group }
    }

    pub(crate) fn rates(self) -> Vec<f64> {
        self.rows.xs(self.group)
    }

    pub(crate) fn at(self, rate: f64) -> Panel<'a> {
        self.rows.at(self.group, rate)
    }

    /// The highest rate with the wanted share within the SLO: between the last rate that has it and the next one, in
    /// proportion; zero below the first rate.
    pub(crate) fn goodput(self, system: &str) -> f64 {
        let mut last = None;
        for rate in self.rates() {
            let share = self.at(rate).mean(system, ATTAINMENT);
            if share >= GOODPUT_SHARE {
                last = Some((rate, share));
                continue;
            }
            return last.map_or(0.0, |(before, above)| {
                before + (rate - before) * (above - GOODPUT_SHARE) / (above - share)
            });
        }
        last.map_or(0.0, |(rate, _)| rate)
    }

    /// The goodput as text; "at least" when the objective held at the last rate too.
    pub(crate) fn goodput_shown(self, system: &str) -> String {
        let goodput = self.goodput(system);
        let is_bound = self.rates().last() == Some(&goodput);
        format!(
            "{}{}",
            if is_bound { "at least " } else { "" },
            short(goodput)
        )
    }

    /// The system with the highest goodput, and that goodput.
    pub(crate) fn best_goodput<'s>(self, systems: &[&'s str]) -> (&'s str, f64) {
        let best = highest(systems.iter().copied(), |system| self.goodput(system));
        best.map_or((DUAL_MAP, f64::NAN), |best| (best, self.goodput(best)))
    }

    /// The highest share within the objective among systems.
    pub(crate) fn best_attainment(self, systems: &[&str], rate: f64) -> f64 {
        let shares = systems
            .iter()
            .map(|system| self.at(rate).mean(system, ATTAINMENT));
        shares.fold(0.0, f64::max)
    }

    /// High rates, as the paper has them: the best baseline is below the wanted share. At least the last rate.
    pub(crate) fn high_rates(self) -> Vec<f64> {
        let rates = self.rates();
        let last = rates.last().copied();
        let is_high = |rate: &f64| self.best_attainment(&BASELINES, *rate) < GOODPUT_SHARE;
        let high: Vec<f64> = rates.into_iter().filter(is_high).collect();
        if high.is_empty() {
            return last.into_iter().collect();
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::row;

    #[test]
    fn a_goodput_reached_at_the_last_rate_is_a_lower_bound() {
        let shown = |last: f64| {
            let rows = [(1.0, 0.95), (2.0, last)].map(|(rate, share)| {
                let mut row = row(TOOLS, DUAL_MAP, rate, 1, 0.0);
                row.summary.as_mut().unwrap().slo_attainment = share;
                row
            });
            let rows = &Rows(rows.into());
            Sweep::new(rows, TOOLS).goodput_shown(DUAL_MAP)
        };
        assert_eq!(shown(0.85), short(1.5));
        assert_eq!(shown(0.95), format!("at least {}", short(2.0)));
    }
}
