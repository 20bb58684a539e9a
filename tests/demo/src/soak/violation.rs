//! Violations of invariants.

use std::time::Duration;

use serde::Serialize;

/// An invariant of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Invariant {
    /// Each request gets its answer or a reason.
    Answered,
    /// No request is answered twice, or by the answer to another request.
    AnsweredOnce,
    /// The service and Envoy count no request when none runs.
    PlacesReturned,
    /// Processes that survive do not grow.
    Flat,
    /// Conversations find their prefixes again soon after a fault.
    Affinity,
}

impl Invariant {
    pub(super) const ALL: [Self; 5] = [
        Self::Answered,
        Self::AnsweredOnce,
        Self::PlacesReturned,
        Self::Flat,
        Self::Affinity,
    ];

    /// The invariant as a sentence.
    pub(super) const fn claim(self) -> &'static str {
        match self {
            Self::Answered => "Each request got its answer, or a reason that a fault explains",
            Self::AnsweredOnce => "No request was answered twice or by another's answer",
            Self::PlacesReturned => "Every place was returned at the end",
            Self::Flat => "Memory and file descriptors stayed flat",
            Self::Affinity => "Conversations found their prefixes again within seconds",
        }
    }
}

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Violation {
    pub(super) invariant: Invariant,
    /// Time since the start of the run.
    pub(super) at: Duration,
    pub(super) what: String,
}
