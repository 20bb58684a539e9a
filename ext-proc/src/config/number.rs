//! Whole numbers with a unit and a range, both part of their type.

use std::marker::PhantomData;
use std::time::Duration;

use super::errors::Errors;
use super::tree::{Data, Node};
use super::value::{Value, refuse};

/// A unit of whole numbers.
pub(super) trait Unit {
    const NAME: &'static str;
}

/// Counts things.
#[derive(Clone, Copy, Debug)]
pub(super) struct Things;
/// Counts milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Milliseconds;
/// Counts bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Octets;

impl Unit for Things {
    const NAME: &'static str = "number";
}
impl Unit for Milliseconds {
    const NAME: &'static str = "milliseconds";
}
impl Unit for Octets {
    const NAME: &'static str = "bytes";
}

/// A whole number between two bounds, both included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded<U, const MIN: u64, const MAX: u64>(u64, PhantomData<U>);

pub(super) type Count<const MIN: u64, const MAX: u64> = Bounded<Things, MIN, MAX>;
pub(super) type Millis<const MIN: u64, const MAX: u64> = Bounded<Milliseconds, MIN, MAX>;
pub(super) type Bytes<const MIN: u64, const MAX: u64> = Bounded<Octets, MIN, MAX>;

impl<U: Unit, const MIN: u64, const MAX: u64> Bounded<U, MIN, MAX> {
    /// `value`, moved into the bounds.
    pub(super) fn clamped(value: u64) -> Self {
        Self(value.clamp(MIN, MAX), PhantomData)
    }

    pub(super) fn get(self) -> u64 {
        self.0
    }

    /// As a size in memory; bounds keep it far below what the type holds.
    pub(super) fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl<const MIN: u64, const MAX: u64> Millis<MIN, MAX> {
    pub(super) fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl<U: Unit, const MIN: u64, const MAX: u64> Value for Bounded<U, MIN, MAX> {
    fn read(node: &Node, option: &str, errors: &mut Errors) -> Option<Self> {
        match node.data {
            Data::Number(value) if (MIN..=MAX).contains(&value) => Some(Self(value, PhantomData)),
            _ => refuse(node, option, errors),
        }
    }

    fn accepts() -> String {
        format!("{}, {MIN} to {MAX}", U::NAME)
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}
