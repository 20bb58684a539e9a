//! Costs of a deployment in a region: time of instances by what they did, and changes of their number.

/// Time after a scale-up within which a scale-down counts as its reversal, s.
const REVERSAL_S: f64 = 600.0;

/// Costs of a deployment in a region.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Instance seconds in which an instance served.
    pub serving_s: f64,
    /// Instance seconds in which an instance with the model's own weights started.
    pub starting_own_s: f64,
    /// Instance seconds in which an instance with another model's weights started.
    pub starting_other_s: f64,
    /// Instance seconds in which an instance finished what it had.
    pub draining_s: f64,
    /// Instance seconds lent out as spot.
    pub spot_s: f64,
    /// Instances that were started.
    pub starts: u64,
    /// Instances that were stopped.
    pub stops: u64,
    /// Scale-downs within ten minutes of a scale-up.
    pub reversals: u64,
    started_s: Option<f64>,
}

impl Ledger {
    /// Instance hours that the deployment pays: serving, starting and draining.
    pub fn hours(&self) -> f64 {
        (self.serving_s + self.draining_s) / 3_600.0 + self.wasted_hours()
    }

    /// Instance hours in which instances started.
    pub fn wasted_hours(&self) -> f64 {
        (self.starting_own_s + self.starting_other_s) / 3_600.0
    }

    pub(super) fn charge_start(&mut self, step_s: f64, is_own: bool) {
        if is_own {
            self.starting_own_s += step_s;
        } else {
            self.starting_other_s += step_s;
        }
    }

    /// Counts a start. The scale-up is over when the instance serves.
    pub(super) fn record_start(&mut self, ready_s: f64) {
        self.starts += 1;
        self.started_s = Some(self.started_s.map_or(ready_s, |last| last.max(ready_s)));
    }

    pub(super) fn record_stop(&mut self, now_s: f64) {
        self.stops += 1;
        if self.started_s.is_some_and(|at| now_s - at < REVERSAL_S) {
            self.reversals += 1;
            self.started_s = None;
        }
    }
}
