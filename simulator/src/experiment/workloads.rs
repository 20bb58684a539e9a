//! The workloads of the papers, as experiments want them: by clients or by rate, made smaller when only a quick look is wanted.

use core::time::Duration;
use std::sync::Arc;

use super::lab::{Draw, Effort};
use crate::prompt::Prompt;
use crate::workload::chat::Chat;
use crate::workload::conversation::Conversation;
use crate::workload::draw::LogNormal;
use crate::workload::replay::Replay;
use crate::workload::tools::Tools;
use crate::workload::tree_of_thoughts::{TreeClients, TreeOfThoughts};

/// What comes before this many tokens of a prompt is its key for Cache Affinity: two blocks of 512 (DualMap, A.1.1).
const KEY_TOKENS: u32 = 1_024;

/// Conversations as in ChatBot Arena, with so many clients in each region.
pub(super) fn arena(effort: &Effort, clients: &[usize]) -> Draw {
    chat(effort, clients, Chat::arena())
}

/// Conversations as in WildChat.
pub(super) fn wildchat(effort: &Effort, clients: &[usize]) -> Draw {
    chat(effort, clients, Chat::wildchat())
}

fn chat(effort: &Effort, clients: &[usize], default: Chat) -> Draw {
    let chat = Chat {
        clients: clients.to_vec(),
        duration: shorter(effort, default.duration),
        ..default
    };
    Arc::new(move |seed| chat.generate(seed))
}

/// Trees of thoughts: branches and clients of each region.
pub(super) fn trees(effort: &Effort, regions: &[(usize, usize)]) -> Draw {
    let regions = regions
        .iter()
        .map(|&(branches, clients)| TreeClients { clients, branches });
    let mut trees = TreeOfThoughts::new("trees", regions.collect());
    trees.duration = shorter(effort, trees.duration);
    Arc::new(move |seed| trees.generate(seed))
}

/// Trees with two branches whose thoughts are longer, sent for so long.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongTrees {
    pub(super) clients: usize,
    /// Median length of a thought, tokens.
    pub(super) thought_tokens: f64,
    pub(super) duration: Duration,
}

/// What asks for the next step in published programs that grow such trees, tokens: one or two sentences.
const ASK_TOKENS: u32 = 60;
const THOUGHT_SIGMA: f64 = 0.35;

pub(super) fn long_trees(effort: &Effort, long: LongTrees) -> Draw {
    let clients = TreeClients {
        clients: long.clients,
        branches: 2,
    };
    let mut trees = TreeOfThoughts::new("trees", vec![clients]);
    trees.thought = LogNormal::new(long.thought_tokens, THOUGHT_SIGMA);
    trees.ask_tokens = ASK_TOKENS;
    trees.duration = shorter(effort, long.duration);
    Arc::new(move |seed| trees.generate(seed))
}

/// Agents that call tools.
pub(super) fn tools(requests_per_s: f64, requests: usize) -> Draw {
    let tools = Tools {
        requests,
        requests_per_s,
        warmup_requests: requests / 8,
    };
    Arc::new(move |seed| tools.generate(seed))
}

fn as_dual_map(requests_per_s: f64, quick: bool) -> Replay {
    let mut replay = Replay::as_dual_map(requests_per_s);
    if quick {
        replay.first = replay.first.map(|first| first / 10);
        replay.warmup_requests /= 10;
    }
    replay
}

/// So many requests a conversation trace must have.
pub(super) fn trace_requests(quick: bool) -> usize {
    as_dual_map(1.0, quick).first.unwrap_or(1)
}

/// The conversation trace as DualMap plays it: the file's when there is one, the twin's when not.
pub(super) fn conversation(effort: &Effort, requests_per_s: f64) -> Draw {
    let replay = as_dual_map(requests_per_s, effort.quick);
    let trace = effort.trace.clone();
    Arc::new(move |seed| match &trace {
        Some(trace) => replay.workload("conversation", trace),
        None => replay.workload("conversation", &Conversation::default().generate(seed)),
    })
}

/// Which conversations they were.
pub(super) fn described(effort: &Effort) -> &'static str {
    if effort.trace.is_some() {
        "Conversations: the first requests of the trace itself; seeds differ in the phases of probes and in what policies draw by lot."
    } else {
        "Conversations: no trace was given, so a synthetic twin stands in, with the trace's arrivals, lengths and sharing; each seed is another twin."
    }
}

/// The same with the session key made of the beginning of the prompt: what a mapping by prompt goes by.
pub(super) fn keyed_by_prefix(draw: Draw) -> Draw {
    Arc::new(move |seed| {
        let mut workload = draw(seed);
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
    let (mut key, mut before) = (0xcbf2_9ce4_8422_2325_u64, 0_u32);
    for piece in prompt.pieces() {
        if before >= KEY_TOKENS {
            break;
        }
        for byte in piece.id.to_le_bytes() {
            key = (key ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        before = before.saturating_add(piece.tokens);
    }
    key
}

/// A sixth of the time: the clients are as many, or the load would be another one.
fn shorter(effort: &Effort, full: Duration) -> Duration {
    if effort.quick { full / 6 } else { full }
}
