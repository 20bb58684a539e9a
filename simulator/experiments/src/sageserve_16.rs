//! SageServe, Figure 16a: bursts that no forecast knows.
//!
//! Two hours of the evening before the peak; the first minute of each hour has nine times its requests (the published code; the text says eight).
//! A strategy recovers when the memory of its instances is below 70 % again.

use isotherm_report::number::short;
use isotherm_report::{Conclusion, Section};

use crate::context::Context;
use crate::document::Document;
use crate::figures::Figure;
use crate::paper::Source;
use crate::rows::Rows;
use crate::scaling::engines::{Engine, profiles};
use crate::scaling::figures;
use crate::scaling::scenario::{self, DAY_S, Trial, cluster, deployment};
use crate::scaling::strategies::{ALL, LT_I, LT_U, LT_UA, Mode, OURS};

const SEEDS: u64 = 5;
/// Requests of the first minute of an hour.
const BURST: f64 = 9.0;
/// Hours of Wednesday that are played: a day of history, then the two hours.
const FROM_S: f64 = DAY_S + 15.0 * 3_600.0;
const HISTORY_S: f64 = DAY_S;
const LENGTH_S: f64 = 2.0 * 3_600.0;
const RECOVERY: Figure =
    Figure::more("minutes above 70 % after a burst", "recovery_min", short).less_is_better();
const SOURCE: Source = Source("SageServe, section 7.2.7, Figure 16a (axes only)");

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let traces = scenario::traces(context);
    let profiles = profiles(context, &[Engine::Llama2H100]);
    let Some(profile) = profiles.first() else {
        return Document::default();
    };
    let calm = traces.o365_c.between(FROM_S - HISTORY_S, FROM_S);
    let bursts = traces
        .o365_c
        .between(FROM_S, FROM_S + LENGTH_S)
        .with_hourly_bursts(BURST);
    let mut traffic = calm;
    traffic.points.extend(bursts.points);
    let mut trials = Vec::new();
    for seed in context.seeds(SEEDS) {
        for mode in Mode::ALL {
            for strategy in ALL {
                let mut deployment = deployment("Llama2-70B", profile, vec![traffic.clone()]);
                deployment.start = 60;
                deployment.bounds = (2, 60);
                let cluster = cluster(vec![deployment], HISTORY_S);
                trials.push(Trial::new(mode.name(), strategy, (mode, seed), cluster));
            }
        }
    }
    let rows = Rows(context.map(&trials, |trial| {
        let mut played = trial.play();
        let full = played
            .outcome
            .of(|_| true)
            .flat_map(|cell| &cell.utilisations);
        let full = full.filter(|used| **used > 0.7).count() as f64;
        let bursts = LENGTH_S / 3_600.0;
        played.row.more.insert("recovery_min", full * 0.25 / bursts);
        played.row
    }));
    let ratios = |system: &str| {
        Mode::ALL.map(|mode| rows.at(mode.name(), 0.0).ratio(system, LT_U, RECOVERY))
    };
    let paper = vec![
        SOURCE
            .times("time above 70 % after a burst, LT-UA over LT-U (\"much better\")", (0.0, 1.0), &ratios(LT_UA))
            .because("By the text, LT-UA looks at the gap in the last 20 minutes of an hour only, and these bursts come in the first."),
    ];
    Document {
        about: vec![
            "One region with the traffic of model C in all of them, Llama-2-70B on 8 H100, 2 to 60 instances. A day of history, then two hours whose first minute \
             has nine times its requests."
                .into(),
            scenario::about(&traces),
        ],
        paper,
        conclusions: conclusions(&rows),
        sections: vec![Section::detail("Figures of the runs").table(figures::table(&rows, &[LT_U, OURS]))],
        rows,
        ..Document::default()
    }
}

fn conclusions(rows: &Rows) -> Vec<Conclusion> {
    let mut conclusions = Vec::new();
    for mode in Mode::ALL {
        let panel = rows.at(mode.name(), 0.0);
        for system in [LT_UA, OURS] {
            let (ours, theirs) = (panel.mean(system, RECOVERY), panel.mean(LT_U, RECOVERY));
            let claim = Conclusion::claim(
                format!("{system} is back below 70 % of its memory sooner after a burst than LT-U"),
                ours < theirs,
            );
            let claim = claim.in_case(mode.name());
            conclusions.push(claim.measured(panel.list(&[LT_I, LT_U, LT_UA, OURS], RECOVERY)));
        }
    }
    conclusions
}
