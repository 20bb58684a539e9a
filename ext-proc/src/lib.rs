//! The Isotherm service: a gRPC service beside Envoy that decides where each LLM request goes.
//!
//! `isotherm-router` makes the decisions within a region, and `isotherm-regions` those across regions. Both are free of
//! clocks and sockets; this crate is the shell around them.
//!
//! | modules | purpose |
//! | --- | --- |
//! | [`server`] | builds the service, runs it, and stops it |
//! | `frontends`, [`eds`] | the gRPC services for Envoy: requests, endpoints |
//! | [`pool`], [`probe`], [`recorder`] | a router with its replicas; their load; recorded traffic |
//! | `kubernetes` | pools and siblings as an API server shows them |
//! | [`regions`], [`peering`] | this region among the others, and the links between them |
//! | [`admin`], [`cli`], [`metrics`], [`mod@log`] | the interfaces for operators |
//! | [`config`], `file_watcher` | the configuration and its reloads |
//! | `decision_log`, `spans` | decisions for the live page, spans for a collector |
//! | [`clock`], `sans_io`, `tasks`, `tier`, `http_client`, `streaming_server`, [`shutdown`], `descriptors`, `addresses` | time, the driver of sans-I/O cores, tasks, names of tiers, HTTP, gRPC, signals, open files, addresses in the log |

mod accept;
mod addresses;
pub mod admin;
mod backoff;
pub mod cli;
pub mod clock;
pub mod config;
mod decision_log;
mod descriptors;
pub mod eds;
mod file_watcher;
mod frontends;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod generated;
mod http_client;
mod kubernetes;
mod lease_store;
pub mod log;
pub mod metrics;
pub mod peering;
pub mod pool;
pub mod probe;
pub mod recorder;
pub mod regions;
mod reloaded_value;
mod sans_io;
pub mod scaling;
pub mod server;
pub mod shutdown;
mod spans;
mod streaming_server;
mod tasks;
mod tier;
