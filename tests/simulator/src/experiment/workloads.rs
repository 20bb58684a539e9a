//! The workloads of the papers, as experiments want them: by clients or by rate, made smaller when only a quick look is wanted.

use core::time::Duration;
use std::sync::Arc;

use super::lab::{Draw, Effort};
use crate::workload::chat::Chat;
use crate::workload::tree_of_thoughts::{TreeClients, TreeOfThoughts};

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

/// A sixth of the time: the clients are as many, or the load would be another one.
fn shorter(effort: &Effort, full: Duration) -> Duration {
    if effort.quick { full / 6 } else { full }
}
