//! DualMap, Figure 3: effective request capacity and goodput over the request rate; the cache hits and the evenness of the load
//! (Figures 10 and 11) explain them.
//!
//! Balance is the coefficient of variation of the replicas' pending prefill tokens (the paper's equation 1), sampled once a
//! second, mean over the samples with pending tokens.

use isotherm_report::number::{short, times};
use isotherm_report::{Conclusion, Section, Table};

use crate::context::{Context, grid};
use crate::document::Document;
use crate::dualmap::{
    BASELINES, CONVERSATION, DUAL_MAP, GOODPUT_SHARE, ISOTHERM, PUSHING, REPLICAS, SYSTEMS, Sweep,
    TOOLS, arrangement, setup, source,
};
use crate::figures::{ATTAINMENT, CV, HITS};
use crate::paper::{PaperComparison, Source};
use crate::workloads::described;

const SEEDS: u64 = 2;
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
            let source = source(context, group, rate);
            (setup(REPLICAS, arrangement(system)), source)
        })
    });
    let rows = context.run(SEEDS, &cases.concat());
    let sweeps = RATES.map(|(group, _)| Sweep::new(&rows, group));
    let section = |sweep: Sweep<'_>| {
        let rows = rows.filtered(|row| row.group == sweep.group);
        let lines = rows.table("requests/s", &[ATTAINMENT, HITS, CV]);
        let section = Section::detail(sweep.group).table(lines);
        section.table(goodputs(sweep))
    };
    Document {
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each; the paper: Qwen2.5-7B on one Ascend 910B4, so rates differ). Effective request capacity: \
             the share of requests with a first token within 5 s. Goodput: the highest rate at which that is {:.0} %, between two rates in proportion. {} {PUSHING}",
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
