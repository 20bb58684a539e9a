//! The server: vLLM's HTTP interface around the model.
//!
//! - [`replica`]: an engine, its clock and its callers
//! - [`dialect`]: the APIs, one file each; [`generate`]: their common handler
//! - [`metrics`], [`orca`], [`debug`]: the engine's load and counters
//! - [`fault`], [`fault_routes`]: injected faults
//! - [`received_ids`], [`client_request_id`]: how often a request of a client arrived
//! - [`stored`], [`stored_routes`]: stored responses
//! - [`spans`]: spans of requests that their callers trace
//! - [`serve`]: the listening socket, and the timer that advances the engine

pub mod adapter_series;
mod api_error;
pub mod client_request_id;
pub mod count_tokens;
pub mod debug;
pub mod dialect;
pub mod embeddings;
pub mod fault;
pub mod fault_routes;
pub mod generate;
pub mod history;
pub mod metrics;
pub mod models;
pub mod orca;
pub mod received_ids;
pub mod replica;
pub mod request_id;
pub mod routes;
pub mod serve;
pub mod spans;
pub mod stored;
pub mod stored_routes;
pub mod wall_clock;
