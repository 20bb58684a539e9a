//! SageServe, Figures 11 and 13: strategies on a peak day, and what they waste.
//!
//! Three regions, four models that share each region's GPUs; the figures are Llama-2's, as in the paper. The peak day of model C is
//! counted, the day before is played: every strategy begins with the same instances and an hour of history (the published code cuts its own
//! strategies to 8 instances at the start and the reactive one to none).

use isotherm_report::number::{short, times};
use isotherm_report::{Conclusion, Section, Table};

use crate::context::Context;
use crate::document::Document;
use crate::paper::Source;
use crate::rows::Rows;
use crate::scaling::conclusions::{at_most, best_at_no_worse_p95, order};
use crate::scaling::engines::{Engine, profiles};
use crate::scaling::figures::{self, HOURS, P75, WASTED};
use crate::scaling::scenario::{
    self, AGGREGATED, DAY_S, REGIONS, TrialResult, cluster, deployment, trials,
};
use crate::scaling::strategies::{ALL, CHIRON, LT_I, LT_U, LT_UA, Mode, OURS, REACTIVE};

const SEEDS: u64 = 3;
const NAME: &str = "peak day";
/// Factor of the rates: with it, the reactive strategy has about the paper's hours. Lengths and engines differ from the paper's.
const RATE: f64 = 1.7;
/// Llama-2, whose figures count.
const COUNTED: usize = 1;
/// Thursday, with the day before.
const DAYS: (f64, f64) = (2.0 * DAY_S, 4.0 * DAY_S);
const MODELS: [(&str, Engine); 4] = [
    ("Bloom-176B", Engine::BloomH100),
    ("Llama2-70B", Engine::Llama2H100),
    ("Llama3.1-8B", Engine::Llama31),
    ("Llama3.2-3B", Engine::Llama32),
];
const FIGURE_11: Source =
    Source("SageServe, section 7.2.1, Figure 11 (July 2025; section 7.2.7, November 2024)");
const FIGURE_13: Source =
    Source("SageServe, sections 7.2.2 and 7.2.4, Figure 13 (the abstract says 80 % less waste)");
/// Assumption behind the paper's ratios.
const START: &str = "The published code starts its strategies with 8 instances and the reactive one with 20; here all start alike a day before.";
const GROWS: &str =
    "Chiron grows until four in ten instances are idle, so its bound of 20 in each region decides.";

/// Figure 11.
pub(crate) fn figure_11(context: &Context) -> Document {
    let (mut document, played) = play(context);
    let panels = document.rows.modes(NAME);
    let hours = |system, range, reason: &str| {
        let ratios = panels.map(|panel| panel.ratio(system, REACTIVE, HOURS));
        let what = format!("hours, {system} over Reactive");
        FIGURE_11.times(what, range, &ratios).because(reason)
    };
    document.paper = vec![
        hours(LT_I, (227.0 / 302.0, 274.5 / 362.25), START),
        hours(LT_U, (291.0 / 362.25, 248.0 / 302.0), START),
        hours(LT_UA, (277.5 / 362.25, 233.0 / 302.0), START),
        hours(CHIRON, (1_146.0 / 362.25, 1_146.0 / 362.25), GROWS),
    ];
    let claims = panels.map(|panel| {
        let less = at_most(panel, OURS, LT_UA);
        [order(panel), less, best_at_no_worse_p95(panel, OURS)]
    });
    document.conclusions = claims.concat();
    let over_the_day = Section::detail("Instances over the day (Figure 11)")
        .text("Instances of Llama-2 that serve, start or drain, in all regions; first seed.")
        .table(instances(&played));
    document.sections.insert(0, over_the_day);
    document
}

/// Figure 13.
pub(crate) fn figure_13(context: &Context) -> Document {
    let (mut document, _) = play(context);
    let panels = document.rows.modes(NAME);
    let waste = |system| panels.map(|panel| panel.ratio(system, REACTIVE, WASTED));
    let wasted: Vec<f64> = [LT_I, LT_U, LT_UA].into_iter().flat_map(waste).collect();
    let quartile = panels.map(|panel| panel.ratio(LT_I, REACTIVE, P75));
    document.paper = vec![
        FIGURE_13
            .times("hours on scale-ups, LT strategies over Reactive", (0.2, 0.3), &wasted)
            .because("A scale-up costs what its instance takes to start; how many there are depends on the noise of the minutes."),
        FIGURE_13
            .times("p75 TTFT, LT-I over Reactive (\"slightly worse\")", (1.0, 1.1), &quartile)
            .because("The paper gives no number; the range is ours."),
    ];
    let claims = panels.map(|panel| {
        [LT_I, LT_U, LT_UA, OURS].map(|system| {
            let ratio = panel.ratio(system, REACTIVE, WASTED);
            let text = "wastes at most half of Reactive's hours on scale-ups";
            Conclusion::claim(text, ratio <= 0.5)
                .in_case(format!("{}, {system}", panel.group))
                .measured(format!(
                    "{} ({} hours against {})",
                    times(ratio),
                    panel.shown(system, WASTED),
                    panel.shown(REACTIVE, WASTED)
                ))
        })
    });
    document.conclusions = claims.concat();
    document
}

/// Plays every strategy in both modes; the set-up and the figures of the runs.
fn play(context: &Context) -> (Document, Vec<TrialResult>) {
    let traces = scenario::traces(context);
    let profiles = profiles(context, &MODELS.map(|(_, engine)| engine));
    let series = [&traces.o365_a, &traces.o365_c];
    let series = series.map(|series| series.between(DAYS.0, DAYS.1).scaled(RATE));
    let each = MODELS.iter().zip(&profiles).zip(series.iter().cycle());
    let deployments = each.map(|(((name, _), profile), series)| {
        let regions = REGIONS.map(|share| series.scaled(share));
        deployment(name, profile, regions.into())
    });
    let cluster = cluster(deployments.collect(), DAY_S);
    let mut trials = trials(context, SEEDS, NAME, &ALL, &cluster);
    for trial in &mut trials {
        trial.counted = vec![COUNTED];
    }
    let played = context.map(&trials, scenario::Trial::play);
    let rows = Rows(played.iter().map(|one| one.row.clone()).collect());
    let about = vec![
        "Three regions, four models that share each region's GPUs (20 instances each at the start, 2 to 20 later); interactive and non-interactive requests in \
         one pool. Figures are Llama-2's on a Thursday. Paper mode: thresholds, start-up times and the forecast of the published code, which knows the future. \
         Honest mode: those of the text, and forecasts from the past. In paper mode Isotherm gets that forecast, too."
            .to_owned(),
        scenario::about(&traces),
        AGGREGATED.to_owned(),
    ];
    let document = Document {
        about,
        sections: vec![figures::section(&rows, &[REACTIVE, LT_UA, OURS])],
        rows,
        ..Document::default()
    };
    (document, played)
}

/// Instances of Llama-2 in all regions over the day: a line for each mode and hour, a column for each strategy.
fn instances(played: &[TrialResult]) -> Table {
    let mut table = Table::new(["mode", "hour of the day, UTC"].into_iter().chain(ALL));
    for mode in Mode::ALL {
        let group = mode.group(NAME);
        let counts = ALL.map(|system| {
            let mut played = played.iter();
            let found = played.find(|one| one.row.group == group && one.row.system == system);
            let cells = found
                .into_iter()
                .flat_map(|one| one.outcome.of(|at| at == COUNTED));
            cells.fold(Vec::<(f64, usize)>::new(), |mut sums, cell| {
                sums.resize(cell.instances.len(), (0.0, 0));
                for (sum, (hour, count)) in sums.iter_mut().zip(&cell.instances) {
                    *sum = (*hour - 24.0, sum.1 + count);
                }
                sums
            })
        });
        let [first, ..] = &counts;
        for (at, (hour, _)) in first.iter().enumerate() {
            let shown = counts.iter().map(|counts| {
                let count = counts.get(at);
                count.map_or_else(String::new, |(_, count)| count.to_string())
            });
            let head = [mode.name().to_owned(), short(*hour)];
            table.push(head.into_iter().chain(shown));
        }
    }
    table
}
