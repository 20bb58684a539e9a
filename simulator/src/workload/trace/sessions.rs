//! Sessions of a trace that does not name them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::Trace;

/// Number of ways in which a conversation may go on from a block: a user now and then edits the last message.
const CONTINUATIONS_MAX: usize = 3;

impl Trace {
    /// The session of each line: what it says, or what its blocks suggest.
    pub fn sessions(&self) -> Vec<u64> {
        let common = self.common_blocks();
        let mut named: BTreeMap<u64, u64> = BTreeMap::new();
        let mut owners: HashMap<u64, u64> = HashMap::new();
        let mut sessions = Vec::with_capacity(self.lines.len());
        for (index, line) in self.lines.iter().enumerate() {
            let own = || line.hash_ids.iter().filter(|id| !common.contains(*id));
            let session = line.session.map_or_else(
                || {
                    own()
                        .rev()
                        .find_map(|id| owners.get(id))
                        .copied()
                        .unwrap_or(index as u64)
                },
                |name| *named.entry(name).or_insert(index as u64),
            );
            for id in own() {
                owners.entry(*id).or_insert(session);
            }
            sessions.push(session);
        }
        sessions
    }

    /// Blocks that many texts continue: system prompts and the like, which say nothing about sessions.
    fn common_blocks(&self) -> HashSet<u64> {
        let mut next: HashMap<u64, BTreeSet<u64>> = HashMap::new();
        for line in &self.lines {
            for (block, after) in line.hash_ids.iter().zip(line.hash_ids.iter().skip(1)) {
                let known = next.entry(*block).or_default();
                if known.len() <= CONTINUATIONS_MAX {
                    known.insert(*after);
                }
            }
        }
        next.into_iter()
            .filter(|(_, after)| after.len() > CONTINUATIONS_MAX)
            .map(|(block, _)| block)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_continues_a_conversation_belongs_to_its_session() {
        let line = |ids: &str| {
            format!(
                "{{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [{ids}]}}\n"
            )
        };
        let text: String = [
            "0, 1, 2",
            "0, 3, 4",
            "0, 5",
            "0, 6",
            "0, 3, 4, 7",
            "0, 1, 8",
            "0",
        ]
        .map(line)
        .concat();
        let sessions = Trace::read(text.as_bytes(), None).unwrap().sessions();
        // Five texts go on from the first block, so it belongs to no session.
        assert_eq!(sessions, [0, 1, 2, 3, 1, 0, 6]);
    }
}
