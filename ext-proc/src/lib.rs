//! The Isotherm external processor for Envoy.
//!
//! A gRPC service beside Envoy that decides where each LLM request goes. The decisions are made by
//! `isotherm-router`, which is free of clocks and sockets; this crate is the shell around it.

pub mod admin;
pub mod cli;
pub mod clock;
pub mod config;
pub mod eds;
mod file_watcher;
mod frontends;
#[cfg(test)]
mod generated;
pub mod log;
pub mod metrics;
pub mod peering;
pub mod pool;
pub mod probe;
pub mod recorder;
pub mod regions;
mod sans_io;
pub mod server;
pub mod shutdown;
mod tasks;
