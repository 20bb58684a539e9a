//! SkyLB, Figure 10: the replicas that forwarding between regions saves.
//!
//! The US has 120 clients, Europe and Asia 40 each; the replicas are spread evenly. The paper does not name the workload;
//! here it is WildChat's, with each region's own conversations.

use isotherm_policies::PolicyName;
use isotherm_report::number::times;
use isotherm_report::{Conclusion, Section};
use isotherm_router::Push;
use isotherm_simulator::Arrangement;

use crate::context::{Context, config, grid, published};
use crate::document::Document;
use crate::explain;
use crate::figures::{FORWARDED, TOKENS};
use crate::paper::Source;
use crate::skylb_8::{self, BY_COST, OURS};
use crate::workloads;

const SEEDS: u64 = 3;
const GROUP: &str = "120, 40 and 40 clients";
const LOCAL: &str = "region-local";
const FORWARDING: &str = "SkyLB";
const SYSTEMS: [&str; 4] = [LOCAL, FORWARDING, BY_COST, OURS];
/// Replicas in the three regions together.
const REPLICAS: [f64; 4] = [3.0, 6.0, 9.0, 12.0];
const SOURCE: Source = Source("SkyLB, section 5.2, text on Figure 10");

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let source = workloads::wildchat(&context.effort, &[120, 40, 40]);
    let cases = grid(GROUP, &REPLICAS, &SYSTEMS, |replicas, system| {
        let arrangement = match system {
            LOCAL => Arrangement::RegionLocal(config(PolicyName::PrefixTree, Push::Pending)),
            BY_COST => Arrangement::Router(config(PolicyName::PrefixTree, Push::Pending)),
            OURS => Arrangement::Router(config(PolicyName::Isotherm, Push::Pending)),
            _ => Arrangement::Router(published(PolicyName::PrefixTree)),
        };
        let each = (replicas / 3.0) as usize;
        (skylb_8::setup(&[each; 3], arrangement), source.clone())
    });
    let rows = context.run(SEEDS, &cases);
    let (nine, twelve) = (rows.at(GROUP, 9.0), rows.at(GROUP, 12.0));
    let over_twelve = nine.mean(FORWARDING, TOKENS) / twelve.mean(LOCAL, TOKENS);
    let gains = REPLICAS.map(|x| rows.at(GROUP, x).ratio(FORWARDING, LOCAL, TOKENS));
    let saving = Conclusion::claim(
        format!(
            "Forwarding with 9 replicas has about the throughput of region-local serving with 12: {} tokens/s against {}, {}.",
            nine.shown(FORWARDING, TOKENS),
            twelve.shown(LOCAL, TOKENS),
            times(over_twelve)
        ),
        over_twelve >= 0.98,
    );
    let notes = REPLICAS.map(|x| {
        let panel = rows.at(GROUP, x);
        Conclusion::note(format!(
            "{x} replicas: {} of answered requests were forwarded. {}",
            panel.shown(FORWARDING, FORWARDED),
            explain::beside(panel, FORWARDING, LOCAL)
        ))
    });
    Document {
        about: vec![
            "Three regions 75 ms apart with 120, 40 and 40 clients who hold conversations (WildChat's sharing), and 1 to 4 replicas each \
             (Llama-3.1-8B on one L4). The paper's systems: prefix_tree, pushing by pending requests, forwarding as published or not at all. \
             \"SkyLB, by cost\" and Isotherm (the default policy) weigh the round trip against a warm cache when they forward."
                .into(),
        ],
        paper: vec![
            SOURCE.times(
                "throughput of SkyLB over region-local, same replicas",
                (1.07, 1.18),
                &gains,
            ),
            SOURCE.times(
                "throughput of SkyLB with 9 replicas over region-local with 12",
                (1.0, 1.0),
                &[over_twelve],
            ),
        ],
        conclusions: core::iter::once(saving).chain(notes).collect(),
        sections: vec![
            Section::detail("Figure 10")
                .table(explain::table(&rows, "replicas in all")),
        ],
        rows,
        ..Document::default()
    }
}
