//! The program `isotherm`: its commands, configuration, admin interface, probes, sources of replicas and recordings.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod admin;
mod alerts;
mod batch;
mod cli;
mod commands;
mod config;
mod deploy;
mod gateways;
mod monitoring;
mod probe;
mod process;
mod promql;
mod recording;
mod region_config;
mod reload_log;
mod run;
mod shipped_files;
mod source;
mod systemd;

#[path = "../fake/mod.rs"]
mod fake;

#[path = "../peering/authority.rs"]
#[allow(dead_code, reason = "the tests of peering use all of it")]
mod authority;
