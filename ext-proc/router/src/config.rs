//! What a router can be told, resolved: every value is already checked or cannot be wrong.
//!
//! The raw configuration (YAML, units in names, unknown members refused) belongs to the service; what arrives
//! here has one default, in one place, and may be replaced while requests wait ([`crate::Router::reconfigure`]).

use core::time::Duration;

use crate::PolicyName;

/// Everything that a router can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterConfig {
    /// Who goes where.
    pub policy: PolicyName,
    /// When a replica is available.
    pub push: Push,
    /// How much may wait here, and for how long.
    pub queue: QueueLimits,
    /// What the prefix index may use.
    pub index: IndexLimits,
    /// How soon a request is to have its first token: `isotherm` serves those first that still can, `dual_map` gives a
    /// warm cache up for it.
    pub ttft_slo: Duration,
    /// A probe older than this says nothing any more; a replica without a fresher one is unavailable.
    pub probe_stale_after: Duration,
    /// The most fallbacks that a decision names beside the chosen replica.
    pub fallbacks_max: usize,
    /// What goes on between regions.
    pub region: RegionRules,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            policy: PolicyName::Isotherm,
            push: Push::Pending,
            queue: QueueLimits {
                length_max: 10_000,
                wait_max: Duration::from_secs(30),
            },
            index: IndexLimits {
                bytes_max: 256 << 20,
                eviction: Eviction::Lru,
            },
            ttft_slo: Duration::from_secs(5),
            probe_stale_after: Duration::from_secs(3),
            fallbacks_max: 2,
            region: RegionRules {
                queue_max: 4,
                stale_after: Duration::from_millis(600),
                share: false,
            },
        }
    }
}

/// Selective pushing (SkyLB 3.3): when a replica may be sent another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// SP-P: its last probe shows no pending request, and what was pushed since fits its headroom.
    Pending,
    /// SP-O: fewer than a fixed number are outstanding.
    Outstanding {
        /// That number; zero is read as one, since a replica that may have nothing serves nobody.
        max: u32,
    },
    /// BP: always.
    Blind,
}

/// Bounds of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// How many requests may wait; the next one is refused.
    pub length_max: usize,
    /// How long a request may wait before it is refused.
    pub wait_max: Duration,
}

/// Bounds of the prefix index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLimits {
    /// How many bytes of memory it may use. Where there are peer regions, a quarter of that is for the index over them.
    pub bytes_max: usize,
    /// What goes first when it is full.
    pub eviction: Eviction,
}

/// What goes on between regions, and between the services of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionRules {
    /// SkyLB's tau: with a longer queue a region takes no requests of others.
    pub queue_max: u32,
    /// A peer's report older than this says nothing any more.
    pub stale_after: Duration,
    /// Whether placements are told to siblings ([`crate::Router::poll_placement`]).
    pub share: bool,
}

/// What the prefix index forgets first. Either way a deeper entry goes before a shallower one of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// What was used longest ago (SGLang): what engines do themselves.
    Lru,
    /// What was inserted longest ago (SkyLB 3.2).
    Fifo,
}
