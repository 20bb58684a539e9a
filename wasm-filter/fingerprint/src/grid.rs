//! Where blocks end.
//!
//! A block is as wide as its place is deep: 256 bytes at the start, then about a twenty-eighth of its offset, always a whole
//! number of [`BLOCK_BYTES`]. So the precision of a match is 256 bytes or 3.6 percent, whichever is more, and a prompt of
//! 1 MB has about 160 blocks, which fit into a header of 2 KB. Blocks of one width were rejected: at 256 bytes a header of
//! 1 MB of prompt would have 32 KB; at a width that fits, short prompts would have no block at all. Powers of two were
//! rejected too: their precision is 50 percent.
//!
//! The width depends on the offset alone, so equal prefixes have equal blocks.

/// What every block's width is a multiple of, in bytes.
pub(crate) const BLOCK_BYTES: u32 = 256;
/// A block is one [`BLOCK_BYTES`] wider for each so many [`BLOCK_BYTES`] of depth.
const RELATIVE: u32 = 28;
/// Bytes past this count in the length, and get no block.
pub(crate) const HASHED_BYTES_MAX: u32 = 64 << 20;
/// No chain has more blocks: the grid has 299 up to [`HASHED_BYTES_MAX`].
pub(crate) const BLOCKS_MAX: usize = 320;

/// The width of the block that begins at `offset_bytes`.
pub(crate) const fn width_at(offset_bytes: u32) -> u32 {
    let steps = offset_bytes / (BLOCK_BYTES * RELATIVE);
    BLOCK_BYTES * (1 + steps)
}

/// Where the blocks of a prompt of so many bytes end that comes as one section, shallowest first, in bytes: for those who
/// make fingerprints without text.
pub fn grid_block_ends(total_bytes: u32) -> impl Iterator<Item = u32> {
    let limit = if total_bytes < HASHED_BYTES_MAX {
        total_bytes
    } else {
        HASHED_BYTES_MAX
    };
    core::iter::successors(Some(width_at(0)), |end| Some(end + width_at(*end)))
        .take_while(move |end| *end <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_up_to(limit: u32) -> usize {
        grid_block_ends(limit).count()
    }

    #[test]
    fn precision_is_a_block_or_a_few_percent() {
        for offset in (0..HASHED_BYTES_MAX).step_by(4096) {
            assert!(width_at(offset) <= BLOCK_BYTES + offset / RELATIVE);
        }
    }

    #[test]
    fn the_number_of_blocks_is_bounded() {
        assert!(blocks_up_to(1 << 20) < 170, "{}", blocks_up_to(1 << 20));
        assert!(
            blocks_up_to(HASHED_BYTES_MAX) <= BLOCKS_MAX,
            "{}",
            blocks_up_to(HASHED_BYTES_MAX)
        );
    }
}
