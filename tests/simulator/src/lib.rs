//! The simulator: the routing core exactly as shipped, the engine model of `examples/engine`, and clients, in virtual time.
//!
//! - [`workload`]: what the clients ask, and when
//! - [`prompt`]: prompts without text, as the router's fingerprint and as the engine's blocks

pub mod prompt;
pub mod workload;
