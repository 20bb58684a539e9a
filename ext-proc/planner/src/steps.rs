//! Steps: how the number of a pool follows what its pace wishes for.
//!
//! Up at once. Down only when every wish of the stabilisation time was lower, a quiet time after the last step has passed, and the
//! demand of now is carried; then by a bounded step. A pool that obeys a noisy signal in both directions starts replicas that it
//! removes before they served.

use core::time::Duration;
use std::collections::VecDeque;

use isotherm_router::Time;
use serde::{Deserialize, Serialize};

use crate::pace::Wish;
use crate::{PlanReason, ReplicaBounds};

/// Number of a pool, and the steps that led to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Steps {
    /// Number of replicas.
    pub(crate) desired: u32,
    /// Version of the number; zero before the first.
    pub(crate) epoch: u64,
    #[serde(skip)]
    pub(crate) reason: PlanReason,
    /// Times of the last step in each direction, in nanoseconds.
    last_up: Option<u64>,
    last_down: Option<u64>,
    /// Wishes within the stabilisation time that no later wish reaches, oldest first. They fall strictly, so there are no more than
    /// the bounds allow.
    #[serde(skip)]
    wishes: VecDeque<(Time, u32)>,
    /// Time of the first wish since the start.
    #[serde(skip)]
    first_wish: Option<Time>,
}

/// Bounds of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepRules {
    pub(crate) bounds: ReplicaBounds,
    pub(crate) stabilisation: Duration,
    /// Time after a step up in which the number does not fall.
    pub(crate) quiet: Duration,
    /// Replicas that the demand of now needs: a step down stops there.
    pub(crate) floor: u32,
}

impl Steps {
    /// Whether the pool has a number.
    pub(crate) fn is_known(&self) -> bool {
        self.epoch > 0
    }

    /// Whether `cooldown` has passed since the last step.
    pub(crate) fn is_cooled(&self, now: Time, cooldown: Duration) -> bool {
        let last = self.last_up.max(self.last_down);
        last.is_none_or(|last| has_passed(now, last, cooldown))
    }

    /// Follows a wish. Returns the change of the number.
    pub(crate) fn follow(&mut self, now: Time, wish: Wish, rules: &StepRules) -> i64 {
        let bounded = wish
            .replicas
            .clamp(rules.bounds.min, rules.bounds.max.max(rules.bounds.min));
        self.remember(now, bounded, rules.stabilisation);
        let reason = if bounded == wish.replicas {
            wish.reason
        } else {
            PlanReason::Bounds
        };
        if bounded >= self.desired {
            return self.set(now, bounded, reason);
        }
        let Some(lowest) = self.lowest(now, rules) else {
            return 0;
        };
        self.set(now, lowest, reason)
    }

    /// Sets the number. Returns its change.
    pub(crate) fn set(&mut self, now: Time, desired: u32, reason: PlanReason) -> i64 {
        let change = i64::from(desired) - i64::from(self.desired);
        if change == 0 && self.is_known() {
            return 0;
        }
        let direction = if self.is_known() { change.signum() } else { 0 };
        match direction {
            1 => self.last_up = Some(now.as_nanos()),
            -1 => self.last_down = Some(now.as_nanos()),
            _ => {}
        }
        self.desired = desired;
        self.epoch += 1;
        self.reason = reason;
        change
    }

    /// Takes a number and its version from a sibling. Returns the change of the number.
    pub(crate) fn adopt(&mut self, now: Time, desired: u32, epoch: u64) -> i64 {
        if epoch == 0 || (epoch, desired) == (self.epoch, self.desired) {
            return 0;
        }
        let change = self.set(now, desired, PlanReason::Adopted);
        self.epoch = epoch;
        change
    }

    /// Forgets wishes and times of a future that a clock took back.
    pub(crate) fn forget_future(&mut self, now: Time) {
        self.wishes.retain(|(at, _)| *at <= now);
        self.first_wish = self.first_wish.map(|first| first.min(now));
        for last in [&mut self.last_up, &mut self.last_down] {
            *last = last.map(|last| last.min(now.as_nanos()));
        }
    }

    fn remember(&mut self, now: Time, wish: u32, window: Duration) {
        self.first_wish.get_or_insert(now);
        while self.wishes.back().is_some_and(|(_, last)| *last <= wish) {
            self.wishes.pop_back();
        }
        self.wishes.push_back((now, wish));
        while self
            .wishes
            .front()
            .is_some_and(|(at, _)| now.since(*at) > window)
        {
            self.wishes.pop_front();
        }
    }

    /// Number to which the pool may fall now; `None` if it may not.
    fn lowest(&self, now: Time, rules: &StepRules) -> Option<u32> {
        let is_observed = self
            .first_wish
            .is_some_and(|first| now.since(first) >= rules.stabilisation);
        let is_quiet = self
            .last_up
            .is_none_or(|last| has_passed(now, last, rules.quiet));
        let is_spaced = self
            .last_down
            .is_none_or(|last| has_passed(now, last, rules.stabilisation));
        if !(is_observed && is_quiet && is_spaced) {
            return None;
        }
        let largest = self.wishes.front().map(|(_, wish)| *wish)?;
        let step = self.desired.saturating_sub(rules.bounds.step_down.max(1));
        let lowest = largest.max(step).max(rules.floor).max(rules.bounds.min);
        (lowest < self.desired).then_some(lowest)
    }
}

fn has_passed(now: Time, since: u64, duration: Duration) -> bool {
    now.since(Time::from_nanos(since)) >= duration
}
