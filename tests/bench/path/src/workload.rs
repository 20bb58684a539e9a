//! Workloads of every variant.

use serde::Serialize;

/// A workload: prompts and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Workload {
    /// Name in the table.
    pub name: &'static str,
    /// Approximate length of each prompt.
    pub prompt_bytes: usize,
    /// Relation of the prompts to each other.
    pub prompts: PromptKind,
    /// Chunks of each streamed response, besides the last one; 0 for a whole response.
    pub chunks: u32,
}

/// Relation of the prompts to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromptKind {
    /// None: each prompt is new from its first bytes on, the worst case of a router that remembers prompts.
    Unique,
    /// Turns of conversations: the first turn is new, each other turn repeats the previous one and adds to it.
    MultiTurn,
}

/// Every workload, in the order of the table. Prompts of different lengths get whole responses: a peer that delays the end of a
/// short stream would look slower than it is.
pub const WORKLOADS: [Workload; 11] = [
    workload("4 KB", 4, PromptKind::Unique, 0),
    workload("64 KB", 64, PromptKind::Unique, 0),
    workload("220 KB", 220, PromptKind::Unique, 0),
    workload("400 KB", 400, PromptKind::Unique, 0),
    workload("4 KB, turns", 4, PromptKind::MultiTurn, 0),
    workload("64 KB, turns", 64, PromptKind::MultiTurn, 0),
    workload("220 KB, turns", 220, PromptKind::MultiTurn, 0),
    workload("400 KB, turns", 400, PromptKind::MultiTurn, 0),
    workload("4 KB, 1 chunk", 4, PromptKind::Unique, 1),
    workload("4 KB, 100 chunks", 4, PromptKind::Unique, 100),
    workload("4 KB, 1,000 chunks", 4, PromptKind::Unique, 1_000),
];

impl Workload {
    /// Whether the workload has unique prompts and whole responses.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.prompts == PromptKind::Unique && self.chunks == 0
    }

    /// The workload of this name.
    ///
    /// # Errors
    /// Every name, when no workload has this one.
    pub fn named(name: &str) -> Result<Self, String> {
        let found = WORKLOADS.iter().find(|workload| workload.name == name);
        found.copied().ok_or_else(|| {
            let names = WORKLOADS.map(|workload| format!("`{}`", workload.name));
            format!("none of {}", names.join(", "))
        })
    }
}

const fn workload(
    name: &'static str,
    kilobytes: usize,
    prompts: PromptKind,
    chunks: u32,
) -> Workload {
    Workload {
        name,
        prompt_bytes: kilobytes << 10,
        prompts,
        chunks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_found_by_its_name_and_no_other_is() {
        for workload in WORKLOADS {
            assert_eq!(Workload::named(workload.name), Ok(workload));
        }
        assert!(Workload::named("5 KB").unwrap_err().contains("`4 KB`"));
    }
}
