//! Finds members that repeat in an object.
//!
//! Engines read the last of two members with one name, and a reader of a stream knows only the first. A client that writes
//! both shows the router one prompt and the engine another. So a body whose members repeat gets no fingerprint.
//!
//! Members of a request have their place in a table, so a bit each tells whether one repeats. Names in messages, parts and
//! tools are unknown: they leave a hash each until their object ends. One word per object says which names are surely new;
//! only an object with two names on one bit of that word compares its hashes, at its end. Rejected: a comparison with every
//! earlier name, which takes quadratic time on a hostile object.

use alloc::vec::Vec;

/// The most names of open objects that are compared. An object with more counts as one that repeats a name.
const NAMES_MAX: usize = 4096;
/// The names of a usual request that are open at one time, so that most requests allocate once.
const NAMES_EXPECTED: usize = 32;
/// An odd number without structure: the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The names of one open object.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ObjectNames {
    /// One bit for each member of a table, or for each hash of a name.
    seen: u64,
    /// The position of the first hash in [`NameStack::hashes`].
    start: usize,
    /// Whether two hashes share a bit.
    has_shared_bit: bool,
}

/// The names of all open objects.
#[derive(Debug)]
pub(super) struct NameStack {
    hashes: Vec<u64>,
    is_repeated: bool,
}

impl NameStack {
    pub(super) fn new() -> Self {
        Self {
            hashes: Vec::with_capacity(NAMES_EXPECTED),
            is_repeated: false,
        }
    }

    /// Whether an object repeats a name, as far as the objects have ended.
    pub(super) fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Registers that a member repeats.
    pub(super) fn set_repeated(&mut self) {
        self.is_repeated = true;
    }

    /// The names of an object that begins.
    pub(super) fn open(&self) -> ObjectNames {
        ObjectNames {
            start: self.hashes.len(),
            ..ObjectNames::default()
        }
    }

    /// Adds the member at this place of a table.
    pub(super) fn add_place(&mut self, object: &mut ObjectNames, place: u32) {
        let bit = 1u64.checked_shl(place).unwrap_or_default();
        self.is_repeated |= object.seen & bit != 0;
        object.seen |= bit;
    }

    /// Adds a name of any kind.
    #[inline(never)]
    pub(super) fn add(&mut self, object: &mut ObjectNames, name: &[u8]) {
        if self.hashes.len() >= NAMES_MAX {
            self.is_repeated = true;
            return;
        }
        let hash = hash(name);
        let bit = 1 << (hash >> 58);
        object.has_shared_bit |= object.seen & bit != 0;
        object.seen |= bit;
        self.hashes.push(hash);
    }

    /// Ends the innermost object.
    #[inline]
    pub(super) fn close(&mut self, object: &ObjectNames) {
        if object.has_shared_bit {
            self.compare(object.start);
        }
        self.hashes.truncate(object.start);
    }

    /// Compares the names of an object.
    #[cold]
    #[inline(never)]
    fn compare(&mut self, start: usize) {
        let names = self.hashes.get_mut(start..).unwrap_or_default();
        names.sort_unstable();
        let mut pairs = names.iter().zip(names.iter().skip(1));
        self.is_repeated |= pairs.any(|(name, next)| name == next);
    }
}

/// A hash of a name, in one multiplication for each eight bytes. A client can make two names collide, which costs it the
/// fingerprint of its own request.
#[inline]
fn hash(name: &[u8]) -> u64 {
    let (words, rest) = name.as_chunks::<8>();
    let mix = |hash: u64, word: u64| (hash.rotate_left(29) ^ word).wrapping_mul(FACTOR);
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let hash = words.fold(name.len() as u64, mix);
    let rest = rest.iter().rev();
    mix(
        hash,
        rest.fold(0, |word, byte| word << 8 | u64::from(*byte)),
    )
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn repeats(names: &[&str]) -> bool {
        let mut stack = NameStack::new();
        let mut object = stack.open();
        for name in names {
            stack.add(&mut object, name.as_bytes());
        }
        stack.close(&object);
        assert!(stack.hashes.is_empty());
        stack.is_repeated()
    }

    #[test]
    fn a_repeated_name_is_found_among_any_number_of_others() {
        for count in [0, 1, 7, 63, 1000, NAMES_MAX - 2] {
            let names: Vec<_> = (0..count).map(|index| format!("name{index}")).collect();
            let mut names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
            names.push("role");
            assert!(!repeats(&names), "{count}");
            names.insert(0, "role");
            assert!(repeats(&names), "{count}");
        }
    }

    #[test]
    fn names_of_another_object_do_not_count() {
        let mut stack = NameStack::new();
        let mut outer = stack.open();
        stack.add(&mut outer, b"function");
        for _ in 0..2 {
            let mut inner = stack.open();
            stack.add(&mut inner, b"function");
            stack.close(&inner);
        }
        stack.add(&mut outer, b"type");
        stack.close(&outer);
        assert!(!stack.is_repeated());
    }

    #[test]
    fn an_object_with_too_many_names_counts_as_repeating() {
        let names: Vec<_> = (0..=NAMES_MAX).map(|index| format!("{index}")).collect();
        let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
        assert!(repeats(&names));
    }

    #[test]
    fn names_of_zeros_differ_by_their_length() {
        let zeros = [0; 40];
        let mut hashes: Vec<_> = (0..40).map(|length| hash(&zeros[..length])).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 40);
    }
}
