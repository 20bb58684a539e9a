//! Rules of workload tiers, and of the order of service.
//!
//! Tiers and orders follow SageServe (its sections 2.2, 6.2 and 6.5). Without these rules, a router has one tier, and ignores what
//! requests say about theirs.

use core::time::Duration;

use crate::{Request, Tier};

/// Bounds of a request's own budget: clients send any number.
const BUDGET_MIN: Duration = Duration::from_millis(10);
const BUDGET_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Rules of the workload tiers of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierRules {
    /// Rules of [`Tier::InteractiveFast`].
    pub fast: InteractiveTier,
    /// Rules of [`Tier::InteractiveNormal`].
    pub normal: InteractiveTier,
    /// Rules of [`Tier::NonInteractive`].
    pub batch: BatchTier,
}

impl TierRules {
    /// Default rules of a pool with this objective for the time to first token and this longest wait.
    #[must_use]
    pub fn new(ttft_slo: Duration, wait_max: Duration) -> Self {
        Self {
            fast: InteractiveTier {
                ttft_slo: ttft_slo.min(Duration::from_secs(1)),
                weight: 4.0,
                wait_max,
            },
            normal: InteractiveTier {
                ttft_slo,
                weight: 1.0,
                wait_max,
            },
            batch: BatchTier::default(),
        }
    }

    /// Rules of an interactive tier. A batch request counts as normal once it is promoted.
    pub(crate) const fn interactive(&self, tier: Tier) -> &InteractiveTier {
        match tier {
            Tier::InteractiveFast => &self.fast,
            Tier::InteractiveNormal | Tier::NonInteractive => &self.normal,
        }
    }

    /// Longest wait of a request that waits by the rules of this tier.
    pub(crate) const fn wait_max(&self, tier: Tier) -> Duration {
        match tier {
            Tier::InteractiveFast => self.fast.wait_max,
            Tier::InteractiveNormal => self.normal.wait_max,
            Tier::NonInteractive => self.batch.wait_max,
        }
    }
}

/// Rules of a tier whose requests a user waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InteractiveTier {
    /// Objective for the time to first token, of requests without a budget of their own.
    pub ttft_slo: Duration,
    /// Weight of a second of delay to a request of the tier, next to other tiers; positive.
    pub weight: f64,
    /// Longest wait of a request before it is rejected.
    pub wait_max: Duration,
}

/// Rules of batch work, which waits at a gate until the pool has capacity to spare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchTier {
    /// Effective memory utilisation of the pool below which a signal lets one batch request start, and two. The second value is
    /// at most the first.
    pub release_below: [f64; 2],
    /// Time after which a signal is given, if no request has ended meanwhile.
    pub signal_interval: Duration,
    /// Time before its deadline at which a held request is promoted: it then counts as interactive.
    pub promote_left: Duration,
    /// Most held requests; a further one is rejected.
    pub length_max: usize,
    /// Longest time for which a request is held before it is rejected. A promoted request waits by the rules of
    /// [`TierRules::normal`] instead.
    pub wait_max: Duration,
}

impl BatchTier {
    /// Share of the memory for KV caches in use below which one batch request may start, unless the pool has another.
    /// SageServe has 0.60.
    pub const RELEASE_BELOW: f64 = 0.40;
    /// Part of this share below which two may start. SageServe has 5/6.
    const RELEASE_TWO_BELOW: f64 = 0.75;

    /// Default rules with this share of the memory below which one batch request may start.
    #[must_use]
    pub fn releasing_below(share: f64) -> Self {
        Self {
            release_below: [share, share * Self::RELEASE_TWO_BELOW],
            signal_interval: Duration::from_secs(1),
            promote_left: Duration::from_secs(600),
            length_max: 1_000,
            wait_max: Duration::from_secs(60),
        }
    }
}

impl Default for BatchTier {
    fn default() -> Self {
        Self::releasing_below(Self::RELEASE_BELOW)
    }
}

/// Order of service: the order in which waiting requests are shown to the policy (SageServe 6.5).
///
/// The *due time* of a request is its arrival plus its budget for the first token. All requests of a pool without tiers have
/// the same budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueOrder {
    /// Order of the policy: `isotherm` serves requests by due time, those past it behind the others; other policies serve first come,
    /// first served.
    #[default]
    Auto,
    /// First come, first served, whatever the tier.
    Fcfs,
    /// Earliest due time first, late requests included.
    Edf,
    /// All fast requests before all normal ones, each first come, first served.
    PriorityFirst,
    /// Deadlines and priorities aware: requests far past their due time, then requests of each tier with little time left, then
    /// those with more time left, and then requests a little past their due time.
    Dpa {
        /// Time past the due time after which a request comes first.
        expired: Duration,
        /// Time before the due time from which a request is urgent.
        urgent: Duration,
    },
}

impl QueueOrder {
    /// Default of the field `expired` of [`Self::Dpa`].
    pub const DPA_EXPIRED: Duration = Duration::from_secs(30);
    /// Default of the field `urgent` of [`Self::Dpa`].
    pub const DPA_URGENT: Duration = Duration::from_secs(1);
}

/// Rule by which a request selects a region, where it may leave its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegionChoice {
    /// A request leaves when no local replica is available, to the peer with the longest prefix or the least delay (SkyLB 3.3).
    #[default]
    Availability,
    /// A request goes to the first region whose effective memory utilisation is below [`Self::UTILISATION_MAX`], its own region first and
    /// then by round trip; if there is none, to the least utilised one (SageServe 6.1).
    Utilisation,
}

impl RegionChoice {
    /// Utilisation from which a region is skipped by [`Self::Utilisation`].
    pub const UTILISATION_MAX: f64 = 0.70;
}

/// Class of a dispatched request, for the order inside the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkClass {
    /// A user waits, or the request's deadline is near.
    #[default]
    Interactive,
    /// Batch work that the gate released.
    Batch,
}

impl Request {
    /// The request's budget for its first token in a pool with these tiers: its own, or that of its tier.
    pub(crate) fn budget(&self, tiers: &TierRules) -> Duration {
        let of_tier = tiers.interactive(self.tier).ttft_slo;
        self.ttft_slo
            .map_or(of_tier, |own| own.clamp(BUDGET_MIN, BUDGET_MAX))
    }
}
