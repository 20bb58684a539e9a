//! Time as the core sees it.

use core::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since an origin that the driver chooses.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(u64);

impl Time {
    /// The driver's origin.
    pub const ZERO: Self = Self(0);

    /// From nanoseconds since the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Duration since `earlier`; zero if this time is not later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time that is `by` earlier; at least the origin.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(by))
    }

    /// Time that is `by` later; saturates.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}
