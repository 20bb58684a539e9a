//! Workloads, the load generator, and the report of the demo.
//!
//! A [`workload`] is drawn in full before the first request, so that every policy meets the same one. [`drive`] plays
//! it through [`client`]s that stream and measure. [`report`] says what came out, for people and for programs.
//! [`compare`] does this for one policy after the other, each on a fresh stack.

pub mod client;
pub mod compare;
pub mod drive;
mod progress;
pub mod report;
pub mod scenario;
pub mod spread;
pub mod sse;
pub mod stats;
pub mod text;
pub mod up;
pub mod workload;
