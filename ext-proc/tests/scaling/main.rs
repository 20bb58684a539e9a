//! Numbers of replicas, end to end: KEDA's calls against two siblings, webhooks, drains, and a restart.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what a test relies on and does not get is its failure"
)]

#[path = "../fake/mod.rs"]
mod fake;
mod keda;
mod scaled;
mod webhook;
