//! Factors by which an experiment multiplies constants, in the whole process.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The change of a constant.
#[derive(Debug)]
pub(crate) struct Change {
    name: &'static str,
    /// Bits of the factor.
    factor: AtomicU64,
    is_listed: AtomicBool,
}

/// The constants that were read.
static READ: Mutex<Vec<&'static Change>> = Mutex::new(Vec::new());

impl Change {
    pub(super) const fn new(name: &'static str) -> Self {
        Self {
            name,
            factor: AtomicU64::new(1.0_f64.to_bits()),
            is_listed: AtomicBool::new(false),
        }
    }

    pub(super) fn factor(&'static self) -> f64 {
        if !self.is_listed.load(Relaxed) && !self.is_listed.swap(true, Relaxed) {
            lock().push(self);
        }
        f64::from_bits(self.factor.load(Relaxed))
    }
}

fn lock() -> MutexGuard<'static, Vec<&'static Change>> {
    READ.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of the constants that were read so far, in order.
#[must_use]
pub fn constants_read() -> Vec<&'static str> {
    let mut names: Vec<&str> = lock().iter().map(|change| change.name).collect();
    names.sort_unstable();
    names
}

/// Multiplies a constant that was read; 1 restores it. Returns whether a constant that was read has this name.
pub fn scale_constant(name: &str, factor: f64) -> bool {
    let read = lock();
    let named = read.iter().find(|change| change.name == name);
    if let Some(change) = named {
        change.factor.store(factor.to_bits(), Relaxed);
    }
    named.is_some()
}

/// A number that can be multiplied.
pub(crate) trait Scale: Copy {
    fn scaled(self, factor: f64) -> Self;
}

impl Scale for f64 {
    fn scaled(self, factor: f64) -> Self {
        self * factor
    }
}

impl Scale for Duration {
    fn scaled(self, factor: f64) -> Self {
        Self::try_from_secs_f64(self.as_secs_f64() * factor).unwrap_or(Self::MAX)
    }
}

impl Scale for u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates"
    )]
    fn scaled(self, factor: f64) -> Self {
        (f64::from(self) * factor).round() as Self
    }
}

impl Scale for usize {
    fn scaled(self, factor: f64) -> Self {
        let number = u32::try_from(self).unwrap_or(u32::MAX);
        Self::try_from(number.scaled(factor)).unwrap_or(Self::MAX)
    }
}
