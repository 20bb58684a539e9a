//! The length of the prefix that is a prompt's key: the hotness tree (`DualMap` 3.2, `docs/design/dual-map.md`).
//!
//! The window holds the last prompts themselves, so the children of a prefix that becomes hot are counted at once.
//! The paper's unit is 512 tokens, and its first key has two blocks; here keys begin as short as prompts allow.

use std::collections::{BTreeMap, VecDeque};

use isotherm_fingerprint::BlockHash;

/// Recent requests over which a share is counted, in a small pool.
const WINDOW_MIN: usize = 1_024;
/// Recent requests over which a share is counted, for each replica of a large pool: a few requests are no trend.
const REQUESTS_PER_REPLICA: usize = 8;
/// Prompts of the window that one request reads to count children, at most. The next request goes on.
const READ_MAX: usize = 96 * WINDOW_MIN;
/// Bound on the length of a key, in blocks: about 20,000 tokens.
const DEPTH_MAX: usize = 96;

/// The prefixes that many of the recent requests share.
#[derive(Debug, Default)]
pub(super) struct Hotness {
    /// The block hashes of the last requests, oldest first.
    window: VecDeque<Box<[u64]>>,
    /// Counts of the hot prefixes, their children, and the first blocks.
    nodes: BTreeMap<u64, Node>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    count: usize,
    /// Whether keys are longer than this prefix.
    hot: bool,
}

impl Hotness {
    /// The hash of the prefix that is the key of this prompt; `None` for a prompt without a block.
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

    /// Counts a request, in a pool of so many replicas.
    pub(super) fn observe(&mut self, blocks: &[BlockHash], replicas: usize) {
        let path: Box<[u64]> = blocks
            .iter()
            .take(DEPTH_MAX)
            .map(|block| block.hash)
            .collect();
        // Where the pool has shrunk, the window shrinks by and by.
        for _ in 0..2 {
            if self.window.len() >= window_len(replicas)
                && let Some(oldest) = self.window.pop_front()
            {
                self.uncount(&oldest, replicas);
            }
        }
        self.window.push_back(path.clone());
        self.count(&path, replicas);
    }

    fn is_hot(&self, prefix: u64) -> bool {
        self.nodes.get(&prefix).is_some_and(|node| node.hot)
    }

    /// The number of requests that a share refers to.
    fn total(&self, replicas: usize) -> usize {
        let least = REQUESTS_PER_REPLICA.saturating_mul(replicas);
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

    /// Marks a prefix hot and counts its children, some of which may be hot as well.
    fn grow(&mut self, at: usize, prefix: u64, replicas: usize) {
        let mut grown = vec![(at, prefix)];
        let mut read = 0;
        while let Some((at, prefix)) = grown.pop() {
            if read >= READ_MAX {
                return;
            }
            read += self.window.len();
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

    /// Marks a prefix as not hot and drops the counts of its extensions. `leaving` is the prompt that leaves the window.
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

/// Recent requests over which a share is counted, in a pool of so many replicas.
fn window_len(replicas: usize) -> usize {
    REQUESTS_PER_REPLICA
        .saturating_mul(replicas)
        .max(WINDOW_MIN)
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
    fn behind_a_shared_system_prompt_the_key_ends_in_the_own_part() {
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
    fn a_prefix_that_becomes_popular_is_split() {
        let mut hotness = Hotness::default();
        for own in 0..3_000 {
            let system = if own % 2 == 0 { 0 } else { own % 7 + 1 };
            hotness.observe(&prompt(system, 5, own), REPLICAS);
        }
        assert_eq!(depth(&hotness, &prompt(0, 5, 7)), 6);
        assert_eq!(depth(&hotness, &prompt(3, 5, 7)), 1);
    }

    #[test]
    fn a_prefix_that_cools_down_is_whole_again_but_not_at_once() {
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
    fn in_a_large_pool_a_prefix_is_hot_above_two_replicas_share() {
        const LARGE: usize = 1_000;
        let mut hotness = Hotness::default();
        for own in 0..20_000 {
            // One request of 300: 3.3/n.
            let system = if own % 300 == 0 { 0 } else { 1 + own % 2_000 };
            hotness.observe(&prompt(system, 5, own), LARGE);
        }
        assert_eq!(hotness.window.len(), 8 * LARGE);
        assert_eq!(depth(&hotness, &prompt(0, 5, 7)), 6);
        assert_eq!(depth(&hotness, &prompt(3, 5, 7)), 1, "0.5/n");
        for own in 20_000..30_000 {
            hotness.observe(&prompt(own % 50, 5, own), REPLICAS);
        }
        assert_eq!(hotness.window.len(), WINDOW_MIN, "the pool has shrunk");
    }

    #[test]
    fn the_counts_agree_with_the_window() {
        let mut hotness = Hotness::default();
        for own in 0..5_000_u64 {
            let system = own * own % 11 % 4;
            hotness.observe(&prompt(system, 3, own % 40), REPLICAS);
            assert!(hotness.window.len() <= window_len(REPLICAS));
        }
        for (prefix, node) in &hotness.nodes {
            let having = hotness.window.iter().filter(|path| path.contains(prefix));
            assert_eq!(having.count(), node.count);
        }
    }
}
