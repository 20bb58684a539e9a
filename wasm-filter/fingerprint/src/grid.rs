//! Where block edges lie.
//!
//! A block is as wide as its place is deep: 256 bytes at the start, then about a twenty-eighth of its offset, always a whole
//! number of [`BLOCK_BYTES`]. So the precision of a match is 256 bytes or 3.6 percent, whichever is more, and a prompt of
//! 1 MB has about 160 edges, which fit into a header of 2 KB. Blocks of one width were rejected: at 256 bytes a header of
//! 1 MB of prompt would have 32 KB; at a width that fits, short prompts would have no edge at all. Powers of two were
//! rejected too: their precision is 50 percent.
//!
//! The width depends on the offset alone, so equal prefixes have equal edges.

/// What every block's width is a multiple of, in bytes.
pub(crate) const BLOCK_BYTES: u32 = 256;
/// A block is one [`BLOCK_BYTES`] wider for each so many [`BLOCK_BYTES`] of depth.
const RELATIVE: u32 = 28;
/// Bytes past this count in the length, and get no edge.
pub(crate) const EDGES_BYTES_MAX: u32 = 64 << 20;
/// No chain has more edges: the grid has 299 up to [`EDGES_BYTES_MAX`].
pub(crate) const EDGES_MAX: usize = 320;

/// The width of the block that begins at `offset_bytes`.
pub(crate) const fn width_at(offset_bytes: u32) -> u32 {
    let steps = offset_bytes / (BLOCK_BYTES * RELATIVE);
    BLOCK_BYTES * (1 + steps)
}

/// Where the edges of a prompt of so many bytes lie that comes as one section, shallowest first, in bytes: for those who
/// make fingerprints without text.
pub fn grid_edges(total_bytes: u32) -> impl Iterator<Item = u32> {
    let limit = if total_bytes < EDGES_BYTES_MAX {
        total_bytes
    } else {
        EDGES_BYTES_MAX
    };
    core::iter::successors(Some(width_at(0)), |end| Some(end + width_at(*end)))
        .take_while(move |end| *end <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges_up_to(limit: u32) -> usize {
        grid_edges(limit).count()
    }

    #[test]
    fn precision_is_a_block_or_a_few_percent() {
        for offset in (0..EDGES_BYTES_MAX).step_by(4096) {
            assert!(width_at(offset) <= BLOCK_BYTES + offset / RELATIVE);
        }
    }

    #[test]
    fn the_number_of_edges_is_bounded() {
        assert!(edges_up_to(1 << 20) < 170, "{}", edges_up_to(1 << 20));
        assert!(
            edges_up_to(EDGES_BYTES_MAX) <= EDGES_MAX,
            "{}",
            edges_up_to(EDGES_BYTES_MAX)
        );
    }
}
