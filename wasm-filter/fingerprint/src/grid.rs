//! The grid of block ends.
//!
//! The width of a block grows with its offset: 256 bytes at the start, then about a twenty-eighth of the offset, always a
//! multiple of [`BLOCK_BYTES`]. So a match is precise to 256 bytes or 3.6 percent, whichever is more, and a prompt of 1 MB
//! has about 160 blocks, which fit into a header of 2 KB. The width depends on the offset alone, so equal prefixes have
//! equal blocks.

/// The unit of block widths, in bytes.
pub(crate) const BLOCK_BYTES: u32 = 256;
/// A block is one [`BLOCK_BYTES`] wider for each this many [`BLOCK_BYTES`] of offset.
const GROWTH_BLOCKS: u32 = 28;
/// The end of the grid: bytes past it count in the length only.
pub(crate) const HASHED_BYTES_MAX: u32 = 64 << 20;
/// The most blocks of a chain. The grid has 299 up to [`HASHED_BYTES_MAX`].
pub(crate) const BLOCKS_MAX: usize = 320;

pub(crate) const fn block_bytes_at(offset_bytes: u32) -> u32 {
    BLOCK_BYTES * (1 + offset_bytes / (BLOCK_BYTES * GROWTH_BLOCKS))
}

/// The block ends of a prompt of this length in a single section, shallowest first, in bytes. The simulator makes
/// fingerprints without text from them.
pub fn grid_block_ends(total_bytes: u32) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(block_bytes_at(0)), |end| {
        Some(end + block_bytes_at(*end))
    })
    .take_while(move |end| *end <= total_bytes.min(HASHED_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_at_most_a_few_percent_of_its_offset() {
        for offset in (0..HASHED_BYTES_MAX).step_by(4096) {
            assert!(block_bytes_at(offset) <= BLOCK_BYTES + offset / GROWTH_BLOCKS);
        }
    }

    #[test]
    fn the_number_of_blocks_is_bounded() {
        assert!(grid_block_ends(1 << 20).count() < 170);
        assert!(grid_block_ends(HASHED_BYTES_MAX).count() <= BLOCKS_MAX);
    }
}
