//! SkyLB, Figure 10: how many replicas forwarding between regions saves.
//!
//! The US has 120 clients, Europe and Asia 40 each; the replicas are spread evenly. The paper does not name the workload;
//! here it is WildChat's, with each region's own conversations.

use isotherm_report::chart::Scale;
use isotherm_report::number::{percent, short, times};
use isotherm_router::{PolicyName, Push};

use crate::charts::{Axes, Charts};
use crate::context::{Case, Context, config};
use crate::document::Document;
use crate::explain;
use crate::figures::{Figure, p90, tokens};
use crate::paper::{PaperComparison, PaperFigure, Unit};
use crate::{skylb_8, workloads};
use isotherm_report::{Conclusion, Section};
use isotherm_simulator::Arrangement;

const SEEDS: u64 = 3;
const GROUP: &str = "120, 40 and 40 clients";
const LOCAL: &str = "region-local";
const FORWARDING: &str = "SkyLB";
const SYSTEMS: [&str; 2] = [LOCAL, FORWARDING];
/// Replicas in each of the three regions.
const EACH: [usize; 4] = [1, 2, 3, 4];
const SOURCE: &str = "SkyLB, section 5.2, text on Figure 10";

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let source = workloads::wildchat(context.effort(), &[120, 40, 40]);
    let mut cases = Vec::new();
    for each in EACH {
        for system in SYSTEMS {
            let config = config(PolicyName::PrefixTree, Push::Pending);
            let arrangement = if system == LOCAL {
                Arrangement::RegionLocal(config)
            } else {
                Arrangement::Router(config)
            };
            let setup = skylb_8::setup(&[each; 3], arrangement);
            cases.push(Case::new(GROUP, system, 3.0 * each as f64, setup, &source));
        }
    }
    let rows = context.run(SEEDS, &cases);
    let gains: Vec<f64> = rows
        .xs(GROUP)
        .iter()
        .map(|&x| rows.ratio(GROUP, (FORWARDING, LOCAL), x, tokens))
        .collect();
    let nine = rows.mean(GROUP, FORWARDING, 9.0, tokens) / rows.mean(GROUP, LOCAL, 12.0, tokens);
    let charts = Charts {
        rows: &rows,
        systems: &SYSTEMS,
    };
    let chart = |title, y, scale, figure| {
        let axes = Axes {
            x: "replicas in all",
            y,
            scale,
            reference: None,
        };
        charts.lines((title, ""), GROUP, axes, figure)
    };
    let mut conclusions: Vec<Conclusion> = rows
        .xs(GROUP)
        .iter()
        .map(|&x| {
            Conclusion::note(format!(
                "{x} replicas: {} of answered requests were forwarded. {}",
                percent(rows.mean(GROUP, FORWARDING, x, |row| row.summary.forwarded_share)),
                explain::beside(&rows, GROUP, x, (FORWARDING, LOCAL))
            ))
        })
        .collect();
    conclusions.insert(
        0,
        Conclusion::claim(
            format!(
                "Forwarding with 9 replicas has about the throughput of region-local serving with 12: {} tokens/s against {}, {}.",
                short(rows.mean(GROUP, FORWARDING, 9.0, tokens)),
                short(rows.mean(GROUP, LOCAL, 12.0, tokens)),
                times(nine)
            ),
            nine >= 0.98,
        ),
    );
    Document {
        title: "SkyLB, Figure 10: replicas against throughput, with and without forwarding".into(),
        about: vec![
            "Three regions 75 ms apart with 120, 40 and 40 clients who hold conversations (WildChat's sharing), and 1 to 4 replicas each \
             (Llama-3.1-8B on one L4). Both systems: prefix_tree, pushing by pending requests."
                .into(),
        ],
        paper: vec![
            PaperComparison::over(
                "throughput of SkyLB over region-local, same replicas",
                PaperFigure::range(1.07, 1.18, Unit::Times, SOURCE),
                &gains,
            ),
            PaperComparison::one(
                "throughput of SkyLB with 9 replicas over region-local with 12",
                PaperFigure::times(1.0, SOURCE),
                nine,
            ),
        ],
        conclusions,
        sections: vec![
            Section::detail("Figure 10")
                .charts(vec![
                    chart("Throughput", "tokens/s", Scale::Linear, tokens as Figure),
                    chart("p90 TTFT", "seconds", Scale::Log, p90),
                ])
                .table(explain::table(&rows, explain::group_and_system)),
        ],
        rows,
        ..Document::default()
    }
}
