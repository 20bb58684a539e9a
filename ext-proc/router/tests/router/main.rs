//! Tests of the core: scenarios by name, and random schedules beside naive models.
//!
//! All stand in this program, which compiles the simulated engine and the models of [`support`] once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "tests stop at what they did not expect, and count in small numbers"
)]

mod aborted;
mod adapters;
mod believing;
mod between_probes;
mod burst;
mod failing;
mod falsified;
mod forwarding;
mod hanging;
mod hidden_demand;
mod isotherm;
mod large_pool;
mod learning;
mod model;
mod past_slo;
mod pool_sizes;
mod quarantine;
mod refused;
mod refusing;
mod restarting;
mod returning;
mod role_ops;
mod roles;
mod sharing;
mod siblings;
mod stampede;
mod standing_pages;
mod stored;
mod support;
mod tenants;
mod tiers;
mod timeouts;
mod waiting;
mod warmth;
mod without_metrics;
mod worth;
