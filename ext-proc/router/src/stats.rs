//! What a router counts. All counters start at zero with the router and only grow.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::{Reason, RejectReason};

/// A router's figures at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that wait here now.
    pub queue_length: usize,
    /// How long the oldest of them has waited.
    pub oldest_wait: Duration,
    /// Requests dispatched to replicas and not finished.
    pub in_flight: usize,
    /// Requests forwarded to peer regions and not finished.
    pub forwarded_in_flight: usize,
    /// Replicas that would take a request now.
    pub available_replicas: usize,
    /// Peer regions that requests are forwarded to now.
    pub available_peers: usize,
    /// What the prefix index holds.
    pub index: IndexStats,
    /// What the index over peers holds.
    pub peer_index: IndexStats,
    /// Counters since the router's start.
    pub counters: Counters,
}

/// What the prefix index holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Distinct prefixes.
    pub nodes: usize,
    /// (prefix, replica) pairs: at least one for each node.
    pub entries: usize,
    /// Memory in bytes, as it counts against the bound.
    pub bytes: usize,
    /// Pairs forgotten for want of room since the start.
    pub evicted: u64,
}

/// Counters since the router's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests dispatched, by reason.
    pub decisions: BTreeMap<Reason, u64>,
    /// Requests refused, by reason.
    pub rejects: BTreeMap<RejectReason, u64>,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that had to wait before they were dispatched, refused or given up by the client.
    pub queued: u64,
    /// Clients that went away while their request waited.
    pub aborted_waiting: u64,
    /// Clients that went away after their request was dispatched.
    pub aborted_in_flight: u64,
    /// Responses that ended well.
    pub finished_ok: u64,
    /// Responses that ended badly.
    pub finished_failed: u64,
    /// Responses that came from another replica than the chosen one.
    pub retried_elsewhere: u64,
    /// Cached tokens as predicted, over the requests whose engine told the truth of the matter.
    pub predicted_cached_tokens: u64,
    /// Cached tokens as measured, over the same requests.
    pub measured_cached_tokens: u64,
    /// Absolute difference between the two, summed over the same requests.
    pub prediction_error_tokens: u64,
    /// Prompt tokens, over the same requests.
    pub measured_prompt_tokens: u64,
    /// Predicted hits that did not happen and so corrected the index.
    pub false_hits: u64,
    /// Requests forwarded to a peer region.
    pub forwarded: u64,
    /// Forwarded requests that came back, refused or not served there.
    pub returned: u64,
    /// Prompt tokens of forwarded requests whose engine told what it found in its cache.
    pub forwarded_prompt_tokens: u64,
    /// What it found.
    pub forwarded_cached_tokens: u64,
    /// Requests that came from other regions.
    pub forwarded_in: u64,
    /// Of these, those that were refused because the queue was too long.
    pub forwarded_in_rejected: u64,
    /// Placements told to siblings.
    pub shared_sent: u64,
    /// Placements heard from siblings.
    pub shared_received: u64,
    /// Of these, those that continue a prefix which is not known here.
    pub shared_unattached: u64,
    /// Placements that siblings were not told of because nobody took them in time.
    pub shared_dropped: u64,
    /// Replicas that were not taken in because there are too many.
    pub replicas_refused: u64,
}
