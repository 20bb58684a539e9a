//! Families of metrics that read one value each: names, help texts, and where the value is.

use std::collections::BTreeMap;

use isotherm_router::{
    Counters, PeerStatus, PoolEstimates, RejectReason, ReplicaStatus, Stats, TenantStatus,
};
use strum::IntoEnumIterator as _;

use crate::metrics::page::{count, counters};

/// A family with one sample per pool: its name, its help, and how to read its value.
pub(super) type Family<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// A family with one sample per pool and value of a label.
pub(super) type LabelledFamily = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Counters) -> Vec<(&'static str, u64)>,
);

pub(super) const LABELLED_COUNTERS: [LabelledFamily; 4] = [
    (
        "decisions",
        "Requests dispatched to a replica, by the reason for the selection: prefix, ring, least_loaded, spread, turn, random, \
         soonest, utilisation, adapter",
        "reason",
        |c| by_reason(&c.decisions),
    ),
    (
        "rejects",
        "Requests rejected, by reason: queue_full, waited_too_long, empty_subset, no_replica, no_healthy_replica, \
         region_full, tenant_limit, shutting_down, quarantined, no_spare_capacity",
        "reason",
        // A counter that begins with its first rejection hides it from `rate()`.
        |c| {
            let count = |reason| c.rejects.get(&reason).copied().unwrap_or_default();
            RejectReason::iter()
                .map(|reason| (reason.into(), count(reason)))
                .collect()
        },
    ),
    (
        "aborted",
        "Clients that disconnected, by the phase of their request: waiting, in_flight. Without the response filter \
         every response ends as the latter: Envoy ends both in the same way",
        "phase",
        |c| {
            vec![
                ("waiting", c.aborted_waiting),
                ("in_flight", c.aborted_in_flight),
            ]
        },
    ),
    (
        "finished",
        "Responses that ended, by result: 2xx; 4xx (the engine refused the request); 5xx; broken (the replica broke, or a timeout \
         of Envoy ended the request); unsent (Envoy responded itself)",
        "result",
        results,
    ),
];

pub(super) const COUNTERS: &[Family<Counters, u64>] = counters! {
    arrived: "Requests that need a replica",
    prefills: "Dispatched requests whose prompt a prefill replica computes",
    retried_elsewhere: "Responses of a replica other than the selected one, after a retry",
    overridden: "Requests that Envoy sent elsewhere than to the selected replica at the first attempt: a route or a cluster \
         overrides the choice",
    timed_out: "Requests that a timeout of Envoy's route ended before their response",
    quarantines: "Prompts that came into quarantine because two replicas broke on them",
    predicted_cached_tokens: "Prompt tokens that the prefix index predicted to be cached, over requests whose engine \
         reports its cache hits",
    measured_cached_tokens: "Prompt tokens that engines found in their caches, over the same requests",
    measured_prompt_tokens: "Prompt tokens of the same requests",
    false_hits: "Predicted cache hits that did not happen and corrected the prefix index",
    implausible_usage: "Responses whose usage cannot be of the prompt that the filter read. They taught nothing",
    forwarded_in: "Requests that other regions forwarded to this one",
    forwarded_in_rejected: "Requests of other regions that this region rejected because its queue was too long",
    placements_received: "Placements received from siblings",
    placements_unattached: "Received placements that continue a prefix unknown to this service",
    placements_dropped: "Placements that were not sent to siblings in time",
    adapter_requests: "Requests for an adapter (LoRA) that were dispatched",
    engine_restarts: "Restarts of engines, as the counters of their metrics pages showed",
    adapter_loads: "Requests for an adapter that were dispatched to a replica believed not to hold it",
    hung_replicas: "Replicas found to hang: they accepted requests, and nothing came back",
    abandoned: "Requests that were ended without a response, because their replica hung",
    replicas_refused: "Replicas left out because the pool has as many as it may have",
};

pub(super) const GAUGES: [Family<Stats, f64>; 6] = [
    ("queue_length", "Requests in the queue", |s| {
        count(s.queue_length)
    }),
    (
        "queue_oldest_wait_seconds",
        "Time that the oldest queued request has waited",
        |s| s.oldest_wait.as_secs_f64(),
    ),
    ("in_flight", "Requests dispatched and not finished", |s| {
        count(s.in_flight)
    }),
    (
        "available_replicas",
        "Replicas that accept another request now",
        |s| count(s.available_replicas),
    ),
    (
        "available_prefillers",
        "Prefill replicas that accept another prompt now",
        |s| count(s.available_prefillers),
    ),
    ("index_bytes", "Memory of the prefix index", |s| {
        count(s.index.bytes)
    }),
];

pub(super) const LEARNED_GAUGES: [Family<PoolEstimates, f64>; 2] = [
    (
        "learned_prompt_token_seconds",
        "Time in which a replica computes a prompt token, learned or presumed; isotherm_signal has the source",
        |e| e.prompt_token_s,
    ),
    (
        "learned_token_bytes",
        "Prompt bytes in a token, learned or presumed",
        |e| e.bytes_per_token,
    ),
];

pub(super) const REPLICA_GAUGES: [Family<ReplicaStatus, Option<f64>>; 5] = [
    (
        "replica_outstanding",
        "Requests sent to the replica and not finished",
        |r| Some(f64::from(r.outstanding)),
    ),
    (
        "replica_of_others",
        "Requests of other services at the replica, by what siblings told and its gauges showed",
        |r| Some(f64::from(r.of_others)),
    ),
    (
        "replica_pending",
        "Requests in the replica's own queue at its last probe",
        |r| Some(f64::from(r.load?.pending)),
    ),
    (
        "replica_running",
        "Requests in the replica's batch at its last probe",
        |r| Some(f64::from(r.load?.running?)),
    ),
    (
        "replica_kv_usage",
        "Share of the replica's KV cache in use, from 0 to 1",
        |r| Some(f64::from(r.load?.kv_usage?)),
    ),
];

pub(super) const PEER_COUNTERS: [Family<PeerStatus, u64>; 2] = [
    ("forwarded", "Requests forwarded to another region", |p| {
        p.forwarded
    }),
    (
        "returned",
        "Forwarded requests that came back: the other region refused them, or could not be reached",
        |p| p.returned,
    ),
];

pub(super) const PEER_GAUGES: [Family<PeerStatus, Option<f64>>; 3] = [
    (
        "forwarded_in_flight",
        "Requests forwarded to another region and not finished",
        |p| Some(f64::from(p.outstanding)),
    ),
    (
        "peer_free_capacity",
        "Requests that the peer could start at once, by its last report",
        |p| Some(f64::from(p.report?.free_capacity)),
    ),
    (
        "peer_queue_length",
        "Requests in the peer's queue, by its last report",
        |p| Some(f64::from(p.report?.queue)),
    ),
];

pub(super) const TENANT_COUNTERS: [Family<TenantStatus, u64>; 4] = [
    (
        "tenant_requests",
        "Requests of a tenant. `common tenant` has the requests without one, `other tenants` those beyond a thousand; a \
         tenant that was idle for long may start again at 0",
        |t| t.requests,
    ),
    (
        "tenant_refused",
        "Requests rejected because of a bound of their tenant",
        |t| t.refused,
    ),
    (
        "tenant_prompt_tokens",
        "Prompt tokens of a tenant's answers, as engines report them",
        |t| t.prompt_tokens,
    ),
    (
        "tenant_cached_tokens",
        "Prompt tokens of a tenant that engines found in their caches",
        |t| t.cached_tokens,
    ),
];

pub(super) const TENANT_GAUGES: [Family<TenantStatus, f64>; 2] = [
    ("tenant_waiting", "Requests of a tenant in the queue", |t| {
        count(t.waiting)
    }),
    (
        "tenant_in_flight",
        "Requests of a tenant dispatched and not finished",
        |t| count(t.in_flight),
    ),
];

fn by_reason<R: Copy + Into<&'static str>>(counts: &BTreeMap<R, u64>) -> Vec<(&'static str, u64)> {
    let counts = counts.iter();
    counts.map(|(reason, n)| ((*reason).into(), *n)).collect()
}

/// The responses that ended, by the class of their result.
fn results(counters: &Counters) -> Vec<(&'static str, u64)> {
    let broken = counters.broke + counters.timed_out;
    let other = counters.refused + broken + counters.unsent;
    vec![
        ("2xx", counters.finished_ok),
        ("4xx", counters.refused),
        ("5xx", counters.finished_failed.saturating_sub(other)),
        ("broken", broken),
        ("unsent", counters.unsent),
    ]
}
