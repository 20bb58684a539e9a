//! Workloads, the load generator, and the report of the demo.
//!
//! A [`workload`] is drawn in full before the first request, so that every policy meets the same one. [`drive`] plays
//! it through [`client`]s that stream and measure. [`report`] says what came out, for people and for programs.
//! [`compare`] does this for one policy after the other, each on a fresh stack.
//! [`regions`] compares three ways to serve clients of several regions, in the same manner.
//! [`validate`] plays one workload through the real system and through the simulator.
//! [`path`] is another thing: what a request costs on its way, against an upstream that answers at once. [`profile`] shows
//! where in the programs that cost arises.

pub mod client;
pub mod compare;
pub mod drive;
pub mod path;
pub mod profile;
pub mod program;
mod progress;
pub mod regions;
pub mod report;
pub mod scenario;
pub mod spread;
pub mod sse;
pub mod stats;
pub mod text;
pub mod up;
pub mod validate;
pub mod workload;
