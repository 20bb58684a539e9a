//! Workloads, the load generator, and the reports of the demo.
//!
//! A [`workload`] is drawn in full before the first request, so that every policy gets the same requests. [`drive`] plays
//! conversations through [`client`]s and writes [`record`]s, from which [`metrics`] and every report are computed.
//!
//! - [`compare`]: one policy after the other, each on a fresh stack
//! - [`mesh`]: gateways that real control planes configure, beside the standalone Envoy
//! - [`peers`]: Isotherm beside other projects' routers
//! - [`regions`]: three arrangements of several regions
//! - [`soak`]: load while processes and networks fail
//! - [`tiers`]: interactive and batch clients at once, and a tenant that bursts
//! - [`validate`]: the real system against the simulator

pub mod client;
pub mod compare;
pub mod drive;
pub mod mesh;
pub mod metrics;
pub mod peers;
mod progress;
pub mod record;
pub mod regions;
pub mod replica_load;
pub mod report;
mod run_curves;
pub mod scenario;
pub mod soak;
pub mod tiers;
pub mod up;
pub mod validate;
pub mod workload;
