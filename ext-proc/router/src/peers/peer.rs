//! One peer region: what it said last, and what was forwarded to it that it did not know of then.
//!
//! A report is about the moment at which the peer was *asked*, by our own clock (`as_of`): what was forwarded from then
//! on is not in it. So it is counted against the room that the report tells of, and beyond that it is counted as
//! waiting in the peer's queue. Reports get older, never younger: one that was asked for before the last one is ignored.
//!
//! # A peer that does not do as it says
//!
//! A request that comes back refutes the report on which it was sent: nothing more goes there until a report that was asked
//! for after that, and then only as many as the [window](super::window) says. Others that are under way at that moment
//! come back for the same reason, so they say nothing new.
//!
//! A region that is full, and a moment too fast with its last report, refuses some and serves others. One that lies, or
//! whose gateway is broken, refuses all. So what tells them apart is whether the peer *holds* requests of ours: those that
//! left, did not come back, and have been away for longer than a refusal takes ([`TAKEN_AFTER`]). While it holds one, its
//! circuit breaker (as a replica has it) is closed; while it holds none, each refuted report counts as a failure, so that after five in a row it is
//! tried with one request at a time, after a back-off that doubles up to 16 s.
//!
//! Where a region has several services, a request may come back to another one than it had left from. In the long run each
//! sees as many of the others' as they see of its own, so returns are counted and not told apart.

use core::time::Duration;

use super::window::Window;
use crate::replica::{Breaker, BreakerPermit, Evidence, Pushes};
use crate::{PeerAvailability, PeerId, PeerReport, PeerSpec, PeerStatus, RegionRules, Time};

/// The slowest that a queue is taken to drain, in requests a second: a peer that has not finished any request yet
/// cannot tell.
const DRAIN_PER_S_MIN: f32 = 0.1;

/// How much later than a round trip a refused request is back at the latest; a gateway that does not answer at all is
/// given up by the proxy in this time.
const TAKEN_AFTER: Duration = Duration::from_secs(3);

/// One peer region.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    /// Which of those that had this identity in turn.
    pub(crate) life: u64,
    pub(crate) name: String,
    heard: Option<Heard>,
    lost: bool,
    /// When a request came back that its report had promised room for.
    refuted: Option<Time>,
    /// When the last one did.
    returned_at: Option<Time>,
    pushes: Pushes,
    /// Of these, what its last report does not know of.
    since: u32,
    window: Window,
    /// What this service sent and what came back to it, as far back as a refusal takes.
    gone: Pushes,
    back: Pushes,
    outstanding: u32,
    /// How many of those are only open here because they came back and are served elsewhere.
    came_back: u32,
    breaker: Breaker,
    /// Predicted hits in a row that did not happen.
    pub(super) false_hits: u32,
    forwarded: u64,
    returned: u64,
}

/// What it said last.
#[derive(Clone, Copy, Debug)]
struct Heard {
    report: PeerReport,
    as_of: Time,
    round_trip: Duration,
}

impl Peer {
    pub(super) fn new(id: PeerId, life: u64, spec: PeerSpec) -> Self {
        Self {
            id,
            life,
            name: spec.name,
            heard: None,
            lost: false,
            refuted: None,
            returned_at: None,
            pushes: Pushes::default(),
            since: 0,
            window: Window::default(),
            gone: Pushes::default(),
            back: Pushes::default(),
            outstanding: 0,
            came_back: 0,
            breaker: Breaker::default(),
            false_hits: 0,
            forwarded: 0,
            returned: 0,
        }
    }

    /// It said this when it was asked at `as_of`.
    pub(super) fn reported(
        &mut self,
        report: PeerReport,
        as_of: Time,
        round_trip: Duration,
        now: Time,
    ) {
        if self.heard.is_some_and(|heard| as_of < heard.as_of) {
            return;
        }
        self.window.used(self.since, self.refuted.is_some());
        self.heard = Some(Heard {
            report,
            as_of,
            round_trip,
        });
        self.lost = false;
        if self.refuted.is_some_and(|at| as_of > at) {
            self.refuted = None;
        }
        self.pushes.forget_before(as_of);
        self.since = self.pushes.since(as_of);
        let refused_by = self.refused_by(now);
        self.gone.forget_before(refused_by);
        self.back.forget_before(refused_by);
        if self.holds(now) {
            self.breaker.proven();
        }
    }

    pub(super) const fn lost(&mut self) {
        self.lost = true;
    }

    /// A request goes there.
    pub(super) fn forwarded(&mut self, now: Time) -> BreakerPermit {
        self.pushed(now);
        self.gone.push(now);
        self.outstanding = self.outstanding.saturating_add(1);
        self.forwarded += 1;
        self.breaker.sent(now)
    }

    /// A request goes there, ours or a sibling's.
    pub(super) fn pushed(&mut self, now: Time) {
        self.pushes.push(now);
        self.since = self.since.saturating_add(1);
    }

    /// A request came back from there.
    pub(super) fn returned(&mut self, now: Time) {
        self.returned += 1;
        self.returned_at = Some(now);
        self.back.push(now);
        self.came_back = self.came_back.saturating_add(1);
        self.refute(now);
    }

    /// A request that was sent there has ended there, and says this of it.
    pub(super) fn ended(&mut self, sent: BreakerPermit, evidence: Evidence, now: Time) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.came_back = self.came_back.min(self.outstanding);
        self.breaker.ended(sent, evidence, now);
    }

    /// The client of a request that was sent there went away.
    pub(super) fn aborted(&mut self, sent: BreakerPermit, came_back: bool, now: Time) {
        if came_back {
            self.came_back = self.came_back.saturating_sub(1);
        }
        self.ended(sent, Evidence::None, now);
    }

    /// A request that was sent there at `at` and came back has ended.
    pub(super) fn ended_elsewhere(&mut self, sent: BreakerPermit, at: Time, now: Time) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.breaker.ended(sent, Evidence::None, now);
        if self.returned_at.is_some_and(|returned| returned >= at) {
            self.came_back = self.came_back.saturating_sub(1);
        } else {
            // A sibling took it in: this is the first that we hear of it.
            self.refute(now);
        }
    }

    /// Whether it has replicas for this pool and is heard: then it may have room some time.
    pub(super) fn serves(&self) -> bool {
        !self.lost && self.heard.is_some_and(|heard| heard.report.replicas > 0)
    }

    /// Whether requests are forwarded to it, or why not.
    pub(super) fn availability(&self, rules: &RegionRules, now: Time) -> PeerAvailability {
        let Some(heard) = &self.heard else {
            return PeerAvailability::NeverHeard;
        };
        if self.lost {
            PeerAvailability::Lost
        } else if now >= heard.as_of.after(rules.stale_after) {
            PeerAvailability::Stale
        } else if !self.breaker.admits(now) {
            PeerAvailability::Failing
        } else if self.refuted.is_some() {
            PeerAvailability::Refused
        } else if heard.report.available == 0 {
            PeerAvailability::NoReplica
        } else if !self.window.admits(self.since) {
            PeerAvailability::Paced
        } else if self.queue() > rules.queue_max {
            PeerAvailability::LongQueue
        } else {
            PeerAvailability::Available
        }
    }

    /// A request came back from there: its report was not true, or is not any more.
    fn refute(&mut self, now: Time) {
        if self.refuted.is_some() {
            return;
        }
        self.refuted = Some(now);
        self.window.shrink(self.since);
        if !self.holds(now) {
            self.breaker.returned(now);
        }
    }

    /// Whether it has taken a request of ours, and has it still.
    fn holds(&self, now: Time) -> bool {
        let refused_by = self.refused_by(now);
        let gone = self.gone.since(refused_by);
        let under_way = gone.saturating_sub(self.back.since(refused_by));
        self.outstanding > self.came_back.saturating_add(under_way)
    }

    /// What left before this time would be back by now if it had been refused.
    fn refused_by(&self, now: Time) -> Time {
        let round_trip = self.heard.map_or(Duration::ZERO, |heard| heard.round_trip);
        now.before(round_trip.saturating_add(TAKEN_AFTER))
    }

    /// When the passing of time alone changes whether it is available.
    pub(super) fn next_change(&self, rules: &RegionRules, now: Time) -> Option<Time> {
        let stale = self
            .heard
            .filter(|_| !self.lost)
            .map(|heard| heard.as_of.after(rules.stale_after));
        [stale, self.breaker.until()]
            .into_iter()
            .flatten()
            .filter(|time| *time > now)
            .min()
    }

    /// Round trip, and the time that those in front need; once it was heard.
    pub(super) fn estimated_ttft(&self) -> Option<Duration> {
        let heard = self.heard?;
        let ahead = self.queue();
        if ahead == 0 {
            return Some(heard.round_trip);
        }
        // A comparison with what is not a number is false: the floor takes its place.
        let drain = if heard.report.drain_per_s > DRAIN_PER_S_MIN {
            heard.report.drain_per_s
        } else {
            DRAIN_PER_S_MIN
        };
        let wait = Duration::from_secs_f64(f64::from(ahead) / f64::from(drain));
        Some(heard.round_trip.saturating_add(wait))
    }

    /// How much room its report leaves, with what was forwarded since.
    pub(super) fn free_capacity_left(&self) -> u32 {
        let free_capacity = self.heard.map_or(0, |heard| heard.report.free_capacity);
        free_capacity.saturating_sub(self.since)
    }

    /// How many wait there, with those forwarded since its report that its room did not hold.
    fn queue(&self) -> u32 {
        self.heard.map_or(0, |heard| {
            let beyond = self.since.saturating_sub(heard.report.free_capacity);
            heard.report.queue.saturating_add(beyond)
        })
    }

    /// For people.
    pub(super) fn status(&self, rules: &RegionRules, now: Time, prefix_bytes: u64) -> PeerStatus {
        PeerStatus {
            id: self.id,
            name: self.name.clone(),
            availability: self.availability(rules, now),
            report: self.heard.map(|heard| heard.report),
            as_of: self.heard.map(|heard| heard.as_of),
            round_trip: self.heard.map(|heard| heard.round_trip),
            forwarded_since: self.since,
            outstanding: self.outstanding,
            prefix_bytes,
            forwarded: self.forwarded,
            returned: self.returned,
        }
    }
}
