//! Drives the routing core: feeds it events with the time they happened at, and carries out its effects.
//!
//! The core (`isotherm-router`) is free of clocks and sockets; everything that it needs from the world comes
//! through here. One [`Pool`] drives one `Router`; the [`Fleet`] is all of them. A request that was handed in is a
//! [`Ticket`], whose drop gives its place back.

mod ask;
mod clock;
mod core;
mod directory;
mod endpoint;
mod fleet;
mod pool;
#[cfg(test)]
mod region_tests;
mod roster;
mod shared;
#[cfg(test)]
mod tests;
mod ticket;
mod timer;

pub use ask::{Ask, session_key};
pub use clock::Clock;
pub use core::{Forward, Route, Verdict};
pub use directory::{Directory, PEERS_MAX, Peer};
pub use endpoint::Endpoint;
pub use fleet::{ANY_MODEL, Fleet, Table};
pub use pool::Pool;
pub use roster::{Member, MembershipError, REPLICAS_MAX};
pub use shared::{SharedPlacement, SharedTarget};
pub use ticket::{Progress, Ticket};
