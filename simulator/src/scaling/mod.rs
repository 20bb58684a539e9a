//! Scaling in closed loop: models that share the GPUs of regions, strategies that say how many instances each has, weeks of traffic.
//!
//! Two fidelities. Requests through the shipped routing core and the engine model, as everywhere in this crate, for hours; and an
//! aggregated model of the instances in steps of 15 s for days and weeks, whose tables the first one measures
//! ([`calibrate`]). `docs/simulator.md` says which experiment uses which, and how far they differ.
//!
//! A week has tens of millions of requests, so one strategy would take hours one by one. At a small fraction of the rate the minimum
//! of instances decides; a queueing formula has no form for the policy's order and for chunked prefill. The capacity is measured with
//! `least_outstanding`, in generated tokens: the default policy prefers short prompts, and an overloaded fleet ends short answers first.
//!
//! - [`traffic`], [`trace`]: rates over time, from recorded weeks or their twins
//! - [`calibrate`], [`profile`]: an instance under load, measured and looked up
//! - [`pool`], [`batch`]: the instances of a deployment in a region; the manager of non-interactive requests
//! - [`instances`], [`ledger`]: GPUs that models share, start-up times, spot, and what they cost
//! - [`scaler`]: strategies; [`cluster`]: the closed loop; [`requests`]: the same with requests
//! - [`forecast`]: forecasts of experiments; [`latencies`]: times of many requests

pub mod batch;
pub mod calibrate;
pub mod cluster;
pub mod forecast;
pub mod instances;
pub mod latencies;
pub mod ledger;
pub mod pool;
pub mod profile;
pub mod requests;
pub mod scaler;
pub mod trace;
pub mod traffic;
