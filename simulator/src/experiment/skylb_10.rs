//! SkyLB, Figure 10: how many replicas forwarding between regions saves.
//!
//! The US has 120 clients, Europe and Asia 40 each; the replicas are spread evenly. The paper does not name the workload;
//! here it is WildChat's, with each region's own conversations.

use isotherm_report::chart::Scale;
use isotherm_report::number::{percent, short, times};
use isotherm_router::{PolicyName, Push};

use super::document::{Document, Section};
use super::explain;
use super::figure::{p90, tokens};
use super::lab::{Case, Lab, config};
use super::paper::{Against, Stated, Unit};
use super::picture::{Axes, lines};
use super::{skylb_8, workloads};
use crate::Balancing;
use isotherm_report::Conclusion;

const SEEDS: u64 = 3;
const GROUP: &str = "120, 40 and 40 clients";
const LOCAL: &str = "region-local";
const FORWARDING: &str = "SkyLB";
const SYSTEMS: [&str; 2] = [LOCAL, FORWARDING];
/// Replicas in each of the three regions.
const EACH: [usize; 4] = [1, 2, 3, 4];
const SOURCE: &str = "SkyLB, section 5.2, text on Figure 10";

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let draw = workloads::wildchat(lab.effort(), &[120, 40, 40]);
    let mut cases = Vec::new();
    for each in EACH {
        for system in SYSTEMS {
            let config = config(PolicyName::PrefixTree, Push::Pending);
            let balancing = if system == LOCAL {
                Balancing::RegionLocal(config)
            } else {
                Balancing::Router(config)
            };
            cases.push(Case {
                group: GROUP.to_owned(),
                system: system.to_owned(),
                x: 3.0 * each as f64,
                setup: skylb_8::setup(&[each; 3], balancing),
                draw: draw.clone(),
            });
        }
    }
    let rows = lab.run(SEEDS, &cases);
    let gains: Vec<f64> = rows
        .xs(GROUP)
        .iter()
        .map(|&x| rows.ratio(GROUP, (FORWARDING, LOCAL), x, tokens))
        .collect();
    let nine = rows.mean(GROUP, FORWARDING, 9.0, tokens) / rows.mean(GROUP, LOCAL, 12.0, tokens);
    let axes = |y| Axes {
        x: "replicas in all",
        y,
        ..Axes::default()
    };
    let chart = |title, y, scale, figure| {
        lines(
            (title, ""),
            &rows,
            (GROUP, &SYSTEMS),
            &Axes { scale, ..axes(y) },
            figure,
        )
    };
    let mut findings: Vec<Conclusion> = rows
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
    findings.insert(
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
    Ok(Document {
        name: "skylb-10",
        title: "SkyLB, Figure 10: replicas against throughput, with and without forwarding".into(),
        about: vec![
            "Three regions 75 ms apart with 120, 40 and 40 clients who hold conversations (WildChat's sharing), and 1 to 4 replicas each \
             (Llama-3.1-8B on one L4). Both systems: prefix_tree, pushing by pending requests."
                .into(),
        ],
        paper: vec![
            Against::over(
                "throughput of SkyLB over region-local, same replicas",
                Stated::range(1.07, 1.18, Unit::Times, SOURCE),
                &gains,
            ),
            Against::one(
                "throughput of SkyLB with 9 replicas over region-local with 12",
                Stated::times(1.0, SOURCE),
                nine,
            ),
        ],
        findings,
        sections: vec![Section {
            title: "Figure 10".into(),
            key: SYSTEMS.map(String::from).into(),
            charts: vec![
                chart("Throughput", "tokens/s", Scale::Linear, tokens)?,
                chart("p90 TTFT", "seconds", Scale::Log, p90)?,
            ],
            table: Some(explain::table(
                &rows,
                &EACH
                    .iter()
                    .flat_map(|each| SYSTEMS.map(|system| (GROUP, system, 3.0 * *each as f64)))
                    .collect::<Vec<_>>(),
            )),
            ..Section::default()
        }],
        rows,
    })
}
