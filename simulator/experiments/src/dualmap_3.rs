//! DualMap, Figure 3: effective request capacity and goodput over the request rate; the cache hits and the evenness of the load
//! (Figures 10 and 11) explain them.
//!
//! The paper's instances are one Ascend 910B4 each with Qwen2.5-7B and a cache of a million tokens. The nearest measured
//! engine, Llama-3.1-8B on two A100, caches 944,000 tokens and prefills several times as fast: only the order of the policies
//! compares, not the rates.
//!
//! Cache Affinity is a consistent hash of the first two blocks of 512 tokens of a prompt (A.1.1). Least Loaded goes by
//! outstanding requests (the paper's by pending tokens). The baselines push at once, as in the paper. DualMap and `isotherm`
//! let requests wait in the router: only there can DualMap still migrate them. Balance is the coefficient of variation of the
//! replicas' pending prefill tokens (the paper's equation 1), sampled once a second, mean over the samples with pending tokens.

use isotherm_engine::model::presets::Preset;
use isotherm_policies::PolicyName;
use isotherm_report::number::{short, times};
use isotherm_report::{Conclusion, Section, Table};
use isotherm_router::Push;
use isotherm_simulator::{Arrangement, Setup};

use crate::context::{Context, config, grid};
use crate::document::Document;
use crate::figures::{ATTAINMENT, CV, HITS};
use crate::paper::{PaperComparison, Source};
use crate::rows::{Panel, Rows, highest};
use crate::workloads::{self, described};

const SEEDS: u64 = 2;
const AFFINITY: &str = "Cache Affinity";
const LEAST_LOADED: &str = "Least Loaded";
const MIN_TTFT: &str = "Min TTFT";
const PREBLE: &str = "Preble";
const DUAL_MAP: &str = "DualMap";
const ISOTHERM: &str = "isotherm";
const SYSTEMS: [&str; 6] = [AFFINITY, LEAST_LOADED, MIN_TTFT, PREBLE, DUAL_MAP, ISOTHERM];
/// Baselines of the paper.
const BASELINES: [&str; 4] = [AFFINITY, LEAST_LOADED, MIN_TTFT, PREBLE];
const REPLICAS: usize = 8;
/// Share of requests within the SLO that makes goodput.
const GOODPUT_SHARE: f64 = 0.9;
const CONVERSATION: &str = "Conversation";
const TOOLS: &str = "Tool&Agent";
/// Requests per second of each workload for the whole fleet: from little to past saturation.
const RATES: [(&str, [f64; 8]); 2] = [
    (CONVERSATION, [5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]),
    (TOOLS, [6.0, 8.0, 10.0, 11.0, 12.0, 14.0, 16.0, 18.0]),
];
const SOURCE: Source = Source("DualMap, section 4.2, text on Figure 3");

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let cases = RATES.map(|(group, rates)| {
        grid(group, &context.points(&rates), &SYSTEMS, |rate, system| {
            let source = if group == TOOLS {
                workloads::tools(rate, context.size(4_000))
            } else {
                workloads::conversation(&context.effort, rate)
            };
            (setup(system), workloads::keyed_by_prefix(source))
        })
    });
    let rows = context.run(SEEDS, &cases.concat());
    let sweeps = RATES.map(|(group, _)| Sweep { rows: &rows, group });
    let section = |sweep: Sweep<'_>| {
        let rows = rows.filtered(|row| row.group == sweep.group);
        let lines = rows.table("requests/s", &[ATTAINMENT, HITS, CV]);
        let section = Section::detail(sweep.group).table(lines);
        section.table(goodputs(sweep))
    };
    Document {
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each; the paper: Qwen2.5-7B on one Ascend 910B4, so rates differ). Effective request capacity: \
             the share of requests with a first token within 5 s. Goodput: the highest rate at which that is {:.0} %, between two rates in proportion. {} \
             The paper's baselines push each request at once, as published; DualMap and isotherm hold back what an engine cannot take yet. \
             Tool&Agent is synthetic.",
            GOODPUT_SHARE * 100.0,
            described(&context.effort)
        )],
        paper: sweeps.into_iter().flat_map(gains).collect(),
        conclusions: sweeps.into_iter().flat_map(capacity).collect(),
        sections: sweeps.map(section).into(),
        rows,
        ..Document::default()
    }
}

/// A fleet of the paper's size, with a system.
fn setup(system: &str) -> Setup {
    let (policy, push) = match system {
        AFFINITY => (PolicyName::ConsistentHash, Push::Blind),
        MIN_TTFT => (PolicyName::MinTtft, Push::Blind),
        PREBLE => (PolicyName::Preble, Push::Blind),
        DUAL_MAP => (PolicyName::DualMap, Push::Pending),
        ISOTHERM => (PolicyName::Isotherm, Push::Pending),
        _ => (PolicyName::LeastOutstanding, Push::Blind),
    };
    let arrangement = Arrangement::Router(config(policy, push));
    Setup::one_region(Preset::Llama31_8b2xA100.config(), REPLICAS, arrangement)
}

fn goodputs(sweep: Sweep<'_>) -> Table {
    let rates = sweep.rates();
    let names = rates.iter().map(|rate| format!("{} /s", short(*rate)));
    let columns = ["system", "goodput, requests/s"].map(String::from);
    Table::new(columns.into_iter().chain(names)).with_rows(SYSTEMS.map(|system| {
        let share = |rate: &f64| sweep.at(*rate).shown(system, ATTAINMENT);
        let head = [system.to_owned(), sweep.goodput_shown(system)];
        head.into_iter()
            .chain(rates.iter().map(share))
            .collect::<Vec<_>>()
    }))
}

/// Relative gains of DualMap over the best baseline.
fn gains(sweep: Sweep<'_>) -> [PaperComparison; 2] {
    let group = sweep.group;
    let (capacity, goodput, up_to) = match group {
        TOOLS => ((1.25, 1.25), (0.167, 0.48), "at its best rate"),
        _ => ((0.406, 0.8), (0.143, 0.4), "at high rates"),
    };
    let gain = |rate| {
        let best = sweep.best_attainment(&BASELINES, rate);
        sweep.at(rate).mean(DUAL_MAP, ATTAINMENT) / best - 1.0
    };
    let most = sweep
        .high_rates()
        .into_iter()
        .map(gain)
        .fold(f64::NAN, f64::max);
    let (_, best) = sweep.best_goodput(&BASELINES);
    [
        SOURCE.share(
            format!("{group}: capacity above the best baseline's, {up_to}"),
            capacity,
            &[most],
        ),
        SOURCE.share(
            format!("{group}: goodput above the best baseline's"),
            goodput,
            &[sweep.goodput(DUAL_MAP) / best - 1.0],
        ),
    ]
}

fn capacity(sweep: Sweep<'_>) -> Vec<Conclusion> {
    let group = sweep.group;
    let (best, theirs) = sweep.best_goodput(&BASELINES);
    let ours = sweep.goodput(DUAL_MAP);
    let mut conclusions = vec![
        Conclusion::claim(
            format!(
                "{group}: DualMap's goodput is at least that of the best baseline, {best}: {} against {} requests/s.",
                sweep.goodput_shown(DUAL_MAP),
                sweep.goodput_shown(best)
            ),
            theirs > 0.0 && ours >= theirs,
        ),
        Conclusion::note(format!(
            "{group}: isotherm's goodput is {} requests/s, {} that of DualMap.",
            sweep.goodput_shown(ISOTHERM),
            times(sweep.goodput(ISOTHERM) / ours)
        )),
    ];
    conclusions.extend(sweep.high_rates().into_iter().map(|rate| {
        Conclusion::note(format!(
            "{group} at {} requests/s, within the SLO: {}.",
            short(rate),
            sweep.at(rate).list(&SYSTEMS, ATTAINMENT)
        ))
    }));
    conclusions
}

/// The runs of a group over the request rate.
#[derive(Clone, Copy)]
struct Sweep<'a> {
    rows: &'a Rows,
    group: &'a str,
}

impl<'a> Sweep<'a> {
    fn rates(self) -> Vec<f64> {
        self.rows.xs(self.group)
    }

    fn at(self, rate: f64) -> Panel<'a> {
        self.rows.at(self.group, rate)
    }

    /// The highest rate with the wanted share within the SLO: between the last rate that has it and the next one, in
    /// proportion; zero below the first rate.
    fn goodput(self, system: &str) -> f64 {
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
    fn goodput_shown(self, system: &str) -> String {
        let goodput = self.goodput(system);
        let is_bound = self.rates().last() == Some(&goodput);
        format!(
            "{}{}",
            if is_bound { "at least " } else { "" },
            short(goodput)
        )
    }

    /// The system with the highest goodput, and that goodput.
    fn best_goodput<'s>(self, systems: &[&'s str]) -> (&'s str, f64) {
        let best = highest(systems.iter().copied(), |system| self.goodput(system));
        best.map_or((DUAL_MAP, f64::NAN), |best| (best, self.goodput(best)))
    }

    /// The highest share within the objective among systems.
    fn best_attainment(self, systems: &[&str], rate: f64) -> f64 {
        let shares = systems
            .iter()
            .map(|system| self.at(rate).mean(system, ATTAINMENT));
        shares.fold(0.0, f64::max)
    }

    /// High rates, as the paper has them: the best baseline is below the wanted share. At least the last rate.
    fn high_rates(self) -> Vec<f64> {
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
            Sweep { rows, group: TOOLS }.goodput_shown(DUAL_MAP)
        };
        assert_eq!(shown(0.85), short(1.5));
        assert_eq!(shown(0.95), format!("at least {}", short(2.0)));
    }
}
