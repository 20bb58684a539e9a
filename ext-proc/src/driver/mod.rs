//! Drives the routing core: feeds it events with the time they happened at, and carries out its effects.
//!
//! The core (`isotherm-router`) is free of clocks and sockets; everything that it needs from the world comes
//! through here. One [`Pool`] drives one `Router`; the [`Fleet`] is all of them.

mod clock;
mod roster;

pub use clock::Clock;
pub use roster::{Member, MembershipError, REPLICAS_MAX};
