//! Storage in chunks with stable numbers.
//!
//! It grows without copying. A `Vec` of all nodes would copy tens of megabytes within one decision.

/// Values per chunk.
const CHUNK: usize = 4096;

pub(super) const NONE: u32 = u32::MAX;

/// Values by number. Numbers of removed values are reused.
#[derive(Debug, Default)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T: Default> Slab<T> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Number above every number in use.
    pub(super) fn end(&self) -> u32 {
        u32::try_from(self.chunks.len() * CHUNK).unwrap_or(NONE)
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        let at = at as usize;
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        let at = at as usize;
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)
    }

    /// Inserts a value and returns its number; `None` when all numbers are in use.
    #[inline]
    pub(super) fn insert(&mut self, value: T) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            *self.get_mut(at)? = value;
            self.len += 1;
            return Some(at);
        }
        // All numbers so far are in use.
        let at = u32::try_from(self.len).ok().filter(|at| *at != NONE)?;
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks.last_mut()?.push(value);
        self.len += 1;
        Some(at)
    }

    /// Removes a value, and leaves the default until its number is reused.
    #[inline]
    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let value = core::mem::take(self.get_mut(at)?);
        self.free.push(at);
        self.len -= 1;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stable_and_reused() {
        let mut slab = Slab::default();
        for value in 0..10_000_u32 {
            assert_eq!(slab.insert(value), Some(value));
        }
        assert_eq!(slab.remove(5000), Some(5000));
        assert_eq!(slab.len(), 9_999);
        assert_eq!(slab.get(9_999), Some(&9_999));
        assert_eq!(slab.insert(7), Some(5000));
        assert_eq!(slab.get(5000), Some(&7));
    }
}
