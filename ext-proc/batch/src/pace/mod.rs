//! The pace of a worker, and the order of its lines. Pure: time comes in as an argument.

mod promotion;
mod required_rate;
mod send_window;
mod spare_rate;

pub use promotion::{BatchDemand, promoted_lines};
pub use required_rate::required_rate;
pub use send_window::{Feedback, SendWindow};
pub use spare_rate::SpareRate;

/// Milliseconds since the Unix epoch, by the clock of the queue.
pub type UnixMs = i64;

/// Milliseconds since the start of the process, by a clock that never steps.
pub type SteadyMs = i64;

/// One moment by both clocks: pauses are measured by the steady one, deadlines stand in the time of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time for pauses.
    pub steady: SteadyMs,
    /// Time for deadlines.
    pub unix: UnixMs,
}

/// The tier of a request that a batch sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Held at the gateway until a replica is idle enough.
    NonInteractive,
    /// Promoted: the deadline is near, so the gateway treats the request as one that a user waits for.
    Interactive,
}

impl Priority {
    /// The value of `x-tier`.
    #[must_use]
    pub const fn tier(self) -> &'static str {
        match self {
            Self::NonInteractive => "non-interactive",
            Self::Interactive => "interactive-normal",
        }
    }
}
