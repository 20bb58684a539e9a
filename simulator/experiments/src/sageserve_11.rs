//! SageServe, Figures 11 to 13 and appendix A: strategies on a peak day, what they waste, and other GPUs and mixes.
//!
//! Three regions, four models that share each region's GPUs; the figures are Llama-2's, as in the paper. The peak day of model C is
//! counted, the day before is played: every strategy begins with the same instances and an hour of history (the published code cuts its own
//! strategies to 8 instances at the start and the reactive one to none).

use std::sync::Arc;

use isotherm_report::number::{short, times, whole};
use isotherm_report::{Conclusion, Section, Table};
use isotherm_simulator::scaling::cluster::Deployment;
use isotherm_simulator::scaling::profile::Profile;
use isotherm_simulator::scaling::trace::Traces;
use isotherm_simulator::scaling::traffic::Series;

use crate::context::Context;
use crate::document::Document;
use crate::paper::Source;
use crate::rows::Rows;
use crate::scaling::conclusions::{at_most, best_at_no_worse_p95, order};
use crate::scaling::engines::{Engine, profiles};
use crate::scaling::figures::{self, HOURS, P75, WASTED};
use crate::scaling::scenario::{
    self, DAY_S, REGIONS, Trial, TrialResult, cluster, deployment, split,
};
use crate::scaling::strategies::{ALL, CHIRON, LT_I, LT_U, LT_UA, Mode, OURS, REACTIVE};

const SEEDS: u64 = 3;
/// Factor of the rates: with it, the reactive strategy has about the paper's hours. Lengths and engines differ from the paper's.
const RATE: f64 = 1.7;
/// Llama-2, whose figures count.
const COUNTED: usize = 1;
/// Thursday, with the day before.
const DAYS: (f64, f64) = (2.0 * DAY_S, 4.0 * DAY_S);
const H100: [Engine; 4] = [
    Engine::BloomH100,
    Engine::Llama2H100,
    Engine::Llama31,
    Engine::Llama32,
];
const NAMES: [&str; 4] = ["Bloom-176B", "Llama2-70B", "Llama3.1-8B", "Llama3.2-3B"];
const SOURCE: Source =
    Source("SageServe, section 7.2.1, Figure 11 (July 2025; section 7.2.7, November 2024)");
/// Assumption behind the paper's ratios.
const START: &str = "The published code starts its strategies with 8 instances and the reactive one with 20; here all start alike a day before.";

/// Figure 11.
pub(crate) fn figure_11(context: &Context) -> Document {
    let (rows, played, about) = play(context, "peak day", &H100);
    let panels = Mode::ALL.map(group_of("peak day"));
    let ratio = |group: &str, system: &str| rows.at(group, 0.0).ratio(system, REACTIVE, HOURS);
    let both = |system: &str| panels.each_ref().map(|group| ratio(group, system));
    let paper = vec![
        SOURCE.times("hours, LT-I over Reactive", (227.0 / 302.0, 274.5 / 362.25), &both(LT_I)).because(START),
        SOURCE.times("hours, LT-U over Reactive", (291.0 / 362.25, 248.0 / 302.0), &both(LT_U)).because(START),
        SOURCE.times("hours, LT-UA over Reactive", (277.5 / 362.25, 233.0 / 302.0), &both(LT_UA)).because(START),
        SOURCE.times("hours, Chiron over Reactive", (1_146.0 / 362.25, 1_146.0 / 362.25), &both(CHIRON)).because(
            "Chiron grows until four in ten instances are idle, so its bound of 20 in each region decides.",
        ),
    ];
    let mut conclusions = Vec::new();
    for group in &panels {
        let panel = rows.at(group, 0.0);
        conclusions.push(order(panel));
        conclusions.push(at_most(panel, OURS, LT_UA));
        conclusions.push(best_at_no_worse_p95(panel, OURS));
    }
    Document {
        about,
        paper,
        conclusions,
        sections: vec![
            Section::detail("Instances over the day (Figure 11)")
                .text(
                    "Instances of Llama-2 that serve, start or drain, in all regions; first seed.",
                )
                .table(instances(&played)),
            Section::detail("Figures of the runs")
                .table(figures::table(&rows, &[REACTIVE, LT_UA, OURS])),
        ],
        rows,
        ..Document::default()
    }
}

/// Figure 13.
pub(crate) fn figure_13(context: &Context) -> Document {
    let (rows, _, about) = play(context, "peak day", &H100);
    let panels = Mode::ALL.map(group_of("peak day"));
    let mut conclusions = Vec::new();
    let mut wasted = Vec::new();
    let mut quartile = Vec::new();
    for group in &panels {
        let panel = rows.at(group, 0.0);
        for system in [LT_I, LT_U, LT_UA, OURS] {
            let ratio = panel.ratio(system, REACTIVE, WASTED);
            let claim = Conclusion::claim(
                "wastes at most half of Reactive's hours on scale-ups",
                ratio <= 0.5,
            );
            let claim = claim.in_case(format!("{group}, {system}"));
            conclusions.push(claim.measured(format!(
                "{} ({} hours against {})",
                times(ratio),
                panel.shown(system, WASTED),
                panel.shown(REACTIVE, WASTED)
            )));
            if system != OURS {
                wasted.push(ratio);
            }
        }
        quartile.push(panel.ratio(LT_I, REACTIVE, P75));
    }
    let source = Source(
        "SageServe, sections 7.2.2 and 7.2.4, Figure 13 (the abstract says 80 % less waste)",
    );
    Document {
        about,
        paper: vec![
            source
                .times("hours on scale-ups, LT strategies over Reactive", (0.2, 0.3), &wasted)
                .because("A scale-up costs what its instance takes to start; how many there are depends on the noise of the minutes."),
            source
                .times("p75 TTFT, LT-I over Reactive (\"slightly worse\")", (1.0, 1.1), &quartile)
                .because("The paper gives no number; the range is ours."),
        ],
        conclusions,
        sections: vec![Section::detail("Figures of the runs").table(figures::table(&rows, &[REACTIVE, LT_UA, OURS]))],
        rows,
        ..Document::default()
    }
}

fn group_of(name: &str) -> impl Fn(Mode) -> String + Copy + '_ {
    move |mode| format!("{name}, {}", mode.name())
}

/// Plays every strategy in both modes.
fn play(
    context: &Context,
    name: &str,
    engines: &[Engine; 4],
) -> (Rows, Vec<TrialResult>, Vec<String>) {
    let traces = scenario::traces(context);
    let profiles = profiles(context, engines);
    let deployments = deployments(&traces, &profiles);
    let group = group_of(name);
    let mut trials = Vec::new();
    for seed in context.seeds(SEEDS) {
        for mode in Mode::ALL {
            for strategy in ALL {
                let cluster = cluster(deployments.clone(), DAY_S);
                trials.push(Trial {
                    counted: vec![COUNTED],
                    ..Trial::new(group(mode), strategy, (mode, seed), cluster)
                });
            }
        }
    }
    let played = context.map(&trials, Trial::play);
    let rows = Rows(played.iter().map(|one| one.row.clone()).collect());
    let about = vec![
        "Three regions, four models that share each region's GPUs (20 instances each at the start, 2 to 20 later); interactive and non-interactive requests in \
         one pool. Figures are Llama-2's on a Thursday. Paper mode: thresholds, start-up times and the forecast of the published code, which knows the future. \
         Honest mode: those of the text, and forecasts from the past. In paper mode Isotherm gets that forecast, too."
            .to_owned(),
        scenario::about(&traces),
        "Aggregated model of the instances in steps of 15 s; the experiment fidelity measures its error."
            .to_owned(),
    ];
    (rows, played, about)
}

fn deployments(traces: &Traces, profiles: &[Arc<Profile>]) -> Vec<Deployment> {
    let days = |series: &Series| series.between(DAYS.0, DAYS.1).scaled(RATE);
    let series = [&traces.o365_a, &traces.o365_c].map(days);
    let each = NAMES.iter().zip(profiles).zip(series.iter().cycle());
    each.map(|((name, profile), series)| deployment(name, profile, split(series, &REGIONS)))
        .collect()
}

/// Instances of Llama-2 in all regions over the day: a line for each mode and hour, a column for each strategy.
fn instances(played: &[TrialResult]) -> Table {
    let mut table = Table::new(["mode", "hour of the day, UTC"].into_iter().chain(ALL));
    for mode in Mode::ALL {
        let group = group_of("peak day")(mode);
        let counts = ALL.map(|system| {
            let found = played
                .iter()
                .find(|one| one.row.group == group && one.row.system == system);
            let mut counts: Vec<(f64, f64)> = Vec::new();
            let cells = found
                .iter()
                .flat_map(|one| one.outcome.of(|index| index == COUNTED));
            for cell in cells {
                for (at, (hour, count)) in cell.instances.iter().enumerate() {
                    match counts.get_mut(at) {
                        Some((_, sum)) => *sum += *count as f64,
                        None => counts.push((*hour - 24.0, *count as f64)),
                    }
                }
            }
            counts
        });
        let [first, ..] = &counts;
        for (at, (hour, _)) in first.iter().enumerate() {
            let shown = counts.iter().map(|counts| {
                counts
                    .get(at)
                    .map_or_else(String::new, |(_, count)| whole(*count))
            });
            table.push(
                [mode.name().to_owned(), short(*hour)]
                    .into_iter()
                    .chain(shown),
            );
        }
    }
    table
}
