//! Quarantine: what the router does with prompts on which replicas broke.

use core::time::Duration;

use isotherm_fingerprint::Fingerprint;

use super::Router;
use super::feedback::evidence_of;
use crate::index::Owner;
use crate::pool_state::InFlightRequest;
use crate::quarantine::Restriction;
use crate::queue::QueueSeq;
use crate::replica::Evidence;
use crate::{End, RejectReason, Request, ServedBy, SessionKey};

/// Distinguishes the keys of sessions from digests of prompts.
const SESSION_MARK: u64 = 0x9e37_79b9_7f4a_7c15;

/// The key of a prompt in the table: its digest. Prompts without a fingerprint share the key of their session, since nothing
/// tells them apart.
fn key_of(fingerprint: &Fingerprint, session: Option<SessionKey>) -> Option<u64> {
    match fingerprint.digest() {
        0 => session.map(|session| session.0 ^ SESSION_MARK),
        digest => Some(digest),
    }
}

/// The key of a client: its tenant, or the session of a request of the common tenant.
fn client_of(owner: Owner, session: Option<SessionKey>) -> Option<u64> {
    match owner {
        Owner::COMMON => session.map(|session| session.0),
        of_tenant => Some(of_tenant.hash()),
    }
}

impl Router {
    /// Restriction of the client of a request: replicas broke on several of its prompts.
    #[inline]
    pub(super) fn restriction_of(&self, request: &Request) -> Option<Restriction> {
        if self.quarantine.is_empty() {
            return None;
        }
        let client = client_of(Owner::of(request.tenant), request.session)?;
        let period = self.pool.config.quarantine;
        self.quarantine.restriction(client, period, self.pool.now)
    }

    /// Rejects an arriving request whose prompt is in quarantine. Returns whether it was rejected.
    pub(super) fn reject_quarantined(&mut self, request: &Request) -> bool {
        if self.quarantine.is_empty() {
            return false;
        }
        let rest =
            key_of(&request.fingerprint, request.session).and_then(|key| self.quarantine_of(key));
        if let Some(rest) = rest {
            let tier = self.tier_of(request.tier);
            self.tier_counts.of(tier).rejected += 1;
            self.reject_after(request.id, RejectReason::Quarantined, rest);
        }
        rest.is_some()
    }

    /// Learns from the end of a request whether its prompt breaks replicas. Returns the verdict on the replicas: none, if the
    /// prompt is to blame.
    pub(super) fn judge_prompt(
        &mut self,
        request: &InFlightRequest,
        served_by: ServedBy,
        end: End,
    ) -> Evidence {
        let is_relevant = end == End::Broke || end == End::Answered && !self.quarantine.is_empty();
        let key = is_relevant.then(|| key_of(&request.fingerprint, request.session));
        match key.flatten() {
            Some(key) if end == End::Broke && self.add_breaks(request, served_by, key) => {
                return Evidence::None;
            }
            Some(key) if end == End::Answered => self.quarantine.clear(key),
            Some(_) | None => {}
        }
        evidence_of(end)
    }

    /// Counts the replicas that broke on a request. Envoy retries a request once, and reports its last replica.
    #[cold]
    fn add_breaks(&mut self, request: &InFlightRequest, served_by: ServedBy, key: u64) -> bool {
        let (period, now) = (self.pool.config.quarantine, self.pool.now);
        if period.is_zero() {
            return false;
        }
        let was_quarantined = self.quarantine_of(key).is_some();
        let chosen = Some(request.replica);
        if !self.quarantine.is_suspect(key)
            && let Some(client) = client_of(request.recorded.owner, request.session)
        {
            let last = match served_by {
                ServedBy::Replica(replica) => replica,
                ServedBy::Overridden(Some(replica)) => replica,
                ServedBy::Unreported | ServedBy::UnknownHost | ServedBy::Overridden(None) => {
                    request.replica
                }
            };
            self.quarantine.add_client(client, last, period, now);
        }
        let mut is_quarantined = self.quarantine.add_break(key, chosen, period, now);
        let retried = match served_by {
            ServedBy::Unreported => None,
            ServedBy::Replica(replica) => Some(Some(replica)),
            ServedBy::UnknownHost => Some(None),
            ServedBy::Overridden(other) => Some(other),
        };
        if let Some(retried) = retried {
            is_quarantined |= self.quarantine.add_break(key, retried, period, now);
        }
        if is_quarantined && !was_quarantined {
            self.counters.quarantines += 1;
            self.reject_queued_prompt(key);
        }
        is_quarantined
    }

    /// Rejects the queued requests with a prompt that came into quarantine.
    fn reject_queued_prompt(&mut self, key: u64) {
        let of = |request: &Request| key_of(&request.fingerprint, request.session);
        let queued = self.pool.queue.all();
        let same = queued.filter(|queued| of(&queued.request) == Some(key));
        let seqs: Vec<QueueSeq> = same.map(|queued| queued.seq).collect();
        let rest = self.pool.config.quarantine;
        for seq in seqs {
            if let Some(queued) = self.dequeue(seq) {
                let tier = self.tier_of(queued.request.tier);
                self.tier_counts.of(tier).rejected += 1;
                self.reject_after(queued.request.id, RejectReason::Quarantined, rest);
            }
        }
    }

    fn quarantine_of(&self, key: u64) -> Option<Duration> {
        let period = self.pool.config.quarantine;
        self.quarantine.remaining(key, period, self.pool.now)
    }
}
