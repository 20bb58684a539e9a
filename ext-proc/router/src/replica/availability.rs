//! Availability of a replica: its health, and what the push rule lets it have (`docs/design/selective-pushing.md`).

use core::time::Duration;

use super::Replica;
use crate::constant::constants;
use crate::{Availability, Load, OUTSTANDING_MAX, Push, Time};

constants! {
    /// Limit of the requests that were sent since the last probe and have not begun.
    SINCE_PROBE_MAX: u32 = 8;
    /// Limit of requests without a response on a replica without metrics that has [`OUTSTANDING_MAX`] requests.
    UNBEGUN_MAX: u32 = 4;
    /// Limit of outstanding requests on a replica without metrics: an engine may begin its responses before it computes the prompts.
    BEGUN_MAX: u32 = 8 * OUTSTANDING_MAX;
    /// The longest time that the requests in an engine's queue wait together. Further ones wait in the router, which may still send them
    /// elsewhere.
    QUEUED_MAX: Duration = Duration::from_millis(1_600);
    /// Time between two requests to a replica with stuck prompts.
    STUCK_PAUSE: Duration = Duration::from_secs(2);
}

/// Rules by which the replicas of a pool are available.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AvailabilityRules {
    pub(crate) push: Push,
    pub(crate) probe_stale_after: Duration,
    /// Push rule `blind`, and no probe succeeds: every replica counts as available.
    pub(crate) is_probe_panic: bool,
    /// Panic mode: every replica with a good probe fails its requests, so failures exclude none.
    pub(crate) is_breaker_panic: bool,
}

impl Replica {
    /// Whether the replica is available, or why not.
    pub(crate) fn availability(&self, rules: &AvailabilityRules, now: Time) -> Availability {
        if self.role.has_requests() {
            self.request_availability(rules, now)
        } else {
            self.prefill_availability(rules, now)
        }
    }

    /// Whether a prefill replica is available, or why not. Neither the push rule nor panic mode applies to it: the prompts
    /// in front of a new one are a part of its cost, and where it cannot serve, the decode replica computes the prompt.
    pub(crate) fn prefill_availability(
        &self,
        rules: &AvailabilityRules,
        now: Time,
    ) -> Availability {
        if self.draining {
            Availability::Draining
        } else if let Some(unhealthy) = self.unhealthy_reason(rules, now) {
            unhealthy
        } else if !self.breaker.admits(now) {
            self.breaker_availability()
        } else if rules.push == Push::Pending && self.last_probed().is_none() {
            Availability::NeverProbed
        } else {
            Availability::Available
        }
    }

    /// Whether a replica to which requests are dispatched is available, or why not.
    pub(crate) fn request_availability(
        &self,
        rules: &AvailabilityRules,
        now: Time,
    ) -> Availability {
        let unhealthy = self.unhealthy_reason(rules, now);
        let by_health = self.health_availability(unhealthy, rules, now);
        by_health.unwrap_or_else(|| self.push_availability(rules, now))
    }

    /// Availability by health, where `unhealthy` names a failed or stale probe; `None` where the push rule decides.
    pub(super) fn health_availability(
        &self,
        unhealthy: Option<Availability>,
        rules: &AvailabilityRules,
        now: Time,
    ) -> Option<Availability> {
        if self.draining {
            return Some(Availability::Draining);
        }
        if let Some(unhealthy) = unhealthy {
            return Some(if rules.is_probe_panic {
                Availability::Available
            } else {
                unhealthy
            });
        }
        (!rules.is_breaker_panic && !self.breaker.admits(now)).then(|| self.breaker_availability())
    }

    /// Why the circuit breaker admits no request.
    const fn breaker_availability(&self) -> Availability {
        if self.breaker.is_hung() {
            Availability::Hung
        } else {
            Availability::Failing
        }
    }

    /// Whether a healthy replica is available, or why not.
    pub(super) fn push_availability(&self, rules: &AvailabilityRules, now: Time) -> Availability {
        match rules.push {
            Push::Blind => Availability::Available,
            Push::Outstanding { max } if self.outstanding < max.max(1) => Availability::Available,
            Push::Outstanding { .. } => Availability::Full,
            Push::Pending => {
                let without_room = self.pending_room(now).err();
                without_room.unwrap_or(Availability::Available)
            }
        }
    }

    /// Why the replica is unhealthy, if it is. A replica without any probe counts as healthy, because nothing may probe it.
    pub(crate) fn unhealthy_reason(
        &self,
        rules: &AvailabilityRules,
        now: Time,
    ) -> Option<Availability> {
        if self.failed {
            return Some(Availability::ProbeFailed);
        }
        self.expires(rules)
            .is_some_and(|expires| now >= expires)
            .then_some(Availability::Stale)
    }

    /// When the last good probe becomes stale.
    fn expires(&self, rules: &AvailabilityRules) -> Option<Time> {
        let probed = self.last_probed();
        probed.map(|sent| sent.after(rules.probe_stale_after))
    }

    /// When the availability next changes without an event: a probe becomes stale, a trial is due, or the engine's queue holds
    /// enough no longer, as far as is known.
    pub(super) fn next_change(&self, rules: &AvailabilityRules, now: Time) -> Option<Time> {
        let changes = [
            self.expires(rules),
            self.breaker.next_trial(),
            self.queues_until()
                .filter(|_| matches!(rules.push, Push::Pending)),
            self.stuck_until(),
        ];
        let changes = changes.into_iter().flatten();
        changes.filter(|time| *time > now).min()
    }

    /// The push rule `pending`: how many further requests a healthy replica takes before its next probe, or why it takes none.
    fn pending_room(&self, now: Time) -> Result<u32, Availability> {
        let (room, without_room) = match self.load() {
            None if self.has_metrics() => return Err(Availability::NeverProbed),
            None => (self.left_without_metrics(now), Availability::Full),
            Some(load) if load.pending > 0 => return Err(Availability::Pending),
            Some(load) => {
                let sent = self.since_probe.count();
                let room = SINCE_PROBE_MAX.get().saturating_sub(sent);
                (
                    room.min(self.left_until_full(load, sent)),
                    Availability::NoHeadroom,
                )
            }
        };
        if room == 0 {
            Err(without_room)
        } else if self.queues_enough(now) {
            Err(Availability::NoHeadroom)
        } else {
            Ok(room)
        }
    }

    /// Requests until the engine has one more than it ran beside waiting ones.
    fn left_until_full(&self, load: &Load, sent: u32) -> u32 {
        let Some(full_at) = self.full_at else {
            return u32::MAX;
        };
        let by_page = load.running.map(|running| running.saturating_add(sent));
        let has = self.requests().min(by_page.unwrap_or(u32::MAX));
        full_at.saturating_add(1).saturating_sub(has)
    }

    /// Whether the requests in the engine's queue wait for as long as they may, together.
    fn queues_enough(&self, now: Time) -> bool {
        self.queues_until().is_some_and(|until| now < until)
    }

    /// When the requests in the engine's queue cease to wait for longer than they may, by the estimated prefill; `None` for an engine
    /// whose responses do not tell when it computes.
    fn queues_until(&self) -> Option<Time> {
        let queued = self.unbegun.streamed_count();
        let is_known = queued > 0 && self.unbegun.streams() > 0;
        is_known.then(|| self.backlog.ready().before(QUEUED_MAX.get() / queued))
    }

    /// When a replica with stuck prompts gets the next request.
    fn stuck_until(&self) -> Option<Time> {
        let last = self.backlog.last_push().filter(|_| self.stuck > 0);
        last.map(|last| last.after(STUCK_PAUSE.get()))
    }

    /// Requests that the replica admits before its next probe; `None` where the push rule does not bound it.
    pub(super) fn headroom(&self, rules: &AvailabilityRules, now: Time) -> Option<u32> {
        match rules.push {
            _ if !self.role.has_requests() => None,
            Push::Pending => Some(self.pending_room(now).unwrap_or_default()),
            Push::Outstanding { max } => Some(max.max(1).saturating_sub(self.outstanding)),
            Push::Blind => None,
        }
    }

    /// Requests that a replica without metrics gets: up to a number of outstanding ones, and beyond it as long as the responses
    /// to the earlier ones have begun. While a prompt is stuck, one every [`STUCK_PAUSE`]: the engine may write a whole answer, and a
    /// later response that begins shows that.
    fn left_without_metrics(&self, now: Time) -> u32 {
        if let Some(until) = self.stuck_until() {
            return u32::from(now >= until);
        }
        let below = OUTSTANDING_MAX.saturating_sub(self.outstanding);
        let unbegun = UNBEGUN_MAX.get().saturating_sub(self.unbegun.count());
        below.max(unbegun.min(BEGUN_MAX.get().saturating_sub(self.outstanding)))
    }

    /// Requests that an available replica can start now; one for a replica on trial.
    pub(super) fn free_capacity(&self, rules: &AvailabilityRules, now: Time) -> u32 {
        let most = if rules.is_breaker_panic || self.breaker.is_closed() {
            u32::MAX
        } else {
            1
        };
        self.headroom(rules, now).unwrap_or_default().min(most)
    }
}
