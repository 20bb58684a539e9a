//! The stack of open objects and arrays, one bit each.

use super::Container;

/// The most objects and arrays that may be open at the same time: enough for any tool schema, and the bits of a `u128`.
pub(crate) const DEPTH_MAX: u32 = 128;

/// The open objects and arrays, innermost in the lowest bit; a set bit is an object.
#[derive(Debug, Default)]
pub(super) struct ContainerStack {
    objects: u128,
    depth: u32,
}

impl ContainerStack {
    /// Opens a container. Returns `false` when [`DEPTH_MAX`] are open already.
    pub(super) fn push(&mut self, kind: Container) -> bool {
        if self.depth == DEPTH_MAX {
            return false;
        }
        self.objects = (self.objects << 1) | u128::from(kind == Container::Object);
        self.depth += 1;
        true
    }

    pub(super) fn innermost(&self) -> Option<Container> {
        match (self.depth, self.objects & 1) {
            (0, _) => None,
            (_, 1) => Some(Container::Object),
            _ => Some(Container::Array),
        }
    }

    /// Closes the innermost container.
    pub(super) fn pop(&mut self) {
        self.objects >>= 1;
        self.depth = self.depth.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_keeps_each_level_and_refuses_one_past_the_limit() {
        let mut nesting = ContainerStack::default();
        assert_eq!(nesting.innermost(), None);
        let kinds = |level: u32| {
            if level.is_multiple_of(3) {
                Container::Object
            } else {
                Container::Array
            }
        };
        for level in 0..DEPTH_MAX {
            assert!(nesting.push(kinds(level)));
        }
        assert!(!nesting.push(Container::Array));
        for level in (0..DEPTH_MAX).rev() {
            assert_eq!(nesting.innermost(), Some(kinds(level)));
            nesting.pop();
        }
        assert_eq!(nesting.innermost(), None);
    }
}
