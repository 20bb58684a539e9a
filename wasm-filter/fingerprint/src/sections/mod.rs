//! Hashing a prompt whose sections arrive in any order.
//!
//! Engines render tools before the system text, and that before the messages; clients often send them the other way
//! round. So each section hashes its blocks on a grid of its own as it arrives, and the chain is folded at the end, in the
//! order of rendering, from a seed of what selects the cache: `h = XXH3(h, block)`, 8 bytes each. Rejected: keeping the
//! body until the order is known (unbounded), and hashing in order of arrival (two clients with the same prompt and
//! different serialisers would share nothing).

mod folding;

use alloc::vec::Vec;

use self::folding::Folding;

use crate::BlockHash;
use crate::grid::{HASHED_BYTES_MAX, width_at};
use crate::leaves::{Filled, LEAF_BYTES_MAX, Leaf, fold};

/// A part of the prompt, in the order in which engines render.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// Tools, or functions.
    Tools,
    /// The system text where it stands beside the messages, or documents.
    System,
    /// Messages, the prompt, token ids.
    Content,
    /// Text behind what is to be filled in.
    Suffix,
    /// Images beside the prompt.
    Images,
    /// Audio beside the prompt.
    Audio,
    /// Video beside the prompt.
    Video,
}

/// How many sections there are.
const SECTIONS: usize = Section::Video as usize + 1;
/// Room for the blocks of a prompt of about 50 KB, so that most requests allocate once.
const BLOCKS_EXPECTED: usize = 96;

/// What a section came to.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// Its blocks, as a range of [`Sections::blocks`].
    blocks: (usize, usize),
    /// The digest of what follows its last whole block.
    tail: u64,
    /// Its length.
    bytes: u64,
    /// Whether it has begun, and is not empty, so that a second one of the same name is not taken.
    begun: bool,
}

/// The sections of a prompt.
#[derive(Debug)]
pub(crate) struct Sections {
    /// The whole blocks of all sections, in order of arrival.
    blocks: Vec<u64>,
    spans: [Span; SECTIONS],
    /// The section that is arriving.
    current: Option<Section>,
    /// What it came to so far.
    run: Run,
    leaf: Leaf,
}

/// A section that is arriving, by whole leaves.
#[derive(Debug, Default)]
struct Run {
    /// Its length.
    bytes: u64,
    /// Where its current block ends; 0 past the last block.
    block_end: u64,
    /// The hash of the current block so far.
    block: u64,
}

/// A prompt's chain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) blocks: Vec<BlockHash>,
    pub(crate) total_bytes: u32,
}

impl Sections {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            blocks: Vec::with_capacity(BLOCKS_EXPECTED),
            spans: [Span::default(); SECTIONS],
            current: None,
            run: Run::default(),
            leaf: Leaf::default(),
        }
    }

    /// A section begins; `false` when there was one of this kind that is not empty, which stays.
    pub(crate) fn begin(&mut self, section: Section) -> bool {
        self.end();
        let start = self.blocks.len();
        let Some(span) = self.spans.get_mut(section as usize) else {
            return false;
        };
        if span.begun {
            return false;
        }
        span.begun = true;
        span.blocks = (start, start);
        self.current = Some(section);
        self.run = Run {
            block_end: u64::from(width_at(0)),
            ..Run::default()
        };
        self.leaf.restart(self.run.next_leaf_bytes());
        true
    }

    /// More of the section that is arriving.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let Self {
            leaf, run, blocks, ..
        } = self;
        leaf.push(bytes, |leaf| run.leaf(leaf, blocks));
    }

    /// The section that is arriving ends.
    pub(crate) fn end(&mut self) {
        let Some(section) = self.current.take() else {
            return;
        };
        let rest_bytes = self.leaf.filled() as u64;
        let tail = self
            .leaf
            .take()
            .map_or(self.run.block, |hash| fold(self.run.block, hash));
        if let Some(span) = self.spans.get_mut(section as usize) {
            span.blocks.1 = self.blocks.len();
            span.tail = tail;
            span.bytes = self.run.bytes + rest_bytes;
            // Clients that send every member they know send `"text":null` in front of `input_ids`.
            span.begun = span.bytes > 0;
        }
    }

    /// Rendered bytes so far.
    pub(crate) fn total_bytes(&self) -> u64 {
        let arriving = match self.current {
            Some(_) => self.run.bytes + self.leaf.filled() as u64,
            None => 0,
        };
        self.spans.iter().map(|span| span.bytes).sum::<u64>() + arriving
    }

    /// The chain of everything, from a seed.
    pub(crate) fn fold(mut self, seed: u64) -> Chain {
        self.end();
        let total_bytes = u32::try_from(self.total_bytes()).unwrap_or(u32::MAX);
        let mut folding = Folding::new(seed, self.blocks.len());
        let arrived = self.spans.iter().zip(0u64..);
        for (span, number) in arrived.filter(|(span, _)| span.bytes > 0) {
            let (start, end) = span.blocks;
            let blocks = self.blocks.get(start..end).unwrap_or_default();
            folding.section(number, blocks, span.bytes, span.tail);
        }
        Chain {
            blocks: folding.blocks(),
            total_bytes,
        }
    }
}

impl Run {
    /// One more leaf; the answer is the size of the next.
    fn leaf(&mut self, leaf: Filled, blocks: &mut Vec<u64>) -> usize {
        self.bytes += leaf.bytes as u64;
        if self.block_end > 0 {
            self.block = fold(self.block, leaf.hash);
        }
        if self.bytes == self.block_end {
            blocks.push(core::mem::take(&mut self.block));
            self.block_end = match u32::try_from(self.bytes) {
                Ok(start) if start < HASHED_BYTES_MAX => self.bytes + u64::from(width_at(start)),
                _ => 0,
            };
        }
        self.next_leaf_bytes()
    }

    /// No leaf reaches over the end of its block.
    fn next_leaf_bytes(&self) -> usize {
        match usize::try_from(self.block_end.saturating_sub(self.bytes)) {
            Ok(room @ 1..LEAF_BYTES_MAX) => room,
            _ => LEAF_BYTES_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::BLOCKS_MAX;

    fn chain(sections: &[(Section, &[u8])]) -> Chain {
        let mut arriving = Sections::new();
        for (section, bytes) in sections {
            assert!(arriving.begin(*section));
            arriving.push(bytes);
        }
        arriving.fold(7)
    }

    #[test]
    fn the_order_of_arrival_leaves_no_trace() {
        let (tools, messages) = ([b't'; 3000], [b'm'; 9000]);
        let forth = chain(&[(Section::Tools, &tools), (Section::Content, &messages)]);
        let back = chain(&[(Section::Content, &messages), (Section::Tools, &tools)]);
        assert_eq!(forth, back);
        assert_eq!(forth.total_bytes, 12_000);
    }

    #[test]
    fn the_same_bytes_in_another_section_share_nothing() {
        let text = [b'x'; 3000];
        let tools = chain(&[(Section::Tools, &text)]);
        let system = chain(&[(Section::System, &text)]);
        assert!(
            tools
                .blocks
                .iter()
                .all(|block| !system.blocks.contains(block))
        );
    }

    #[test]
    fn a_second_section_of_one_kind_is_not_taken() {
        let mut sections = Sections::new();
        assert!(sections.begin(Section::Content));
        assert!(sections.begin(Section::Content), "the first was empty");
        sections.push(b"x");
        assert!(!sections.begin(Section::Content));
    }

    #[test]
    fn blocks_behind_a_long_section_are_as_long_as_the_grid_has_it() {
        let (tools, messages) = (alloc::vec![b't'; 100_000], alloc::vec![b'm'; 100_000]);
        let chain = chain(&[(Section::Tools, &tools), (Section::Content, &messages)]);
        for pair in chain.blocks.windows(2) {
            let gap = pair[1].end_bytes - pair[0].end_bytes;
            let width = width_at(pair[0].end_bytes);
            assert!(
                gap >= width && gap < 2 * width,
                "{gap} after {}",
                pair[0].end_bytes
            );
        }
    }

    #[test]
    fn what_lies_past_the_last_block_counts_in_the_length() {
        let long = alloc::vec![0; HASHED_BYTES_MAX as usize + 3_000_000];
        let chain = chain(&[(Section::Tools, &long), (Section::Content, &long)]);
        assert_eq!(chain.total_bytes as usize, 2 * long.len());
        assert!(chain.blocks.len() <= BLOCKS_MAX);
        assert!(chain.blocks.last().unwrap().end_bytes <= HASHED_BYTES_MAX);
    }
}
