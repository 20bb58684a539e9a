//! Which objects and arrays are open.

use super::Kind;

/// Open objects and arrays at the same time. Deep enough for any tool schema, and one machine word pair.
pub(crate) const DEPTH_MAX: u32 = 128;

/// The open objects and arrays, one bit each: set for an object.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    kinds: u128,
    depth: u32,
}

impl Nesting {
    /// One more; `false` when there are [`DEPTH_MAX`] already.
    pub(super) fn push(&mut self, kind: Kind) -> bool {
        if self.depth == DEPTH_MAX {
            return false;
        }
        self.kinds = (self.kinds << 1) | u128::from(kind == Kind::Object);
        self.depth += 1;
        true
    }

    /// The innermost one.
    pub(super) fn innermost(&self) -> Option<Kind> {
        if self.depth == 0 {
            None
        } else if self.kinds & 1 == 1 {
            Some(Kind::Object)
        } else {
            Some(Kind::Array)
        }
    }

    /// The innermost one ends.
    pub(super) fn pop(&mut self) {
        self.kinds >>= 1;
        self.depth = self.depth.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_each_level_and_refuses_one_too_many() {
        let mut nesting = Nesting::default();
        assert_eq!(nesting.innermost(), None);
        let kinds = |level: u32| {
            if level.is_multiple_of(3) {
                Kind::Object
            } else {
                Kind::Array
            }
        };
        for level in 0..DEPTH_MAX {
            assert!(nesting.push(kinds(level)));
        }
        assert!(!nesting.push(Kind::Array));
        for level in (0..DEPTH_MAX).rev() {
            assert_eq!(nesting.innermost(), Some(kinds(level)));
            nesting.pop();
        }
        assert_eq!(nesting.innermost(), None);
    }
}
