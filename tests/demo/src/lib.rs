//! Workloads, the load generator, and the report of the demo.
//!
//! A [`workload`] is drawn in full before the first request, so that every policy meets the same one. [`drive`] plays
//! it through [`client`]s that stream and measure. [`report`] says what came out, for people and for programs.
//! [`compare`] does this for one policy after the other, each on a fresh stack.
//! [`regions`] compares three ways to serve clients of several regions, in the same manner.
//! [`validate`] plays one workload through the real system and through the simulator.

pub mod client;
pub mod compare;
pub mod drive;
pub mod load_imbalance;
mod progress;
pub mod regions;
pub mod report;
pub mod scenario;
pub mod sse;
pub mod stats;
pub mod up;
pub mod validate;
pub mod workload;
