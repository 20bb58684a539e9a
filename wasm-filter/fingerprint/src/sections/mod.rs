//! Hashes a prompt whose sections arrive in any order.
//!
//! Engines render tools before the system text, and the system text before the messages; clients often send them in another
//! order. So each section hashes its blocks on a grid of its own as it arrives. At the end the chain is folded in the order
//! of rendering, from the cache key as seed: `h = XXH3(h, block)`, 8 bytes each.

mod chain;

use alloc::vec::Vec;
use core::mem;

use self::chain::ChainBuilder;
use crate::Fingerprint;
use crate::grid::{HASHED_BYTES_MAX, block_bytes_at};
use crate::leaves::{LEAF_BYTES_MAX, LeafBuffer, fold};

/// A part of the prompt, in the order in which engines render.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// Tools, or functions.
    Tools,
    /// The system text outside the messages, or documents.
    System,
    /// Messages, the prompt, token ids.
    Content,
    /// The text after the insertion point.
    Suffix,
    /// Images beside the prompt.
    Images,
    /// Audio beside the prompt.
    Audio,
    /// Video beside the prompt.
    Video,
}

const SECTIONS: usize = Section::Video as usize + 1;
/// The blocks of a prompt of about 50 KB, so that most requests allocate once.
const BLOCKS_EXPECTED: usize = 96;

#[derive(Clone, Copy, Debug, Default)]
struct SectionHash {
    /// The whole blocks, as a range of [`Sections::blocks`].
    blocks: (usize, usize),
    /// The digest of the bytes after the last whole block.
    tail: u64,
    bytes: u64,
    /// Whether the section has begun and is not empty, so that a second one of its kind is ignored.
    is_taken: bool,
}

#[derive(Debug)]
pub(crate) struct Sections {
    /// The digests of the whole blocks of all sections, in order of arrival.
    blocks: Vec<u64>,
    hashes: [SectionHash; SECTIONS],
    current: Option<Section>,
    blocker: BlockHasher,
    leaf: LeafBuffer,
}

/// Cuts the leaves of the section that is arriving into blocks.
#[derive(Debug, Default)]
struct BlockHasher {
    /// The bytes of the section so far, by whole leaves.
    bytes: u64,
    /// The end of the current block; 0 past the last block.
    block_end: u64,
    /// The digest of the current block so far.
    block: u64,
}

impl Sections {
    pub(crate) fn new() -> Self {
        Self {
            blocks: Vec::with_capacity(BLOCKS_EXPECTED),
            hashes: [SectionHash::default(); SECTIONS],
            current: None,
            blocker: BlockHasher::default(),
            leaf: LeafBuffer::default(),
        }
    }

    /// Begins a section. Returns `false`, and keeps the first, when the prompt has a section of this kind that is not empty.
    pub(crate) fn begin(&mut self, section: Section) -> bool {
        self.end();
        let start = self.blocks.len();
        let Some(hash) = self.hashes.get_mut(section as usize) else {
            return false;
        };
        if mem::replace(&mut hash.is_taken, true) {
            return false;
        }
        hash.blocks = (start, start);
        self.current = Some(section);
        self.blocker = BlockHasher {
            block_end: u64::from(block_bytes_at(0)),
            ..BlockHasher::default()
        };
        self.leaf.restart(self.blocker.next_leaf_bytes());
        true
    }

    /// Adds bytes to the section that is arriving.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let Self {
            leaf,
            blocker,
            blocks,
            ..
        } = self;
        leaf.push(bytes, |hash, bytes| blocker.add_leaf(hash, bytes, blocks));
    }

    pub(crate) fn end(&mut self) {
        let Some(section) = self.current.take() else {
            return;
        };
        let rest_bytes = self.leaf.len() as u64;
        let block = self.blocker.block;
        let tail = self.leaf.take().map_or(block, |hash| fold(block, hash));
        if let Some(hash) = self.hashes.get_mut(section as usize) {
            hash.blocks.1 = self.blocks.len();
            hash.tail = tail;
            hash.bytes = self.blocker.bytes + rest_bytes;
            // Clients that send every member that they know send `"text":null` before `input_ids`.
            hash.is_taken = hash.bytes > 0;
        }
    }

    /// The length of the rendered prompt so far.
    pub(crate) fn total_bytes(&self) -> u64 {
        let arriving = match self.current {
            Some(_) => self.blocker.bytes + self.leaf.len() as u64,
            None => 0,
        };
        self.hashes.iter().map(|hash| hash.bytes).sum::<u64>() + arriving
    }

    pub(crate) fn fold(mut self, seed: u64) -> Fingerprint {
        self.end();
        let total_bytes = u32::try_from(self.total_bytes()).unwrap_or(u32::MAX);
        let mut chain = ChainBuilder::new(seed, self.blocks.len());
        let numbered = self.hashes.iter().zip(0u64..);
        for (hash, number) in numbered.filter(|(hash, _)| hash.bytes > 0) {
            let (start, end) = hash.blocks;
            let blocks = self.blocks.get(start..end).unwrap_or_default();
            chain.add_section(number, blocks, hash.bytes, hash.tail);
        }
        let digest = chain.digest();
        let chain = Fingerprint::new(chain.finish(), total_bytes).unwrap_or_default();
        chain.with_digest(digest)
    }
}

impl BlockHasher {
    /// Adds a leaf and returns the size of the next.
    fn add_leaf(&mut self, hash: u64, bytes: usize, blocks: &mut Vec<u64>) -> usize {
        self.bytes += bytes as u64;
        if self.block_end > 0 {
            self.block = fold(self.block, hash);
        }
        if self.bytes == self.block_end {
            blocks.push(mem::take(&mut self.block));
            self.block_end = match u32::try_from(self.bytes) {
                Ok(start) if start < HASHED_BYTES_MAX => {
                    self.bytes + u64::from(block_bytes_at(start))
                }
                _ => 0,
            };
        }
        self.next_leaf_bytes()
    }

    /// The size of the next leaf, which must not extend past the end of its block.
    fn next_leaf_bytes(&self) -> usize {
        match usize::try_from(self.block_end.saturating_sub(self.bytes)) {
            Ok(rest @ 1..LEAF_BYTES_MAX) => rest,
            _ => LEAF_BYTES_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::BLOCKS_MAX;

    fn chain(sections: &[(Section, &[u8])]) -> Fingerprint {
        let mut arriving = Sections::new();
        for (section, bytes) in sections {
            assert!(arriving.begin(*section));
            arriving.push(bytes);
        }
        arriving.fold(7)
    }

    #[test]
    fn the_chain_does_not_depend_on_the_order_of_arrival() {
        let (tools, messages) = ([b't'; 3000], [b'm'; 9000]);
        let forward = chain(&[(Section::Tools, &tools), (Section::Content, &messages)]);
        let backward = chain(&[(Section::Content, &messages), (Section::Tools, &tools)]);
        assert_eq!(forward, backward);
        assert_eq!(forward.total_bytes(), 12_000);
    }

    #[test]
    fn the_digest_covers_what_follows_the_last_block() {
        let of = |text: &[u8]| chain(&[(Section::Content, text)]);
        let (a, b) = (of(&[b'x'; 300]), of(&[&[b'x'; 299][..], b"y"].concat()));
        assert_eq!(a.blocks(), b.blocks());
        assert_ne!(a.digest(), b.digest());
        assert_ne!(of(b"a").digest(), of(b"b").digest(), "without a block");
    }

    #[test]
    fn equal_bytes_in_different_sections_share_no_block() {
        let text = [b'x'; 3000];
        let tools = chain(&[(Section::Tools, &text)]);
        let system = chain(&[(Section::System, &text)]);
        assert!(
            tools
                .blocks()
                .iter()
                .all(|block| !system.blocks().contains(block))
        );
    }

    #[test]
    fn a_second_section_of_one_kind_is_ignored() {
        let mut sections = Sections::new();
        assert!(sections.begin(Section::Content));
        assert!(sections.begin(Section::Content), "the first was empty");
        sections.push(b"x");
        assert!(!sections.begin(Section::Content));
    }

    #[test]
    fn blocks_after_a_long_section_are_as_wide_as_the_grid_has_them() {
        let (tools, messages) = (alloc::vec![b't'; 100_000], alloc::vec![b'm'; 100_000]);
        let chain = chain(&[(Section::Tools, &tools), (Section::Content, &messages)]);
        for pair in chain.blocks().windows(2) {
            let gap = pair[1].end_bytes - pair[0].end_bytes;
            let width = block_bytes_at(pair[0].end_bytes);
            assert!(
                gap >= width && gap < 2 * width,
                "{gap} after {}",
                pair[0].end_bytes
            );
        }
    }

    #[test]
    fn bytes_past_the_last_block_count_in_the_length() {
        let long = alloc::vec![0; HASHED_BYTES_MAX as usize + 3_000_000];
        let chain = chain(&[(Section::Tools, &long), (Section::Content, &long)]);
        assert_eq!(chain.total_bytes() as usize, 2 * long.len());
        assert!(chain.blocks().len() <= BLOCKS_MAX);
        assert!(chain.blocks().last().unwrap().end_bytes <= HASHED_BYTES_MAX);
    }
}
