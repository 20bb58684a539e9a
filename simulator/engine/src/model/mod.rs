//! The engine's behaviour as a pure model: no clock, no sockets, no randomness.
//!
//! It follows vLLM v1: continuous batching under a token budget per step, chunked prefill, a pool of KV blocks with prefix
//! caching, preemption by recomputation. The HTTP server drives it with a scaled clock, a simulator with virtual time; both
//! see the same engine.
//!
//! - [`engine`]: requests in, time, events out
//! - `scheduler`: the tokens that the next step computes
//! - `step`: the step in progress; `advance`: its effects, and jumping over decode steps in which nothing changes
//! - [`blocks`]: the KV cache; `adapters`: slots for adapters
//! - [`forecast`]: the time of a request's first token
//! - [`timing`]: the duration of a step; [`presets`]: measured engines

mod adapters;
mod advance;
pub mod blocks;
pub mod config;
pub mod engine;
pub mod forecast;
pub mod presets;
pub mod request;
mod scheduler;
mod sequence;
pub mod stats;
mod step;
pub mod timing;

pub use blocks::BlockHash;
pub use config::{AdapterConfig, Config};
pub use engine::Engine;
pub use forecast::{Arrival, Forecast};
pub use presets::Preset;
pub use request::{AdapterId, Event, EventKind, Rejection, Request, RequestId, Usage};
pub use stats::{AdapterUse, Durations, Stats, Totals};
pub use timing::{StepCost, Work};
