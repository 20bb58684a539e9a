//! Target of a pool: what the program gave it, and how far the number may fall towards it.

use core::time::Duration;

use isotherm_router::Time;
use serde::{Deserialize, Serialize};

use crate::pace::{Wish, ceil};
use crate::{PlanReason, RegionRow};

/// Intervals after which a plan is stale.
const STALE_INTERVALS: u32 = 2;
/// Share by which the demand must be below what one replica fewer carries before the number falls. Between the two numbers, a
/// demand beside a whole number of replicas would start and stop one again and again.
const HYSTERESIS: f64 = 0.05;

/// Number by the program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) replicas: u32,
    /// Replicas that the forecast needs in this region alone.
    needed: u32,
    /// Replicas that keep the number from falling towards the target.
    #[serde(default)]
    kept: u32,
    /// Share by which the demand must be lower before the number falls.
    #[serde(default)]
    hysteresis: f64,
    /// Time of the solution, in nanoseconds.
    at: u64,
    /// Demand that the program could not place here, in full replicas.
    pub(crate) unmet: f64,
}

impl Target {
    /// This region's part of a solution. Where pools share GPUs, another pool may need what hysteresis would keep.
    pub(crate) fn new(
        now: Time,
        replicas: u32,
        row: &RegionRow,
        unmet: f64,
        is_sharing: bool,
    ) -> Self {
        let full = |demand: f64| demand / row.capacity.max(f64::MIN_POSITIVE);
        let bounded = |replicas: u32| replicas.clamp(row.min, row.max.max(row.min));
        let demand = full(row.demand);
        let hysteresis = if is_sharing { 0.0 } else { HYSTERESIS };
        let needed = bounded(ceil(demand));
        let kept = bounded(ceil(demand * (1.0 + hysteresis)));
        Self {
            replicas,
            needed,
            kept: replicas + kept.saturating_sub(needed),
            hysteresis,
            at: now.as_nanos(),
            unmet: crate::demand::finite(full(unmet)),
        }
    }

    pub(crate) fn is_stale(&self, now: Time, interval: Duration) -> bool {
        let at = Time::from_nanos(self.at);
        at > now || now.since(at) > interval * STALE_INTERVALS
    }

    /// This region's part of a number. Where the program gives the region fewer than it needs, because GPUs are short or because
    /// other regions serve a part, the lead must not take them back.
    pub(crate) fn share_of(&self, replicas: f64) -> u32 {
        let share = f64::from(self.replicas) / f64::from(self.needed.max(1));
        ceil(replicas * share.min(1.0))
    }

    /// Number below which the pool does not fall, with a demand in full replicas.
    pub(crate) fn kept(&self, demand: f64) -> u32 {
        self.share_of(demand * (1.0 + self.hysteresis))
            .max(self.kept)
    }

    /// Wish of a pool whose GPUs do not suffice: no more than the program gives it, since a pool of a higher weight needs the
    /// rest.
    pub(crate) fn limit(&self, wish: Wish) -> Wish {
        if self.unmet > 0.0 && wish.replicas > self.replicas {
            return Wish {
                replicas: self.replicas,
                reason: PlanReason::Bounds,
            };
        }
        wish
    }
}
