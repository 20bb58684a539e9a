//! Start-up time of a replica: from the rise of the number to the first good probe, as measured.
//!
//! The time includes whatever lies between: the autoscaler's period, the machine, the image, the weights, the first probe.

use core::time::Duration;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use isotherm_router::Time;

/// Orders and measurements that are kept.
const ORDERS_MAX: usize = 1_000;
const MEASUREMENTS_MAX: usize = 20;
/// Time after which an order counts as never carried out: in advisory mode, nothing carries it out.
const ORDER_AGE_MAX: Duration = Duration::from_secs(2 * 3_600);
/// Bounds of a measurement.
const STARTUP_MIN: Duration = Duration::from_secs(5);
const STARTUP_MAX: Duration = Duration::from_secs(3_600);
/// Share of the measured times that the estimate covers.
const QUANTILE: f64 = 0.9;

/// Start-up times of a pool's replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Startup {
    /// Times of ordered replicas that have not come, in nanoseconds, oldest first.
    orders: VecDeque<u64>,
    /// Measured times, in seconds, oldest first.
    measured_s: VecDeque<f64>,
}

impl Startup {
    /// The number of replicas rose.
    pub(crate) fn ordered(&mut self, now: Time, count: u32) {
        for _ in 0..(count as usize).min(ORDERS_MAX - self.orders.len().min(ORDERS_MAX)) {
            self.orders.push_back(now.as_nanos());
        }
    }

    /// The number of replicas fell: the latest orders are void.
    pub(crate) fn cancelled(&mut self, count: u32) {
        let left = self.orders.len().saturating_sub(count as usize);
        self.orders.truncate(left);
    }

    /// A replica serves that never served before.
    pub(crate) fn started(&mut self, now: Time) {
        self.orders
            .retain(|order| now.since(Time::from_nanos(*order)) <= ORDER_AGE_MAX);
        let Some(order) = self.orders.pop_front() else {
            return;
        };
        let time = now
            .since(Time::from_nanos(order))
            .clamp(STARTUP_MIN, STARTUP_MAX);
        if self.measured_s.len() >= MEASUREMENTS_MAX {
            self.measured_s.pop_front();
        }
        self.measured_s.push_back(time.as_secs_f64());
    }

    /// Start-up time to plan with.
    pub(crate) fn estimate(&self, presumed: Duration) -> Duration {
        let mut sorted: Vec<f64> = self
            .measured_s
            .iter()
            .copied()
            .filter(|time| time.is_finite())
            .collect();
        sorted.sort_by(f64::total_cmp);
        let at = ((sorted.len() as f64 * QUANTILE).ceil() as usize).saturating_sub(1);
        sorted.get(at).map_or(presumed, |time| {
            Duration::from_secs_f64(*time).clamp(STARTUP_MIN, STARTUP_MAX)
        })
    }

    /// State within its bounds.
    pub(crate) fn sanitized(mut self) -> Self {
        self.orders.truncate(ORDERS_MAX);
        self.measured_s
            .retain(|time| time.is_finite() && *time > 0.0);
        self.measured_s.truncate(MEASUREMENTS_MAX);
        self
    }
}
