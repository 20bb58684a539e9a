//! Capacity of a replica: the one answer to whether it takes a request, by its health, its probe and its ledger
//! (`docs/design/selective-pushing.md`).

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

/// Rules by which the replicas of a pool take requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CapacityRules {
    pub(super) push: Push,
    pub(super) probe_stale_after: Duration,
    /// Push rule `blind`, and no probe succeeds: every replica counts as available.
    pub(super) is_probe_panic: bool,
    /// Panic mode: every replica with a good probe fails its requests, so failures exclude none.
    pub(super) is_breaker_panic: bool,
}

/// Requests that a replica takes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capacity {
    /// The replica takes so many requests, at least one, before its next probe; [`u32::MAX`] where nothing bounds them.
    Free(u32),
    /// The replica has enough requests: why, and until when if time alone ends that.
    Full(Availability, Option<Time>),
    /// The replica takes no request, however few it has.
    Unfit(Availability),
}

impl Capacity {
    /// Free for a number of requests, or full for this reason if it is zero.
    const fn left(free: u32, full: Availability) -> Self {
        match free {
            0 => Self::Full(full, None),
            _ => Self::Free(free),
        }
    }

    /// Number of requests that the replica takes.
    pub(super) const fn free(self) -> u32 {
        match self {
            Self::Free(free) => free,
            Self::Full(..) | Self::Unfit(_) => 0,
        }
    }

    /// Whether the replica takes a request, or why not.
    pub(super) const fn availability(self) -> Availability {
        match self {
            Self::Free(_) => Availability::Available,
            Self::Full(why, _) | Self::Unfit(why) => why,
        }
    }
}

impl Replica {
    /// Capacity for requests; of a prefill replica, for prompts. Neither panic mode nor a bound of the push rule applies to the latter: the
    /// prompts in front of a new one are a part of its cost, and where it cannot serve, the decode replica computes the prompt.
    pub(super) fn capacity(&self, rules: &CapacityRules, now: Time) -> Capacity {
        let has_requests = self.role.has_requests();
        let is_breaker_panic = rules.is_breaker_panic && has_requests;
        if self.draining {
            return Capacity::Unfit(Availability::Draining);
        }
        if let Some(why) = self.probe_fault(rules, now) {
            let is_probe_panic = rules.is_probe_panic && has_requests;
            return match is_probe_panic {
                true => Capacity::Free(u32::MAX),
                false => Capacity::Unfit(why),
            };
        }
        if !is_breaker_panic && !self.breaker.admits(now) {
            return Capacity::Unfit(match self.breaker.is_hung() {
                true => Availability::Hung,
                false => Availability::Failing,
            });
        }
        match self.push_capacity(rules.push, now) {
            // A trial is one request.
            Capacity::Free(_) if !is_breaker_panic && !self.breaker.is_closed() => {
                Capacity::Free(1)
            }
            capacity => capacity,
        }
    }

    /// Why the last probe speaks against the replica, if it does. A replica without any probe is healthy, because nothing may probe it.
    pub(super) fn probe_fault(&self, rules: &CapacityRules, now: Time) -> Option<Availability> {
        if self.probe.has_failed {
            return Some(Availability::ProbeFailed);
        }
        let is_stale = self.expires(rules).is_some_and(|expires| now >= expires);
        is_stale.then_some(Availability::Stale)
    }

    /// When the last good probe becomes stale.
    fn expires(&self, rules: &CapacityRules) -> Option<Time> {
        let probed = self.probe.sent;
        probed.map(|sent| sent.after(rules.probe_stale_after))
    }

    /// When this capacity next changes without an event: a probe becomes stale, a trial is due, or time ends what makes it full.
    pub(super) fn next_change(
        &self,
        capacity: Capacity,
        rules: &CapacityRules,
        now: Time,
    ) -> Option<Time> {
        let full_until = match capacity {
            Capacity::Full(_, until) => until,
            Capacity::Free(_) | Capacity::Unfit(_) => None,
        };
        let changes = [self.expires(rules), self.breaker.next_trial(), full_until];
        let changes = changes.into_iter().flatten();
        changes.filter(|time| *time > now).min()
    }

    /// Capacity of a healthy replica by the push rule.
    fn push_capacity(&self, push: Push, now: Time) -> Capacity {
        match push {
            Push::Pending if self.probe.sent.is_none() => {
                Capacity::Unfit(Availability::NeverProbed)
            }
            _ if !self.role.has_requests() => Capacity::Free(u32::MAX),
            Push::Blind => Capacity::Free(u32::MAX),
            Push::Outstanding { max } => {
                let left = max.max(1).saturating_sub(self.outstanding());
                Capacity::left(left, Availability::Full)
            }
            Push::Pending => {
                let capacity = match self.load() {
                    Some(load) => self.capacity_by_load(load),
                    None => self.capacity_without_metrics(now),
                };
                match self.queues_until() {
                    Some(until) if capacity.free() > 0 && now < until => {
                        Capacity::Full(Availability::NoHeadroom, Some(until))
                    }
                    Some(_) | None => capacity,
                }
            }
        }
    }

    /// Capacity of a replica that shows its load: none beside pending requests. Otherwise as many requests as may be sent between two
    /// probes, until the engine has one more than it ran beside waiting ones.
    fn capacity_by_load(&self, load: &Load) -> Capacity {
        if load.pending > 0 {
            return Capacity::Full(Availability::Pending, None);
        }
        let sent = self.ledger.unprobed();
        let until_full = self.probe.full_at.map_or(u32::MAX, |full_at| {
            let by_page = load.running.map(|running| running.saturating_add(sent));
            let has = self.requests().min(by_page.unwrap_or(u32::MAX));
            full_at.saturating_add(1).saturating_sub(has)
        });
        let left = SINCE_PROBE_MAX.get().saturating_sub(sent).min(until_full);
        Capacity::left(left, Availability::NoHeadroom)
    }

    /// Capacity of a replica without metrics: up to a number of outstanding requests, and beyond it as long as the responses
    /// to the earlier ones have begun. While a prompt is stuck, one every [`STUCK_PAUSE`]: the engine may write a whole answer, and a
    /// later response that begins shows that.
    fn capacity_without_metrics(&self, now: Time) -> Capacity {
        if self.probe.stuck > 0
            && let Some(last) = self.ledger.waiting().next()
        {
            let until = last.sent_at.after(STUCK_PAUSE.get());
            return match now < until {
                true => Capacity::Full(Availability::Full, Some(until)),
                false => Capacity::Free(1),
            };
        }
        let outstanding = self.outstanding();
        let below = OUTSTANDING_MAX.saturating_sub(outstanding);
        let unbegun = UNBEGUN_MAX.get().saturating_sub(self.ledger.unbegun());
        let left = below.max(unbegun.min(BEGUN_MAX.get().saturating_sub(outstanding)));
        Capacity::left(left, Availability::Full)
    }

    /// When the requests in the engine's queue cease to wait together for longer than they may, by the estimated prefill; `None` for an
    /// engine whose responses do not tell when it computes.
    fn queues_until(&self) -> Option<Time> {
        let queued = self.ledger.unbegun_streams();
        let is_known = queued > 0 && self.work.streams > 0;
        is_known.then(|| self.work.backlog.ready().before(QUEUED_MAX.get() / queued))
    }
}
