//! A single region on a real Envoy: behaviour towards clients, operators and faults.
#![expect(
    clippy::indexing_slicing,
    reason = "an index out of range fails the test"
)]

mod adapters;
mod bodies;
mod buffer_limits;
mod circuit_breaker;
mod conversation;
mod decision_stream;
mod documents;
mod failover;
mod gate;
mod gateways;
mod headers;
mod memory;
mod openai;
mod pushing;
mod queue;
mod recording;
mod reload;
mod replicas;
mod roles;
mod telemetry;
mod withheld_bodies;
