//! A single region on a real Envoy: behaviour towards clients, operators and faults.
#![expect(
    clippy::indexing_slicing,
    reason = "an index out of range fails the test"
)]

mod access_log;
mod adapters;
mod any_chain;
mod batch;
mod batch_databases;
mod bodies;
mod buffer_limits;
mod cached_tokens;
mod circuit_breaker;
mod compose;
mod conversation;
mod crash;
mod crashing_prompts;
mod decision_stream;
mod doctor;
mod documents;
mod doors;
mod envoy_command;
mod failover;
mod falsified;
mod foreign_filters;
mod gate;
mod gateways;
mod headers;
mod hung_replica;
mod init;
mod live_page;
mod memory;
mod memory_pressure;
mod newcomer;
mod openai;
mod other_applications;
mod paths;
mod pushing;
mod queue;
mod recording;
mod reload;
mod replicas;
mod roles;
mod rollout;
mod run;
mod sidecar;
mod slow_bodies;
mod stored_responses;
mod telemetry;
mod tenants;
mod tiers;
mod tracing;
mod trial;
mod withheld_bodies;
