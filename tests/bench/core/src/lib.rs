//! What the benches of the core do: bodies to read, a router with a full index, and units of work.
//!
//! The same code is timed by Criterion, counted instruction by instruction by callgrind, and run inside a sandbox, so that
//! all three speak of the same work. Nothing here reads a clock or draws what another run would not draw.

pub mod body;
pub mod load;
mod numbers;
pub mod units;

pub use load::{Kind, Load};
pub use numbers::Numbers;
pub use units::{Unit, Work};
