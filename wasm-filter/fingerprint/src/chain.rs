//! The chain of prefix hashes that stands for one prompt.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// One block edge: the hash of everything in front of it, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Hash of the whole prefix up to this edge, what selects the cache (model, adapter, salt) included.
    pub hash: u64,
    /// Where the edge lies, in bytes of rendered prompt.
    pub end_bytes: u32,
}

/// A prompt as a chain of prefix hashes, shallowest first.
///
/// Two prompts share a prefix up to (about) the deepest edge whose hash they share; since each hash stands
/// for the whole prefix, equality at one depth implies equality at every shallower one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    edges: Box<[Edge]>,
    total_bytes: u32,
}

impl Fingerprint {
    /// A chain from its edges, which must be in strictly increasing order of `end_bytes`, none past `total_bytes`.
    ///
    /// Returns `None` when they are not.
    #[must_use]
    pub fn new(edges: Vec<Edge>, total_bytes: u32) -> Option<Self> {
        let mut previous = 0;
        for edge in &edges {
            if edge.end_bytes <= previous || edge.end_bytes > total_bytes {
                return None;
            }
            previous = edge.end_bytes;
        }
        Some(Self {
            edges: edges.into_boxed_slice(),
            total_bytes,
        })
    }

    /// The edges, shallowest first.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The length of the whole rendered prompt in bytes, what lies past the last edge included.
    #[must_use]
    pub fn total_bytes(&self) -> u32 {
        self.total_bytes
    }

    /// How many bytes the first `depth` edges cover.
    #[must_use]
    pub fn bytes_at(&self, depth: usize) -> u32 {
        depth
            .checked_sub(1)
            .and_then(|last| self.edges.get(last))
            .map_or(0, |edge| edge.end_bytes)
    }

    /// Which share of the prompt the first `depth` edges cover, from 0 to 1.
    #[must_use]
    pub fn share_at(&self, depth: usize) -> f64 {
        if self.total_bytes == 0 {
            return 0.0;
        }
        f64::from(self.bytes_at(depth)) / f64::from(self.total_bytes)
    }
}
