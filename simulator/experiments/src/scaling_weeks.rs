//! Scaling over weeks in closed loop: SageServe's week of Office 365 and ServeGen's fourteen days.
//!
//! One model in one region on its own GPUs. The first day is played and not counted. ServeGen's rates are scaled so that the peak needs a
//! dozen instances. The last group is constant load, on which no strategy has a reason to change its mind.

use isotherm_report::Conclusion;
use isotherm_simulator::scaling::profile::Profile;
use isotherm_simulator::scaling::traffic::{Point, Series};

use crate::context::Context;
use crate::document::Document;
use crate::paper::Source;
use crate::rows::Rows;
use crate::scaling::conclusions::{at_most, best_at_no_worse_p95, order};
use crate::scaling::engines::{Engine, profiles};
use crate::scaling::figures::{self, HOURS, REVERSALS, STARTS};
use crate::scaling::scenario::{self, AGGREGATED, DAY_S, cluster, deployment, trials};
use crate::scaling::strategies::{CHIRON, HOURLY, LEAN, LT_I, LT_U, LT_UA, Mode, OURS, REACTIVE};

const STRATEGIES: [&str; 8] = [REACTIVE, LT_I, LT_U, LT_UA, CHIRON, OURS, HOURLY, LEAN];
const SEEDS: u64 = 1;
/// Instances that the peak ten minutes need at 70 % of the capacity.
const PEAK_INSTANCES: f64 = 12.0;
const LOAD: f64 = 0.7;
const BOUNDS: (usize, usize) = (2, 24);
/// Weeks, the first two of which are SageServe's.
const WEEKS: [&str; 4] = ["O365 A", "O365 C", "ServeGen large", "ServeGen small"];
/// Days of each week that are played.
const DAYS: [[f64; 2]; 4] = [[7.0, 3.0], [7.0, 3.0], [14.0, 3.0], [14.0, 3.0]];
const CONSTANT: &str = "constant load";
/// Instances that the constant load keeps busy.
const BUSY: f64 = 4.2;
const SOURCE: Source =
    Source("SageServe, sections 7.2.1 and 7.2.7, Figure 16b (one week; hours of single days)");

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let traces = scenario::traces(context);
    let profiles = profiles(context, &[Engine::Llama2H100]);
    let Some(profile) = profiles.first() else {
        return Document::default();
    };
    let weeks = [
        &traces.o365_a,
        &traces.o365_c,
        &traces.servegen_large,
        &traces.servegen_small,
    ];
    let weeks = weeks.into_iter().zip(DAYS);
    let weeks = weeks.map(|(series, days)| {
        let days = series.between(0.0, context.pick(days) * DAY_S);
        sized(&days, profile)
    });
    let loads = weeks.chain([constant(profile, 2.0 * DAY_S)]);
    let names = WEEKS.into_iter().chain([CONSTANT]);
    let trials = names.zip(loads).flat_map(|(name, traffic)| {
        let mut deployment = deployment(name, profile, vec![traffic]);
        (deployment.bounds, deployment.start) = (BOUNDS, BOUNDS.1);
        let cluster = cluster(vec![deployment], DAY_S);
        trials(context, SEEDS, name, &STRATEGIES, &cluster)
    });
    let trials: Vec<_> = trials.collect();
    let rows = Rows(context.map(&trials, |trial| trial.play().row));
    let [week_a, week_c, ..] = WEEKS.map(|week| rows.modes(week));
    let ratios = [week_a, week_c].concat();
    let ratios: Vec<f64> = ratios
        .iter()
        .map(|panel| panel.ratio(LT_UA, REACTIVE, HOURS))
        .collect();
    Document {
        about: vec![
            "One model (Llama-2-70B on 8 H100) in one region, 2 to 24 instances, the traffic scaled so that its peak needs a dozen. The first day is played and not \
             counted. Paper mode: thresholds, start-up times and the forecast of the published code, which knows the future; Isotherm gets that forecast, too. \
             Honest mode: those of the text, and forecasts from the past. Isotherm, lean: a replica may be busy all the time, the forecast covers \
             half of the windows, and the number falls after two minutes; the known forecast of paper mode replaces the last two."
                .into(),
            scenario::about(&traces),
            AGGREGATED.into(),
        ],
        paper: vec![
            SOURCE
                .times("hours over the week, LT-UA over Reactive", (0.766, 0.772), &ratios)
                .because("The paper gives hours of a peak day only; a week has nights and a weekend, when both are at their minimum."),
        ],
        conclusions: conclusions(&rows),
        sections: vec![figures::section(&rows, &[REACTIVE, OURS])],
        rows,
        ..Document::default()
    }
}

fn conclusions(rows: &Rows) -> Vec<Conclusion> {
    let mut conclusions = Vec::new();
    for mode in Mode::ALL {
        for name in WEEKS {
            let panel = rows.mode(name, mode);
            conclusions.push(best_at_no_worse_p95(panel, OURS));
            conclusions.push(at_most(panel, LEAN, REACTIVE));
            conclusions.push(order(panel));
        }
        let panel = rows.mode(CONSTANT, mode);
        let steady = Conclusion::claim(
            "Isotherm starts no instance that it stops within ten minutes",
            panel.stat(OURS, REVERSALS).max == 0.0,
        );
        conclusions.push(steady.in_case(panel.group).measured(format!(
            "reversals: {}; starts: {}",
            panel.list(&STRATEGIES, REVERSALS),
            panel.list(&STRATEGIES, STARTS)
        )));
    }
    conclusions
}

/// Traffic whose peak ten minutes need [`PEAK_INSTANCES`].
fn sized(series: &Series, profile: &Profile) -> Series {
    let window = (600.0 / series.interval_s).max(1.0) as usize;
    let means = series.points.chunks(window).map(|points| {
        let busy = points.iter().map(|point| profile.busy(point));
        busy.sum::<f64>() / points.len() as f64
    });
    let peak = means.fold(0.0, f64::max);
    series.scaled(PEAK_INSTANCES * LOAD / peak.max(1e-9))
}

fn constant(profile: &Profile, length_s: f64) -> Series {
    let point = Point {
        interactive_per_s: BUSY * profile.capacity_per_s,
        ..profile.point()
    };
    Series {
        interval_s: 60.0,
        points: vec![point; (length_s / 60.0) as usize],
    }
}
