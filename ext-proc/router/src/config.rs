//! Resolved configuration of a router: every value is checked or cannot be wrong. Each value has one default, in one place.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::collections::BTreeMap;

use crate::{QueueOrder, RegionChoice, TenantId, Tier, TierRules};

/// Limit of outstanding requests of replicas without metrics.
pub const OUTSTANDING_MAX: u32 = 32;

/// Configuration of a router, whose policy is a `P`. A router keeps it without the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config<P> {
    /// Policy that selects replicas: the default one, or one of another crate.
    pub policy: P,
    /// Push rule: when a replica is available.
    pub push: Push,
    /// Bounds of the queue.
    pub queue: QueueLimits,
    /// Bounds of the prefix index.
    pub index: IndexLimits,
    /// Objective for the time to first token. `isotherm` serves requests past it last; `dual_map` gives a warm cache up for it.
    pub ttft_slo: Duration,
    /// Thresholds of `cache_aware`.
    pub cache_aware: CacheAwareRules,
    /// Presumed time in which a replica loads an adapter that it does not hold.
    pub adapter_load: Duration,
    /// Presumed number of adapters that a replica holds, if its metrics page does not tell.
    pub adapter_slots: u32,
    /// Age at which a probe is stale and its replica unavailable.
    pub probe_stale_after: Duration,
    /// Time for which no replica gets a prompt on which two replicas broke; zero for no quarantine.
    pub quarantine: Duration,
    /// Fallbacks that a decision names beside the selected replica, at most.
    pub fallbacks_max: usize,
    /// Uncached prompt tokens from which a prefill replica computes a prompt. Shorter ones are computed where the answer is
    /// written.
    pub prefill_tokens_min: u32,
    /// Rules between regions.
    pub region: RegionRules,
    /// Whether an empty pool gets a replica when requests wait for one. They are then rejected only after their longest wait.
    pub starts_from_zero: bool,
    /// Bounds of each tenant, if there are any.
    pub tenants: Option<TenantLimits>,
    /// Rules of the workload tiers; `None` for one tier, whose requests all have the objective `ttft_slo`.
    pub tiers: Option<TierRules>,
}

/// The part of a router's configuration that its pool reads.
pub(crate) type PoolConfig = Config<()>;

/// Bounds of each tenant of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantLimits {
    /// Most requests of a tenant that wait or are in flight.
    pub in_flight_max: Option<usize>,
    /// Largest share of the pool's requests that a tenant may have, waiting and in flight, while the pool is busy: from 0 to 1. The
    /// part of its weight in those of the active tenants is allowed in any case.
    pub share_max: Option<f64>,
    /// Largest share of the tokens of these requests: their prompts and expected answers. The part of the weight is allowed, too.
    pub token_share_max: Option<f64>,
    /// Weights of tenants, positive; 1 for a tenant that is not named.
    pub weights: BTreeMap<TenantId, f64>,
    /// Most tenants that have bounds of their own; all others share those of one.
    pub tracked_max: usize,
}

impl TenantLimits {
    /// Default of [`Self::tracked_max`].
    pub const TRACKED_MAX: usize = 1_000;
}

impl<P: Default> Default for Config<P> {
    fn default() -> Self {
        Self {
            policy: P::default(),
            push: Push::Pending,
            queue: QueueLimits::default(),
            index: IndexLimits {
                bytes_max: 256 << 20,
                eviction: Eviction::Lru,
            },
            ttft_slo: Duration::from_secs(5),
            cache_aware: CacheAwareRules::default(),
            adapter_load: Duration::from_millis(300),
            adapter_slots: 4,
            probe_stale_after: Duration::from_secs(3),
            quarantine: Duration::from_secs(120),
            fallbacks_max: 2,
            // One piece of a chunked prefill. Beside running answers, it delays each of them by one step, about as long as
            // the way over another replica takes: one more request, and the transfer of the KV cache.
            prefill_tokens_min: 512,
            region: RegionRules {
                forwarding: ForwardingRule::Cost,
                queue_max: 4,
                stale_after: Duration::from_millis(600),
                share: false,
                choice: RegionChoice::default(),
            },
            starts_from_zero: false,
            tenants: None,
            tiers: None,
        }
    }
}

impl<P> Config<P> {
    /// Replaces the policy, and keeps all rules.
    pub(crate) fn with_policy<Q>(self, policy: Q) -> Config<Q> {
        Config {
            policy,
            push: self.push,
            queue: self.queue,
            index: self.index,
            ttft_slo: self.ttft_slo,
            cache_aware: self.cache_aware,
            adapter_load: self.adapter_load,
            adapter_slots: self.adapter_slots,
            probe_stale_after: self.probe_stale_after,
            quarantine: self.quarantine,
            fallbacks_max: self.fallbacks_max,
            prefill_tokens_min: self.prefill_tokens_min,
            region: self.region,
            starts_from_zero: self.starts_from_zero,
            tenants: self.tenants,
            tiers: self.tiers,
        }
    }

    /// The tier under which a request counts.
    pub(crate) const fn tier_of(&self, tier: Tier) -> Tier {
        if self.tiers.is_some() {
            tier
        } else {
            Tier::InteractiveNormal
        }
    }

    /// Longest wait of a request that waits by the rules of this tier.
    pub(crate) fn wait_max(&self, tier: Tier) -> Duration {
        let of_tier = self.tiers.as_ref().map(|tiers| tiers.wait_max(tier));
        of_tier.unwrap_or(self.queue.wait_max)
    }
}

/// Push rule (SkyLB 3.3): when a replica may get another request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Push {
    /// SP-P: the last probe shows no pending request, and the requests since then fit the admission headroom.
    #[default]
    Pending,
    /// SP-O: fewer than a fixed number are outstanding.
    Outstanding {
        /// Limit; zero counts as one.
        max: u32,
    },
    /// BP: always.
    Blind,
}

impl fmt::Display for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("pending"),
            Self::Outstanding { max } => write!(f, "outstanding:{max}"),
            Self::Blind => f.write_str("blind"),
        }
    }
}

impl FromStr for Push {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("outstanding:");
        let max = number.and_then(|number| number.parse().ok().filter(|max| *max > 0));
        match (text, max) {
            ("pending", _) => Ok(Self::Pending),
            ("blind", _) => Ok(Self::Blind),
            (_, Some(max)) => Ok(Self::Outstanding { max }),
            _ => Err(format!(
                "`{text}` is none of `pending`, `outstanding:NUMBER` (from 1) and `blind`"
            )),
        }
    }
}

/// Rules of `cache_aware`, with the names and the values of SGLang's library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheAwareRules {
    /// Share of the prompt above which a match decides.
    pub cache_threshold: f64,
    /// Load is out of balance when two thresholds are exceeded. By this one, the most loaded replica has so many requests more than
    /// the least loaded one.
    pub balance_abs_threshold: u32,
    /// By this threshold, the most loaded replica has so many times the requests of the least loaded one.
    pub balance_rel_threshold: f64,
    /// The replica for a request whose match is too short.
    pub on_miss: MissRule,
}

/// The replica that `cache_aware` selects for a request whose match is too short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissRule {
    /// The replica with the least cached text, as SGLang published the algorithm.
    #[default]
    LeastCached,
    /// The replica with the fewest requests in flight, as SGLang's gateway has selected since December 2025 (sglang 14650).
    LeastOutstanding,
}

impl Default for CacheAwareRules {
    fn default() -> Self {
        Self {
            cache_threshold: 0.5,
            balance_abs_threshold: 32,
            balance_rel_threshold: 1.1,
            on_miss: MissRule::default(),
        }
    }
}

/// Bounds of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Longest queue; a further request is rejected.
    pub length_max: usize,
    /// Longest wait of a request before it is rejected. A pool with tiers has one for each tier instead.
    pub wait_max: Duration,
    /// Order of service.
    pub order: QueueOrder,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            length_max: 10_000,
            wait_max: Duration::from_secs(30),
            order: QueueOrder::default(),
        }
    }
}

/// Bounds of the prefix index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLimits {
    /// Memory of the index in bytes. A sixteenth of it is for the last replicas of sessions, another one for the lengths of
    /// answers. With peers, a quarter of the rest is for the index over peers.
    pub bytes_max: usize,
    /// Order of eviction.
    pub eviction: Eviction,
}

/// Rules between regions and between the services of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionRules {
    /// Rule by which requests leave the region.
    pub forwarding: ForwardingRule,
    /// SkyLB's tau: the longest queue with which a region accepts forwarded requests.
    pub queue_max: u32,
    /// Age at which a peer's report is stale.
    pub stale_after: Duration,
    /// Whether placements are shared with siblings ([`crate::Router::poll_placement`]).
    pub share: bool,
    /// Rule by which a request selects a region.
    pub choice: RegionChoice,
}

/// Rule by which requests leave their region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardingRule {
    /// SkyLB's rule with two exceptions: a request stays although all local replicas are full, or leaves although one is
    /// free, where that gives it its first token earlier.
    #[default]
    Cost,
    /// SkyLB's rule as published: a request leaves when no local replica is available, and only then.
    Published,
}

/// Order of eviction. In either order a deeper entry goes before a shallower one of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Least recently used first (SGLang), as engines do.
    Lru,
    /// First inserted first (SkyLB 3.2).
    Fifo,
}
