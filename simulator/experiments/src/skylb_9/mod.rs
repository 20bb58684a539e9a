//! SkyLB, Figure 9: what selective pushing gives, by itself.
//!
//! One region, 4 replicas, 30 clients, trees of 2 branches; three push modes: at once (BP), below a fixed number of
//! outstanding requests (SP-O), by pending requests (SP-P). The paper's balancer is SGLang's policy (`cache_aware`);
//! SkyLB's own (`prefix_tree`) is beside it.
//!
//! The paper leaves open how long thoughts and runs are, and both decide: pushing matters only when an engine's memory fills.
//! Memory fills at 20 to 50 requests in the paper; thoughts are long enough here that it does. Other lengths are shown too.
//!
//! The paper does not state the limit of SP-O. Here it is the limit with the highest throughput for conversations on the same
//! replicas, which an operator would have set before the trees came. Limits from other conversations are shown too.

mod conclusions;
mod runs;

use core::time::Duration;

use isotherm_policies::PolicyName;
use isotherm_report::Section;

use self::conclusions::{best, choices, conclusions, paper};
use self::runs::{chats, over_lengths, over_limits, over_thoughts, trees};
use crate::context::Context;
use crate::document::Document;
use crate::explain;
use crate::figures::{E2E, P90, Row, TOKENS, TTFT};
use crate::rows::Rows;

const REPLICAS: usize = 4;
const CLIENTS: usize = 30;
const BLIND: &str = "BP";
const LIMITED: &str = "SP-O";
const PENDING: &str = "SP-P";
const SYSTEMS: [&str; 3] = [BLIND, LIMITED, PENDING];
/// The policies, as the groups of the figure.
const SGLANG: (&str, PolicyName) = ("ToT, cache_aware", PolicyName::CacheAware);
const SKYLB: (&str, PolicyName) = ("ToT, prefix_tree", PolicyName::PrefixTree);
const POLICIES: [(&str, PolicyName); 2] = [SGLANG, SKYLB];
/// Thoughts of this median fill the memory of 4 replicas with 30 clients' trees.
const THOUGHT_TOKENS: f64 = 250.0;
const LENGTH: Duration = Duration::from_secs(120);
/// Limits that are tried, requests a replica.
const LIMITS: [u32; 9] = [4, 8, 12, 16, 24, 32, 40, 48, 64];
/// Workloads on which a limit may be chosen: conversations with so many clients. The first is the choice: the replicas are well used and
/// every request is answered at once.
const CHATS: [(&str, usize); 4] = [
    ("WildChat, 60 clients", 60),
    ("WildChat, 120 clients", 120),
    ("ChatBot Arena, 120 clients", 120),
    ("ChatBot Arena, 240 clients", 240),
];
/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let limits = context.points(&LIMITS);
    let chats = chats(context, &limits);
    let chosen = best(&chats, CHATS[0].0, &limits);
    let trees = trees(context, chosen);
    let limited = over_limits(context, &limits);
    let thoughts = over_thoughts(context);
    let lengths = over_lengths(context);
    let sections = vec![
        section(&trees, chosen),
        limit_section(&limited, &chats).table(choices(&chats, &limited, &trees, &limits)),
        variation_section(&thoughts, &lengths),
    ];
    let conclusions = conclusions(&trees, chosen, &thoughts, &lengths);
    let paper = paper(&trees);
    let rows = [
        trees.0,
        sweep(limited, "limit"),
        chats.0,
        sweep(thoughts, "thought tokens"),
        sweep(lengths, "run seconds"),
    ];
    Document {
        about: vec![
            format!(
                "{REPLICAS} replicas (Llama-3.1-8B on one L4 each) and {CLIENTS} clients in one region, each client with one tree of thoughts after the \
                 other (2 branches, 15 requests a tree) for {} s. Policy: SGLang's cache_aware, as in the paper, and SkyLB's prefix_tree. Only the rule for pushing \
                 differs.",
                LENGTH.as_secs()
            ),
            format!(
                "Thoughts have a median of {THOUGHT_TOKENS} tokens: the paper does not say how long they are, but that an L4 is full at 20 to 50 requests, \
                 and with them it is. SP-O's limit is the one of {LIMITS:?} with the highest throughput on {}.",
                CHATS[0].0
            ),
        ],
        paper,
        conclusions,
        sections,
        rows: Rows(rows.concat()),
        ..Document::default()
    }
}

/// The figure itself.
fn section(trees: &Rows, chosen: u32) -> Section {
    Section::detail("Throughput, TTFT and end-to-end time (Figure 9)")
        .text(format!(
            "SP-O with a limit of {chosen}, the best for conversations."
        ))
        .table(explain::table(trees, ""))
        .table(trees.table("", &[TTFT, E2E].concat()))
}

/// Throughput under each limit, on trees and on conversations.
fn limit_section(limited: &Rows, chats: &Rows) -> Section {
    let rows = Rows([limited.0.as_slice(), &chats.0].concat());
    Section::detail("Limits")
        .text("Chosen: the limit with the highest throughput for each kind of conversation, and what SP-P has over it on the trees.")
        .table(rows.table("outstanding requests a replica, at most", &[TOKENS]))
}

/// BP and SP-P over the length of thoughts and the length of the run.
fn variation_section(thoughts: &Rows, lengths: &Rows) -> Section {
    Section::detail("Conditions of the result")
        .text(
            "Short thoughts never fill the memory: then no request is ever pending and both rules are the same. In a longer run the \
             clients, which all begin within 5 s, fall out of step, and the peaks that fill it become rare.",
        )
        .table(thoughts.table("median length of a thought, tokens", &[TOKENS, P90]))
        .table(lengths.table("length of the run, s", &[TOKENS, P90]))
}

/// Rows with the varied parameter in the name of their group: in a file, a group varies a single parameter.
fn sweep(mut rows: Rows, parameter: &str) -> Vec<Row> {
    for row in &mut rows.0 {
        row.group = format!("{}, over {parameter}", row.group);
    }
    rows.0
}
