//! The line: the order in which the waiting requests are shown to the policy (SageServe 6.5).
//!
//! Each request has a fixed position, and a line is a list of *spans*: ranges of positions, of which some are merged. Time moves the
//! ends of the ranges and no request, so a line is exact at any time. Its first request is found in the logarithm of the queue's
//! length.
//!
//! Rejected: positions that change when a request becomes urgent or late. One event would then move a whole burst.

use core::time::Duration;
use std::collections::BTreeSet;

use itertools::Itertools as _;
use smallvec::{SmallVec, smallvec};

use super::{LinePlace, QueueSeq, QueuedRequest};
use crate::config::PoolConfig;
use crate::{QueueOrder, Tier, TierRules, Time};

/// Lane of requests of the fast tier, and of all requests in orders without regard to tiers.
const FAST: u8 = 0;
/// Lane of the other requests.
const NORMAL: u8 = 1;

/// The order of service, resolved for a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LineOrder {
    /// By arrival.
    #[default]
    Arrival,
    /// By due time.
    Due,
    /// By due time, late requests behind the others.
    DueLateLast,
    /// By tier, then by arrival.
    Tier,
    Dpa {
        expired: Duration,
        urgent: Duration,
    },
}

/// Rules that give each request its position, and the positions their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LineRules {
    order: LineOrder,
    tiers: Option<TierRules>,
    /// The budget of every request of a pool without tiers. Their positions do not contain it, so that it may change.
    common_budget: Duration,
}

/// Positions from the first to the second one, both included.
type PlaceRange = (LinePlace, LinePlace);

/// A part of a line: one range of positions, or two that are merged without regard to their lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) first: PlaceRange,
    pub(super) second: Option<PlaceRange>,
}

/// The spans of a line, in order.
pub(super) type Spans = SmallVec<[Span; 2]>;

impl LineRules {
    pub(crate) fn new(config: &PoolConfig, past_slo_last: bool) -> Self {
        let order = match config.queue.order {
            QueueOrder::Auto if past_slo_last => LineOrder::DueLateLast,
            QueueOrder::Auto | QueueOrder::Fcfs => LineOrder::Arrival,
            QueueOrder::Edf => LineOrder::Due,
            QueueOrder::PriorityFirst => LineOrder::Tier,
            QueueOrder::Dpa { expired, urgent } => LineOrder::Dpa { expired, urgent },
        };
        Self {
            order,
            tiers: config.tiers,
            common_budget: config.ttft_slo,
        }
    }

    /// Whether these rules may give requests other positions than `other` does.
    pub(crate) fn moves(&self, other: &Self) -> bool {
        (self.order, self.tiers) != (other.order, other.tiers)
    }

    /// The position of a request that waits. Without tiers, requests are due in the order of arrival.
    pub(crate) fn place(&self, queued: &QueuedRequest) -> LinePlace {
        let request = &queued.request;
        let due = || match &self.tiers {
            Some(tiers) => queued.entered.after(request.budget(tiers)),
            None => queued.entered,
        };
        let lane = || match (&self.tiers, request.tier) {
            (Some(_), Tier::InteractiveFast) => FAST,
            _ => NORMAL,
        };
        let (lane, key) = match self.order {
            LineOrder::Arrival if self.tiers.is_some() => (FAST, Time::ZERO),
            LineOrder::Arrival | LineOrder::Due | LineOrder::DueLateLast => (FAST, due()),
            LineOrder::Tier => (lane(), Time::ZERO),
            LineOrder::Dpa { .. } => (lane(), due()),
        };
        LinePlace::new(lane, key.as_nanos(), queued.seq)
    }

    /// The spans of the line.
    pub(super) fn spans(&self, now: Time) -> Spans {
        match self.order {
            LineOrder::Arrival | LineOrder::Due | LineOrder::Tier => smallvec![Span::ALL],
            LineOrder::DueLateLast => {
                let late = self.late(now);
                self.in_time(now).into_iter().chain(late).collect()
            }
            LineOrder::Dpa { expired, urgent } => self.dpa(now, expired, urgent),
        }
    }

    /// The spans of the line, without late requests if the order puts late requests last.
    pub(super) fn in_time(&self, now: Time) -> Spans {
        if self.order != LineOrder::DueLateLast {
            return self.spans(now);
        }
        let from = match self.key_of(now) {
            None => LinePlace::FIRST,
            Some(now) => match now.checked_add(1) {
                None => return Spans::new(),
                Some(next) => LinePlace::new(FAST, next, QueueSeq::FIRST),
            },
        };
        smallvec![Span::one((from, LinePlace::LAST))]
    }

    /// The late requests, if the order puts late requests last.
    pub(super) fn late(&self, now: Time) -> Option<Span> {
        let now = self.key_of(now)?;
        let last = LinePlace::new(FAST, now, QueueSeq::LAST);
        (self.order == LineOrder::DueLateLast).then_some(Span::one((LinePlace::FIRST, last)))
    }

    /// Whether a request is late and comes last.
    pub(crate) fn is_late(&self, place: LinePlace, now: Time) -> bool {
        self.late(now).is_some_and(|late| late.contains(place))
    }

    fn dpa(&self, now: Time, expired: Duration, urgent: Duration) -> Spans {
        let mut spans = Spans::new();
        // Due times below each bound, and from it on; a time before the origin has none below it.
        let below = |time: Option<u64>| time.and_then(|time| time.checked_sub(1));
        let now_key = self.key_of(now);
        let expired_key = now_key.and_then(|now| now.checked_sub(nanos(expired)));
        let urgent_key = self.key_of(now.after(urgent));
        let mut add = |lanes: &[u8], from: Option<u64>, to: Option<u64>| {
            if let (Some(from), Some(to)) = (from, to)
                && from <= to
            {
                spans.push(Span::of_lanes(lanes, from, to));
            }
        };
        let both = [FAST, NORMAL];
        let from_now = Some(now_key.unwrap_or_default());
        let after_urgent = match urgent_key {
            Some(key) => key.checked_add(1),
            None => Some(0),
        };
        add(&both, Some(0), below(expired_key));
        add(&[FAST], from_now, urgent_key);
        add(&[NORMAL], from_now, urgent_key);
        add(&[FAST], after_urgent, Some(u64::MAX));
        add(&[NORMAL], after_urgent, Some(u64::MAX));
        let from_expired = Some(expired_key.unwrap_or_default());
        add(&both, from_expired, below(now_key));
        spans
    }

    /// The key of a request that is due at `time`; `None` for a time before the earliest key.
    fn key_of(&self, time: Time) -> Option<u64> {
        match self.tiers {
            Some(_) => Some(time.as_nanos()),
            None => time.as_nanos().checked_sub(nanos(self.common_budget)),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Span {
    pub(super) const ALL: Self = Self::one((LinePlace::FIRST, LinePlace::LAST));

    const fn one(range: PlaceRange) -> Self {
        Self {
            first: range,
            second: None,
        }
    }

    /// All requests of one or two lanes with keys from one to another.
    fn of_lanes(lanes: &[u8], from: u64, to: u64) -> Self {
        let range = |lane: &u8| {
            let from = LinePlace::new(*lane, from, QueueSeq::FIRST);
            (from, LinePlace::new(*lane, to, QueueSeq::LAST))
        };
        let mut ranges = lanes.iter().map(range);
        let none = (LinePlace::LAST, LinePlace::LAST);
        Self {
            first: ranges.next().unwrap_or(none),
            second: ranges.next(),
        }
    }

    fn contains(&self, place: LinePlace) -> bool {
        let holds = |(from, to): PlaceRange| from <= place && place <= to;
        holds(self.first) || self.second.is_some_and(holds)
    }

    /// The positions that the span has of some sets, in order and each once.
    pub(super) fn merged<'a>(
        &self,
        sets: &mut dyn Iterator<Item = &'a BTreeSet<LinePlace>>,
    ) -> impl Iterator<Item = LinePlace> + use<'a> {
        let ranges = [Some(self.first), self.second];
        let ranges = ranges.map(|range| range.filter(|(from, to)| from <= to));
        let is_merged = self.second.is_some();
        let is_before = move |a: &LinePlace, b: &LinePlace| match is_merged {
            true => a.without_lane() <= b.without_lane(),
            false => a <= b,
        };
        let positions: SmallVec<[_; 4]> = sets
            .flat_map(|set| {
                ranges
                    .into_iter()
                    .flatten()
                    .map(move |(from, to)| set.range(from..=to))
            })
            .map(Iterator::copied)
            .collect();
        positions.into_iter().kmerge_by(is_before).dedup()
    }
}
