//! How much of a prompt is the key: the hotness tree (`DualMap` 3.2, "how long prefix is appropriate for the hash key").
//!
//! Too short a key lays different conversations on the same pair of replicas; too long a one tears what shares a prefix
//! apart. So a key begins with the first block of the prompt, and grows by one block wherever that prefix is *hot*: where
//! more than two replicas' worth of the recent requests share it (a share above 2/n), since a pair could not serve
//! them. It shrinks where the share falls below 1/n. Between the two it stays as it is: a prefix whose share trembles
//! about a threshold must not change its pair with every request.
//!
//! The window holds the last [`WINDOW`] prompts themselves, so the children of a prefix that has just become hot are counted
//! at once from what was seen. Without that each level would have to be learned anew, and behind a system prompt of a
//! hundred blocks no key would get anywhere. Counted are only prefixes that are hot, and their children.
//!
//! Differs from the paper in the unit (a block, 64 tokens at the start, for their block of 512) and in where keys begin
//! (one block, for their two blocks): as short as prompts allow, since the tree makes them long where that is needed.

use std::collections::{BTreeMap, VecDeque};

use isotherm_fingerprint::BlockHash;

/// How many requests back a share is counted over.
const WINDOW: usize = 1_024;
/// In a smaller window, or a large pool, shares are of so many requests for each replica: a few are no trend.
const REQUESTS_PER_REPLICA_MIN: usize = 8;
/// No key is longer, in blocks: about 20,000 tokens.
const DEPTH_MAX: usize = 96;

/// The prefixes that many of the recent requests share.
#[derive(Debug, Default)]
pub(super) struct Hotness {
    /// The last requests, oldest first: the hashes of their blocks.
    window: VecDeque<Box<[u64]>>,
    /// How many of them have a prefix: the hot ones, their children, and the first blocks.
    nodes: BTreeMap<u64, Node>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    count: usize,
    /// Whether keys go on behind it.
    hot: bool,
}

impl Hotness {
    /// The hash of the prefix that is the key of this prompt; none if it has no block.
    pub(super) fn key(&self, blocks: &[BlockHash]) -> Option<u64> {
        let mut key = None;
        for block in blocks.iter().take(DEPTH_MAX) {
            key = Some(block.hash);
            if !self.is_hot(block.hash) {
                break;
            }
        }
        key
    }

    /// One more request, with so many replicas.
    pub(super) fn observe(&mut self, blocks: &[BlockHash], replicas: usize) {
        let path: Box<[u64]> = blocks
            .iter()
            .take(DEPTH_MAX)
            .map(|block| block.hash)
            .collect();
        if self.window.len() >= WINDOW
            && let Some(oldest) = self.window.pop_front()
        {
            self.uncount(&oldest, replicas);
        }
        self.window.push_back(path.clone());
        self.count(&path, replicas);
    }

    fn is_hot(&self, prefix: u64) -> bool {
        self.nodes.get(&prefix).is_some_and(|node| node.hot)
    }

    /// How many requests a share is of.
    fn total(&self, replicas: usize) -> usize {
        let least = REQUESTS_PER_REPLICA_MIN.saturating_mul(replicas);
        self.window.len().max(least)
    }

    /// Whether a share is above 2/n.
    fn is_much(&self, count: usize, replicas: usize) -> bool {
        count * replicas > 2 * self.total(replicas)
    }

    /// Whether a share is below 1/n.
    fn is_little(&self, count: usize, replicas: usize) -> bool {
        count * replicas < self.total(replicas)
    }

    fn count(&mut self, path: &[u64], replicas: usize) {
        for (at, prefix) in path.iter().enumerate() {
            let node = self.nodes.entry(*prefix).or_default();
            node.count += 1;
            if node.hot {
                continue;
            }
            let count = node.count;
            if self.is_much(count, replicas) {
                self.grow(at, *prefix, replicas);
            }
            return;
        }
    }

    fn uncount(&mut self, path: &[u64], replicas: usize) {
        for (at, prefix) in path.iter().enumerate() {
            let Some(node) = self.nodes.get_mut(prefix) else {
                return;
            };
            node.count = node.count.saturating_sub(1);
            let Node { count, hot } = *node;
            if hot && self.is_little(count, replicas) {
                self.shrink(at, *prefix, path);
            }
            if count == 0 {
                self.nodes.remove(prefix);
            }
            if !self.is_hot(*prefix) {
                return;
            }
        }
    }

    /// A prefix became hot: its children are counted, and those of them that are hot are treated likewise.
    fn grow(&mut self, at: usize, prefix: u64, replicas: usize) {
        let mut grown = vec![(at, prefix)];
        while let Some((at, prefix)) = grown.pop() {
            self.nodes.entry(prefix).or_default().hot = true;
            let mut children: BTreeMap<u64, usize> = BTreeMap::new();
            for path in &self.window {
                if path.get(at) == Some(&prefix)
                    && let Some(child) = path.get(at + 1)
                {
                    *children.entry(*child).or_default() += 1;
                }
            }
            for (child, count) in children {
                self.nodes.insert(child, Node { count, hot: false });
                if self.is_much(count, replicas) {
                    grown.push((at + 1, child));
                }
            }
        }
    }

    /// A prefix is not hot any more: nothing behind it is counted. `leaving` is on its way out of the window.
    fn shrink(&mut self, at: usize, prefix: u64, leaving: &[u64]) {
        if let Some(node) = self.nodes.get_mut(&prefix) {
            node.hot = false;
        }
        let window = self.window.iter().map(AsRef::as_ref);
        for path in window.chain([leaving]) {
            if path.get(at) != Some(&prefix) {
                continue;
            }
            for behind in path.iter().skip(at + 1) {
                if self.nodes.remove(behind).is_none() {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICAS: usize = 8;

    /// A prompt of this many blocks of a system prompt, and some of its own.
    fn prompt(system: u64, shared: u32, own: u64) -> Vec<BlockHash> {
        let hash = |at: u32| {
            let own = if at < shared { 0 } else { own };
            (system << 40) | (own << 8) | u64::from(at)
        };
        (0..shared + 4)
            .map(|at| BlockHash {
                hash: hash(at),
                end_bytes: (at + 1) * 256,
            })
            .collect()
    }

    /// Blocks in the key of a prompt.
    fn depth(hotness: &Hotness, blocks: &[BlockHash]) -> usize {
        let key = hotness.key(blocks).unwrap();
        1 + blocks.iter().position(|block| block.hash == key).unwrap()
    }

    #[test]
    fn an_unknown_prompt_has_the_key_of_its_first_block() {
        let hotness = Hotness::default();
        assert_eq!(depth(&hotness, &prompt(1, 4, 1)), 1);
        assert_eq!(hotness.key(&[]), None);
    }

    #[test]
    fn behind_a_system_prompt_that_all_share_the_key_ends_in_what_is_each_ones_own() {
        let mut hotness = Hotness::default();
        for own in 0..100 {
            hotness.observe(&prompt(1, 20, own), REPLICAS);
        }
        assert_eq!(depth(&hotness, &prompt(1, 20, 7)), 21);
    }

    #[test]
    fn a_prefix_that_two_replicas_can_serve_stays_whole() {
        let mut hotness = Hotness::default();
        for own in 0..1_000 {
            // A fifth of the requests, with eight replicas: less than 2/n.
            hotness.observe(&prompt(own % 5, 20, own), REPLICAS);
        }
        assert_eq!(depth(&hotness, &prompt(1, 20, 7)), 1);
    }

    #[test]
    fn one_of_them_that_becomes_popular_is_split() {
        let mut hotness = Hotness::default();
        for own in 0..3_000 {
            let system = if own % 2 == 0 { 0 } else { own % 7 + 1 };
            hotness.observe(&prompt(system, 5, own), REPLICAS);
        }
        assert_eq!(depth(&hotness, &prompt(0, 5, 7)), 6);
        assert_eq!(depth(&hotness, &prompt(3, 5, 7)), 1);
    }

    #[test]
    fn one_that_cools_down_is_whole_again_but_not_at_once() {
        let mut hotness = Hotness::default();
        let mut own = 0;
        let mut send = |hotness: &mut Hotness, one_in: u64, times: u64| {
            for _ in 0..times {
                own += 1;
                let system = if own % one_in == 0 { 1 } else { 2 + own % 50 };
                hotness.observe(&prompt(system, 5, own), REPLICAS);
            }
        };
        send(&mut hotness, 2, 1_500);
        assert_eq!(depth(&hotness, &prompt(1, 5, 7)), 6);
        send(&mut hotness, 5, 1_500);
        let still = depth(&hotness, &prompt(1, 5, 7));
        assert_eq!(still, 6, "a fifth is between 1/n and 2/n");
        send(&mut hotness, 20, 1_500);
        assert_eq!(depth(&hotness, &prompt(1, 5, 7)), 1);
    }

    #[test]
    fn what_is_counted_is_what_the_window_holds() {
        let mut hotness = Hotness::default();
        for own in 0..5_000_u64 {
            let system = own * own % 11 % 4;
            hotness.observe(&prompt(system, 3, own % 40), REPLICAS);
            assert!(hotness.window.len() <= WINDOW);
        }
        for (prefix, node) in &hotness.nodes {
            let having = hotness.window.iter().filter(|path| path.contains(prefix));
            assert_eq!(having.count(), node.count);
        }
    }
}
