//! Work that the benches of the core share: bodies to read, a router with a full index, units of work.
//!
//! Criterion times this code, callgrind counts its instructions, and Envoy's V8 runs it, so all three measure the same work.
//! No function reads a clock, and all random numbers are seeded.

pub mod body;
pub mod load;
mod numbers;
mod steps;
pub mod units;
pub mod worst;

pub use load::{Kind, Load};
pub use numbers::Numbers;
pub use units::{Unit, Work};
