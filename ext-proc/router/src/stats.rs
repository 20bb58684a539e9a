//! Figures of a router. Counters start at zero with the router and only grow.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::{Reason, RejectReason};

/// Figures of a router at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Waiting requests.
    pub queue_length: usize,
    /// Wait of the oldest waiting request.
    pub oldest_wait: Duration,
    /// Requests dispatched to replicas and not finished.
    pub in_flight: usize,
    /// Requests forwarded to peer regions and not finished.
    pub forwarded_in_flight: usize,
    /// Available replicas to which requests are dispatched.
    pub available_replicas: usize,
    /// Available prefill replicas.
    pub available_prefillers: usize,
    /// Size of the prefix index.
    pub index: IndexStats,
    /// Size of the index over peers.
    pub peer_index: IndexStats,
    /// Counters since the router's start.
    pub counters: Counters,
}

/// Size of a prefix index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Distinct prefixes.
    pub nodes: usize,
    /// (prefix, replica) pairs: at least one for each node.
    pub entries: usize,
    /// Accounted memory in bytes.
    pub bytes: usize,
    /// Pairs evicted since the start.
    pub evicted: u64,
}

/// Counters since the router's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests dispatched, by reason.
    pub decisions: BTreeMap<Reason, u64>,
    /// Dispatched requests whose prompt a prefill replica computes.
    pub prefills: u64,
    /// Requests rejected, by reason.
    pub rejects: BTreeMap<RejectReason, u64>,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that waited before they were dispatched, rejected or aborted.
    pub queued: u64,
    /// Requests aborted while they waited.
    pub aborted_waiting: u64,
    /// Requests aborted after the dispatch.
    pub aborted_in_flight: u64,
    /// Successful responses.
    pub finished_ok: u64,
    /// Failed responses, of all kinds.
    pub finished_failed: u64,
    /// Failed responses that the engine refused to give.
    pub refused: u64,
    /// Failed responses of replicas that broke.
    pub broke: u64,
    /// Failed responses that the gateway gave without a replica.
    pub unsent: u64,
    /// Responses of another replica than the selected one, after a retry.
    pub retried_elsewhere: u64,
    /// Requests that the gateway sent elsewhere than to the selected replica, at the first attempt.
    pub overridden: u64,
    /// Requests that a timeout of the gateway ended.
    pub timed_out: u64,
    /// Prompts that came into quarantine because two replicas broke on them.
    pub quarantines: u64,
    /// Predicted cached tokens of the requests whose engine reported its cached tokens.
    pub predicted_cached_tokens: u64,
    /// Measured cached tokens of these requests.
    pub measured_cached_tokens: u64,
    /// Absolute difference of both, summed over these requests.
    pub prediction_error_tokens: u64,
    /// Prompt tokens of these requests.
    pub measured_prompt_tokens: u64,
    /// False hits, which corrected the index.
    pub false_hits: u64,
    /// Responses whose usage cannot be of the known prompt, which taught nothing.
    pub implausible_usage: u64,
    /// Requests forwarded to peers.
    pub forwarded: u64,
    /// Forwarded requests that returned.
    pub returned: u64,
    /// Prompt tokens of the forwarded requests whose engine reported its cached tokens.
    pub forwarded_prompt_tokens: u64,
    /// Measured cached tokens of these requests.
    pub forwarded_cached_tokens: u64,
    /// Requests forwarded from other regions.
    pub forwarded_in: u64,
    /// Requests forwarded from other regions and rejected, because the queue was too long.
    pub forwarded_in_rejected: u64,
    /// Placements sent to siblings.
    pub placements_sent: u64,
    /// Placements received from siblings.
    pub placements_received: u64,
    /// Received placements that continue an unknown prefix.
    pub placements_unattached: u64,
    /// Placements dropped because the driver did not fetch them in time.
    pub placements_dropped: u64,
    /// Dispatched requests for an adapter.
    pub adapter_requests: u64,
    /// Dispatched requests for an adapter that their replica had to load first.
    pub adapter_loads: u64,
    /// Restarts of engines, as their counters showed.
    pub engine_restarts: u64,
    /// Replicas found to hang.
    pub hung_replicas: u64,
    /// Requests abandoned at hung replicas.
    pub abandoned: u64,
    /// Replicas rejected because there are too many.
    pub replicas_refused: u64,
}
