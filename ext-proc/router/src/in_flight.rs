//! Requests that were dispatched to a replica and have not ended.

use crate::index::PredictionRecord;
use crate::replica::{BreakerPermit, RowId};
use crate::tenants::TenantCharge;
use crate::{ReplicaId, Request, Tier, Time};

/// A request that was dispatched to a replica.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    pub(crate) request: Request,
    /// The claim on the replica that writes the answer.
    pub(crate) claim: Claim,
    /// The claim on the prefill replica that computes the prompt, if one does.
    pub(crate) prefill: Option<Box<PrefillClaim>>,
    pub(crate) predicted: Prediction,
    pub(crate) dispatched_at: Time,
    /// Whether the response has begun.
    pub(crate) has_begun: bool,
    /// Whether the replica hangs, and the driver was told to end the request.
    pub(crate) is_abandoned: bool,
    /// The tier under which the request counts.
    pub(crate) tier: Tier,
    /// The time by which the first token is due.
    pub(crate) due: Time,
    pub(crate) charge: TenantCharge,
}

/// A claim of a prompt on a replica, from the dispatch to the end of the request.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) replica: ReplicaId,
    pub(crate) permit: BreakerPermit,
    pub(crate) row: RowId,
    pub(crate) recorded: PredictionRecord,
    /// Estimated prompt tokens that the replica had to compute first.
    pub(crate) ahead_tokens: f64,
}

/// A claim on the prefill replica that computes a prompt.
#[derive(Debug)]
pub(crate) struct PrefillClaim {
    pub(crate) claim: Claim,
    /// Share of the prompt that the replica had to compute.
    pub(crate) uncached_share: f64,
    /// Whether the response has begun.
    pub(crate) is_computed: bool,
}

/// Prediction of a prompt's cost, as of its dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prediction {
    /// Prompt tokens, by the estimate of the filter.
    pub(crate) estimated_tokens: u32,
    /// Bytes of the prompt that the replica was predicted to hold.
    pub(crate) matched_bytes: u32,
    /// Estimated tokens of an earlier answer behind the match.
    pub(crate) answer_tokens: f64,
    /// Estimated uncached tokens, without regard to the session.
    pub(crate) uncached_tokens: f64,
    /// Whether the request went to the last replica of its session; `None` for a new session.
    pub(crate) followed_session: Option<bool>,
    /// Requests at the replica, this one and those of other services included.
    pub(crate) outstanding: u32,
    /// Whether the replica had to load an adapter first. Its time to first token then says nothing about its prompt.
    pub(crate) is_behind_load: bool,
}

impl Claim {
    /// A claim of a prompt that was sent with this permit, and counts in this row.
    pub(crate) const fn new(
        replica: ReplicaId,
        (permit, row): (BreakerPermit, RowId),
        recorded: PredictionRecord,
        ahead_tokens: f64,
    ) -> Self {
        Self {
            replica,
            permit,
            row,
            recorded,
            ahead_tokens,
        }
    }
}

impl InFlightRequest {
    /// The claims on the replica and on the prefill replica.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Claim> {
        let prefill = self.prefill.as_ref().map(|prefill| &prefill.claim);
        core::iter::once(&self.claim).chain(prefill)
    }

    /// Identity of the prompt: equal prompts have equal ones. A prompt without a block has the one of its session.
    pub(crate) fn identity(&self) -> u64 {
        let session = || self.request.session.map_or(0, |session| session.0);
        let last = self.request.fingerprint.blocks().last();
        let hash = last.map_or_else(session, |block| block.hash);
        hash ^ u64::from(self.request.fingerprint.total_bytes())
    }

    /// Share of the prompt that the replica was predicted to hold.
    pub(crate) fn matched_share(&self) -> f64 {
        let total = f64::from(self.request.fingerprint.total_bytes().max(1));
        (f64::from(self.predicted.matched_bytes) / total).min(1.0)
    }
}
