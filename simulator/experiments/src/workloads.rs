//! Workloads of the papers, by clients or by rate, shorter in a quick run.

use core::time::Duration;
use std::sync::Arc;

use crate::context::{Effort, WorkloadSource};
use isotherm_simulator::prompt::Prompt;
use isotherm_simulator::workload::chat::Chat;
use isotherm_simulator::workload::conversation::{self as twin, HOUR_S};
use isotherm_simulator::workload::replay::Replay;
use isotherm_simulator::workload::rng::LogNormal;
use isotherm_simulator::workload::tree_of_thoughts::{TreeClients, TreeOfThoughts};
use isotherm_simulator::workload::{OpenLoop, tools};

/// Length of the prefix that is the key for Cache Affinity: two blocks of 512 tokens (DualMap, A.1.1).
const KEY_TOKENS: u32 = 1_024;

/// Conversations as in ChatBot Arena, with so many clients in each region.
pub(crate) fn arena(effort: &Effort, clients: &[usize]) -> WorkloadSource {
    chat(effort, clients, Chat::arena())
}

/// Conversations as in WildChat.
pub(crate) fn wildchat(effort: &Effort, clients: &[usize]) -> WorkloadSource {
    chat(effort, clients, Chat::wildchat())
}

fn chat(effort: &Effort, clients: &[usize], default: Chat) -> WorkloadSource {
    let chat = Chat {
        clients: clients.to_vec(),
        duration: shorter(effort, default.duration),
        ..default
    };
    Arc::new(move |seed| chat.generate(seed))
}

/// Trees of thoughts: branches and clients of each region.
pub(crate) fn trees(effort: &Effort, regions: &[(usize, usize)]) -> WorkloadSource {
    let regions = regions
        .iter()
        .map(|&(branches, clients)| TreeClients { clients, branches });
    let mut trees = TreeOfThoughts::new("trees", regions.collect());
    trees.duration = shorter(effort, trees.duration);
    Arc::new(move |seed| trees.generate(seed))
}

/// Length of the text that asks for the next step in published programs, in tokens: one or two sentences.
const ASK_TOKENS: u32 = 60;
const THOUGHT_SIGMA: f64 = 0.35;

/// Trees with two branches and thoughts of this median length.
pub(crate) fn long_trees(
    effort: &Effort,
    clients: usize,
    thought_tokens: f64,
    duration: Duration,
) -> WorkloadSource {
    let clients = TreeClients {
        clients,
        branches: 2,
    };
    let trees = TreeOfThoughts {
        thought: LogNormal::new(thought_tokens, THOUGHT_SIGMA),
        ask_tokens: ASK_TOKENS,
        duration: shorter(effort, duration),
        ..TreeOfThoughts::new("trees", vec![clients])
    };
    Arc::new(move |seed| trees.generate(seed))
}

/// Agents that call tools.
pub(crate) fn tools(requests_per_s: f64, requests: usize) -> WorkloadSource {
    let of = OpenLoop {
        requests,
        requests_per_s,
        warmup_requests: requests / 8,
    };
    Arc::new(move |seed| tools::generate(&of, seed))
}

fn as_dual_map(requests_per_s: f64, quick: bool) -> Replay {
    let mut replay = Replay::as_dual_map(requests_per_s);
    if quick {
        replay.first = replay.first.map(|first| first / 10);
        replay.warmup_requests /= 10;
    }
    replay
}

/// Number of requests that a conversation trace must have.
pub(crate) fn trace_requests(quick: bool) -> usize {
    as_dual_map(1.0, quick).first.unwrap_or(1)
}

/// The conversation trace as DualMap plays it: the file, or its synthetic twin.
pub(crate) fn conversation(effort: &Effort, requests_per_s: f64) -> WorkloadSource {
    let replay = as_dual_map(requests_per_s, effort.quick);
    let trace = effort.trace.clone();
    Arc::new(move |seed| match &trace {
        Some(trace) => replay.workload("conversation", trace),
        None => replay.workload("conversation", &twin::generate(HOUR_S, seed)),
    })
}

/// Description of the conversations.
pub(crate) fn described(effort: &Effort) -> &'static str {
    if effort.trace.is_some() {
        "Conversations: the first requests of the trace itself; seeds differ in the phases of probes and in the random choices of policies."
    } else {
        "Conversations: no trace was given, so a synthetic twin stands in, with the trace's arrivals, lengths and sharing; each seed is another twin."
    }
}

/// The workload with session keys made of the beginning of the prompt, for a mapping by prompt.
pub(crate) fn keyed_by_prefix(source: WorkloadSource) -> WorkloadSource {
    Arc::new(move |seed| {
        let mut workload = source(seed);
        for session in &mut workload.sessions {
            if let Some(first) = session.steps.first() {
                session.key = prefix_key(&first.prompt);
            }
        }
        workload
    })
}

/// FNV-1a over the pieces that begin within the first tokens.
fn prefix_key(prompt: &Prompt) -> u64 {
    let mut before = 0_u32;
    let pieces = prompt.pieces().iter().take_while(|piece| {
        let begins = before;
        before = before.saturating_add(piece.tokens);
        begins < KEY_TOKENS
    });
    let bytes = pieces.flat_map(|piece| piece.id.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |key, byte| {
        (key ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A sixth of the time in a quick run. The number of clients stays, or the load would differ.
fn shorter(effort: &Effort, full: Duration) -> Duration {
    if effort.quick { full / 6 } else { full }
}
