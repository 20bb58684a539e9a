//! The JSON about tiers, batch work and tenants.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A tier of a pool, in `GET /api/pools`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TierView {
    pub tier: String,
    pub waiting: usize,
    pub oldest_wait_ms: u64,
    pub arrived: u64,
    pub dispatched: u64,
    pub rejected: u64,
    /// Requests whose first token came within their budget.
    pub within_slo: u64,
    /// Requests whose first token came later.
    pub past_slo: u64,
}

/// An entry of `GET /api/batch`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BatchView {
    pub pool: String,
    /// Whether the pool has tiers, and so a gate for batch work.
    pub has_gate: bool,
    /// Share of the memory for KV caches in use, with what was sent since the last probes; absent where the engines do not tell it.
    pub utilisation: Option<f64>,
    /// Requests that the next signal would release.
    pub credit: u32,
    /// Requests that the gate holds.
    pub held: usize,
    /// Most requests that the gate holds.
    pub held_max: usize,
    pub oldest_wait_ms: u64,
    /// Released requests by reason: `below_high`, `below_low`, `promoted`, `share`.
    pub released: BTreeMap<String, u64>,
}

/// An entry of `GET /api/tenants`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolTenantsView {
    pub pool: String,
    pub tenants: Vec<TenantView>,
}

/// A tenant of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TenantView {
    /// Name of the tenant; `common tenant` for requests without one, `other tenants` for all tenants beyond the tracked ones.
    pub tenant: String,
    pub requests: u64,
    /// Requests rejected because of a bound of the tenant.
    pub refused: u64,
    pub waiting: usize,
    pub in_flight: usize,
    /// Estimated tokens of both: prompts and expected answers.
    pub tokens: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
}
