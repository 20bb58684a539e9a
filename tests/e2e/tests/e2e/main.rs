//! The system as a client, an operator and an accident see it, on a real Envoy.
#![expect(
    clippy::indexing_slicing,
    reason = "a test that reads what is not there has failed"
)]

mod bodies;
mod conversation;
mod decision_stream;
mod documents;
mod failing;
mod failover;
mod headers;
mod memory;
mod openai;
mod pushing;
mod queue;
mod recording;
mod reload;
mod replicas;
