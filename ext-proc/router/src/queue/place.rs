//! Positions of queued requests: in the order of arrival, and in the line of their band.

/// A request's position in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueSeq(pub(super) u64);

impl QueueSeq {
    /// In front of all requests.
    pub const FIRST: Self = Self(0);

    /// Behind all requests.
    pub(crate) const LAST: Self = Self(LinePlace::SEQ_MAX);

    /// The position behind this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A request's position among the requests of its band: by lane, then by key, then in the order of arrival.
///
/// The position does not change while time passes. The order of service is made of ranges of positions ([`super::line`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinePlace(u128);

impl LinePlace {
    /// Bits of the position in the order of arrival: enough for a million requests a second over 36,000 years.
    const SEQ_BITS: u32 = 60;
    const SEQ_MAX: u64 = (1 << Self::SEQ_BITS) - 1;
    const LANE_SHIFT: u32 = 64 + Self::SEQ_BITS;

    /// In front of all requests.
    pub(crate) const FIRST: Self = Self(0);
    /// Behind all requests.
    pub(crate) const LAST: Self = Self(u128::MAX);

    pub(super) const fn new(lane: u8, key: u64, seq: QueueSeq) -> Self {
        let (lane, key) = (lane as u128, key as u128);
        let seq = if seq.0 < Self::SEQ_MAX {
            seq.0
        } else {
            Self::SEQ_MAX
        };
        Self(lane << Self::LANE_SHIFT | key << Self::SEQ_BITS | seq as u128)
    }

    /// The position in the order of arrival.
    #[expect(clippy::cast_possible_truncation, reason = "masked to its bits")]
    pub(crate) const fn seq(self) -> QueueSeq {
        QueueSeq(self.0 as u64 & Self::SEQ_MAX)
    }

    /// The key: a time in nanoseconds, or zero where the order of arrival decides.
    #[expect(clippy::cast_possible_truncation, reason = "the bits of the key")]
    pub(super) const fn key(self) -> u64 {
        (self.0 >> Self::SEQ_BITS) as u64
    }

    /// The position without its lane, which compares requests of several lanes.
    pub(super) const fn without_lane(self) -> u128 {
        self.0 & ((1 << Self::LANE_SHIFT) - 1)
    }
}
