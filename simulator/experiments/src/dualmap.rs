//! Shared by the experiments after DualMap: policies, fleet, the sweep over the request rate.
//!
//! The paper's instances are one Ascend 910B4 each with Qwen2.5-7B and a cache of a million tokens in host memory. The
//! nearest engine of ours that is measured is Llama-3.1-8B on two A100: 944,000 tokens of cache, and a prefill several times
//! as fast, so rates are not the paper's; what is compared is where each policy lies against the others.
//!
//! Policies of the paper as ours: Cache Affinity is a consistent hash of the first two blocks of 512 tokens of a prompt
//! (the length that the paper finds for 95 % of conversations, A.1.1); Least Loaded goes by outstanding requests
//! (the paper's by pending tokens). The baselines push at once, as they do in the paper. DualMap and `isotherm` let requests
//! wait in the router (pending requests): only there can DualMap still migrate them.

use isotherm_engine::model::presets::Preset;
use isotherm_report::number::short;
use isotherm_router::{PolicyName, Push};

use crate::context::{Case, Context, WorkloadSource, config};
use crate::figures::attainment;
use crate::rows::Rows;
use crate::workloads;
use isotherm_simulator::{Arrangement, Setup};

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
pub(crate) const GROUPS: [&str; 2] = [CONVERSATION, TOOLS];

pub(crate) const REPLICAS: usize = 8;
/// Share of requests within the SLO at which the paper takes the goodput.
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
        workloads::conversation(context.effort(), rate)
    };
    workloads::keyed_by_prefix(drawn)
}

/// Rates of a group, requests per second for the whole fleet: from little to past saturation.
fn rates(group: &str) -> &'static [f64] {
    if group == TOOLS {
        &[6.0, 8.0, 10.0, 11.0, 12.0, 14.0, 16.0, 18.0]
    } else {
        &[5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]
    }
}

/// Every policy on both workloads over the rate: Figures 1, 3, 4, 10 and 11 are all drawn from these runs.
pub(crate) fn over_rate(context: &Context) -> Rows {
    context.once("dualmap over rate", || {
        let mut cases = Vec::new();
        for group in GROUPS {
            for rate in context.points(rates(group)) {
                for system in SYSTEMS {
                    let setup = setup(REPLICAS, arrangement(system));
                    let source = source(context, group, rate);
                    cases.push(Case::new(group, system, rate, setup, &source));
                }
            }
        }
        context.run(2, &cases)
    })
}

/// The highest rate with the wanted share within the SLO: between the last rate that has it and the next one, in
/// proportion; nothing below the first rate.
pub(crate) fn goodput(rows: &Rows, group: &str, system: &str) -> f64 {
    let share = |x: f64| rows.mean(group, system, x, attainment);
    let xs = rows.xs(group);
    let mut goodput = 0.0;
    for (index, &x) in xs.iter().enumerate() {
        let here = share(x);
        if here >= GOODPUT_SHARE {
            goodput = x;
            continue;
        }
        if let Some(&before) = index.checked_sub(1).and_then(|last| xs.get(last)) {
            let above = share(before);
            goodput = before + (x - before) * (above - GOODPUT_SHARE) / (above - here);
        }
        break;
    }
    goodput
}

/// The goodput as text; "at least" when the objective held at the last rate too.
pub(crate) fn goodput_shown(rows: &Rows, group: &str, system: &str) -> String {
    let goodput = goodput(rows, group, system);
    if rows.xs(group).last() == Some(&goodput) {
        format!("at least {}", short(goodput))
    } else {
        short(goodput)
    }
}

/// The highest share within the objective among systems.
pub(crate) fn best_attainment(rows: &Rows, group: &str, systems: &[&str], x: f64) -> f64 {
    let shares = systems
        .iter()
        .map(|system| rows.mean(group, system, x, attainment));
    shares.fold(0.0, f64::max)
}

/// The system with the highest goodput, and that goodput.
pub(crate) fn best_goodput<'a>(rows: &Rows, group: &str, systems: &[&'a str]) -> (&'a str, f64) {
    let of = |system: &str| goodput(rows, group, system);
    let best = Rows::best(systems.iter().copied(), of);
    best.map_or((DUAL_MAP, f64::NAN), |best| (best, of(best)))
}

/// The first rate at which DualMap's best baseline has fallen below the wanted share: "high rates" begin here.
pub(crate) fn high_rates(rows: &Rows, group: &str) -> Vec<f64> {
    let best = |x: f64| best_attainment(rows, group, &BASELINES, x);
    let xs = rows.xs(group);
    let high: Vec<f64> = xs
        .iter()
        .copied()
        .filter(|&x| best(x) < GOODPUT_SHARE)
        .collect();
    if high.is_empty() {
        xs.last().copied().into_iter().collect()
    } else {
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
                row.summary.slo_attainment = share;
                row
            });
            goodput_shown(&Rows(rows.into()), TOOLS, DUAL_MAP)
        };
        assert_eq!(shown(0.85), short(1.5));
        assert_eq!(shown(0.95), format!("at least {}", short(2.0)));
    }
}
