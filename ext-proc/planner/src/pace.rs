//! Pace: the number that a pool wishes for now (section 6.4), before bounds and stabilisation.
//!
//! A pool without a valid plan follows the utilisation alone, whatever its pace.

use crate::{GapRules, Pace, PlanReason, UtilisationRules};

/// State of a pool that the pace reads. Demand and forecasts are in full replicas: demand over what one replica may carry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PaceInputs {
    /// Number of replicas now.
    pub(crate) desired: u32,
    /// Replicas that serve.
    pub(crate) ready: u32,
    /// Number by the program; `None` without a valid plan.
    pub(crate) target: Option<u32>,
    /// Replicas that the forecast needs until one start-up time from now; `None` without a forecast.
    pub(crate) lead: Option<u32>,
    /// Replicas that plan and forecast keep, where there are as many.
    pub(crate) kept: u32,
    /// Effective memory utilisation of the replicas that serve.
    pub(crate) utilisation: Option<f64>,
    /// Mean demand of the last minutes.
    pub(crate) demand: Option<f64>,
    /// Least demand of the last three minutes; `None` if one of them is missing.
    pub(crate) demand_least: Option<f64>,
    /// Forecast of the model.
    pub(crate) point: Option<f64>,
    /// Upper forecast.
    pub(crate) upper: Option<f64>,
    /// Elapsed part of the interval.
    pub(crate) elapsed: f64,
    /// Replicas that finish the waiting work within one start-up time.
    pub(crate) waiting: f64,
    /// Whether the cooldown since the last step is over.
    pub(crate) is_cooled: bool,
}

/// A number of replicas, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) replicas: u32,
    pub(crate) reason: PlanReason,
}

impl PaceInputs {
    /// Number that the pace wishes for.
    pub(crate) fn wish(&self, pace: Pace, utilisation: &UtilisationRules, gap: &GapRules) -> Wish {
        let Some(target) = self.target else {
            return self.reactive(utilisation);
        };
        match pace {
            Pace::Reactive => self.reactive(utilisation),
            Pace::Immediate => plan(target),
            Pace::Utilisation => self.towards(target, utilisation),
            Pace::UtilisationAndGap => self
                .beyond(target, gap)
                .unwrap_or_else(|| self.towards(target, utilisation)),
            Pace::Forecast => self.forecast(target, utilisation),
        }
    }

    fn stay(&self) -> Wish {
        plan(self.desired)
    }

    fn step(&self, by: i64, reason: PlanReason) -> Wish {
        let replicas = (i64::from(self.desired) + by).max(0);
        Wish {
            replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
            reason,
        }
    }

    /// Direction in which the utilisation points. Replicas that start count as if they served already, unless the rules say
    /// otherwise: a start-up takes many cooldowns.
    fn direction(&self, rules: &UtilisationRules) -> i64 {
        let Some(utilisation) = self
            .utilisation
            .filter(|value| value.is_finite() && self.is_cooled)
        else {
            return 0;
        };
        let share = f64::from(self.ready) / f64::from(self.desired.max(1));
        let utilisation = if rules.counts_starting {
            utilisation * share
        } else {
            utilisation
        };
        if utilisation > rules.up {
            1
        } else if utilisation < rules.down {
            -1
        } else {
            0
        }
    }

    fn reactive(&self, rules: &UtilisationRules) -> Wish {
        match self.direction(rules) {
            0 => self.stay(),
            step => self.step(step, PlanReason::Utilisation),
        }
    }

    /// One step towards the plan, while the utilisation points there (LT-U).
    fn towards(&self, target: u32, rules: &UtilisationRules) -> Wish {
        let distance = i64::from(target) - i64::from(self.desired);
        match self.direction(rules) {
            step if step != 0 && step == distance.signum() => {
                self.step(step, PlanReason::Utilisation)
            }
            _ => self.stay(),
        }
    }

    /// One step beyond the plan at the end of the interval, where the demand is far from its forecast (LT-UA).
    fn beyond(&self, target: u32, gap: &GapRules) -> Option<Wish> {
        let (demand, point) = (self.demand?, self.point?);
        if self.elapsed < gap.from || !self.is_cooled {
            return None;
        }
        if self.desired >= target && demand >= gap.up * point && demand > 0.0 {
            return Some(self.step(1, PlanReason::Gap));
        }
        (self.desired <= target && demand <= gap.down * point)
            .then(|| self.step(-1, PlanReason::Gap))
    }

    /// The largest of what forecast, demand, waiting work and utilisation need; otherwise the plan.
    fn forecast(&self, target: u32, rules: &UtilisationRules) -> Wish {
        let lead = self.lead.unwrap_or(target);
        let base = if lead > self.desired {
            Wish {
                replicas: lead,
                reason: PlanReason::Lead,
            }
        } else {
            // The plan covers a window that begins one start-up time from now. Until then, the forecast may need more. A rise
            // of the plan waits until the demand is one start-up time away.
            let reason = PlanReason::Plan;
            Wish {
                replicas: target.max(lead).max(self.kept).min(self.desired),
                reason,
            }
        };
        let bursts = [self.above_forecast(), self.waiting(), self.crowded(rules)];
        let burst = bursts
            .into_iter()
            .flatten()
            .max_by_key(|wish| wish.replicas);
        match burst {
            Some(burst) if burst.replicas > base.replicas.max(self.desired) => burst,
            _ => base,
        }
    }

    /// The demand exceeds the upper forecast in each of the last minutes.
    fn above_forecast(&self) -> Option<Wish> {
        let (least, upper, demand) = (self.demand_least?, self.upper?, self.demand?);
        (least > upper).then(|| Wish {
            replicas: ceil(demand.max(least)),
            reason: PlanReason::AboveForecast,
        })
    }

    /// More work waits than the ordered replicas finish within one start-up time.
    fn waiting(&self) -> Option<Wish> {
        let is_long = self.waiting > f64::from(self.desired) && self.is_cooled;
        is_long.then(|| Wish {
            replicas: ceil(self.waiting).max(self.desired.saturating_add(1)),
            reason: PlanReason::Waiting,
        })
    }

    fn crowded(&self, rules: &UtilisationRules) -> Option<Wish> {
        (self.direction(rules) > 0).then(|| self.step(1, PlanReason::Utilisation))
    }
}

fn plan(replicas: u32) -> Wish {
    Wish {
        replicas,
        reason: PlanReason::Plan,
    }
}

/// Replicas that carry a demand in full replicas.
pub(crate) fn ceil(demand: f64) -> u32 {
    let replicas = (demand - 1e-6).ceil();
    if replicas.is_finite() {
        replicas.max(0.0) as u32
    } else {
        0
    }
}
