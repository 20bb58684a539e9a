//! Tables of a simulation: an event names an entry by its number, and entries stay.
#![expect(
    clippy::indexing_slicing,
    reason = "the simulation looks up only numbers that it gave to entries"
)]

use core::ops::{Index, IndexMut};

/// Entries by number, in the order of their insertion.
#[derive(Debug)]
pub(super) struct Table<T>(Vec<T>);

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends an entry; returns its number.
    pub(super) fn push(&mut self, entry: T) -> u32 {
        self.0.push(entry);
        u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX)
    }

    pub(super) fn numbers(&self) -> core::ops::Range<u32> {
        0..u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn iter(&self) -> core::slice::Iter<'_, T> {
        self.0.iter()
    }

    pub(super) fn into_inner(self) -> Vec<T> {
        self.0
    }
}

impl<T> Index<u32> for Table<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.0[number as usize]
    }
}

impl<T> IndexMut<u32> for Table<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.0[number as usize]
    }
}
