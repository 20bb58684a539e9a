//! Dispatch: a request goes to its replica, with fallbacks for Envoy's retries.

use smallvec::SmallVec;

use super::Router;
use super::decide::allowed;
use crate::index::AnswerKey;
use crate::policy::{Dispatch, PolicyEvent, uncached_tokens};
use crate::pool_state::InFlightRequest;
use crate::queue::QueuedRequest;
use crate::replica_index::ReplicaIndex;
use crate::{Decision, Effect, Request, Target};

impl Router {
    pub(super) fn dispatch(&mut self, queued: QueuedRequest, selected: Dispatch) {
        let (request, index) = (queued.request, selected.replica);
        // Both wait for memory, but not for each other.
        self.pool.index.prefetch_target(index);
        self.pool.replicas.prefetch(index);
        let Some(replica) = self.pool.replicas.id_of(index) else {
            return;
        };
        let fallbacks = self.fallbacks(&request, queued.pinned.as_deref(), &selected);
        let blocks = request.fingerprint.blocks();
        let matched = selected
            .matched
            .unwrap_or_else(|| self.pool.index.deepest_of(blocks, index));
        let (remembered, uncached) = self.uncached(&request, matched.depth, replica);
        let (now, pool) = (self.pool.now, &mut self.pool);
        let ahead = pool.replicas.pending_prefill_tokens(index, now);
        let Some(permit) = pool.replicas.dispatched(index, uncached, now) else {
            return;
        };
        let sessions = &mut self.pool.sessions;
        let followed_session = request
            .session
            .and_then(|key| sessions.record(key, replica));
        let outstanding = self.pool.replicas.get(index).map_or(1, |r| r.outstanding);
        let recorded = self.pool.index.record(blocks, index, &matched);
        self.share(Target::Replica(replica), blocks, matched.depth);
        self.policy.on_event(PolicyEvent::Dispatch(index));
        let matched_bytes = request.fingerprint.bytes_at(matched.depth);
        let share = request.fingerprint.share_at(matched.depth);
        let decision = Decision {
            replica,
            fallbacks,
            reason: selected.reason,
            matched_bytes,
            matched_tokens: share_of(request.prompt_tokens, share),
            queued_for: now.since(queued.arrived),
        };
        *self.counters.decisions.entry(decision.reason).or_default() += 1;
        self.effects
            .push_back(Effect::Dispatch(request.id, decision));
        self.pool.in_flight.insert(
            request.id,
            InFlightRequest {
                replica,
                permit,
                dispatched_at: now,
                fingerprint: request.fingerprint,
                session: request.session,
                matched_bytes,
                recorded,
                ahead_tokens: ahead,
                outstanding,
                answer_tokens: remembered,
                uncached_tokens: uncached,
                followed_session,
            },
        );
    }

    /// Estimated tokens of an earlier answer on the replica, and the tokens that it has to compute.
    fn uncached(&self, request: &Request, depth: usize, replica: crate::ReplicaId) -> (f64, f64) {
        let (unmatched, answers) = (uncached_tokens(request, depth), &self.pool.answers);
        let remembered = AnswerKey::matched(request, depth)
            .map_or(0.0, |key| answers.remembered(key, replica, unmatched));
        (remembered, unmatched - answers.expected(remembered))
    }

    /// The replicas to try when the chosen one fails: available ones, best first, then busy ones, since a replica that queues
    /// is better than an error. Failing replicas and replicas on trial are left out.
    fn fallbacks(
        &self,
        request: &Request,
        pinned: Option<&[ReplicaIndex]>,
        selected: &Dispatch,
    ) -> SmallVec<[crate::ReplicaId; 3]> {
        let (chosen, matched) = (selected.replica, selected.matched.as_ref());
        let wanted = self.pool.config.fallbacks_max.saturating_add(1);
        let open = allowed(pinned, self.pool.replicas.available());
        let candidates = open.as_ref().unwrap_or(self.pool.replicas.available());
        let view = self.pool.view(candidates);
        let mut named: SmallVec<[ReplicaIndex; 4]> = SmallVec::new();
        named.push(chosen);
        while named.len() < wanted.min(candidates.len()) {
            let Some(next) = self.policy.select_fallback(request, matched, &view, &named) else {
                break;
            };
            named.push(next);
        }
        let trusted = self.pool.replicas.trusted();
        named.retain(|index| *index == chosen || trusted.contains(*index));
        if named.len() < wanted {
            let among = allowed(pinned, trusted);
            let trusted = among.as_ref().unwrap_or(trusted);
            let mut from = chosen;
            for _ in 0..trusted.len().min(2 * wanted) {
                from = ReplicaIndex(from.0.wrapping_add(1));
                let Some(next) = trusted.next_round(from) else {
                    break;
                };
                if !named.contains(&next) {
                    named.push(next);
                }
                if named.len() >= wanted {
                    break;
                }
                from = next;
            }
        }
        named
            .iter()
            .skip(1)
            .filter_map(|index| self.pool.replicas.id_of(*index))
            .collect()
    }
}

/// A share of a number of tokens, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a u32 that is between 0 and 1 is a u32"
)]
pub(super) fn share_of(tokens: u32, share: f64) -> u32 {
    (f64::from(tokens) * share.clamp(0.0, 1.0)) as u32
}
