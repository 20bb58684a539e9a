//! The server: vLLM's HTTP interface around the model.
//!
//! - [`replica`]: one engine, its clock and who waits for what; [`driver`]: the timer that lets time pass
//! - [`dialect`]: the APIs, one file each; [`generate`]: what they have in common
//! - [`metrics`], [`orca`], [`debug`]: what the engine says about itself
//! - [`fault`]: making it misbehave
//! - [`serve`]: the listening socket

pub mod api_error;
pub mod debug;
pub mod dialect;
pub mod driver;
pub mod embeddings;
pub mod fault;
pub mod generate;
pub mod metrics;
pub mod models;
pub mod orca;
pub mod replica;
pub mod routes;
pub mod serve;
