//! A request goes to its replica: what is remembered of it, and whom to try when that one fails.

use smallvec::SmallVec;

use super::admit::Dispatch;
use super::{InFlightRequest, Router};
use crate::index::{AnswerKey, PrefixMatch};
use crate::policy::uncached_tokens;
use crate::queue::QueuedRequest;
use crate::replica_index::ReplicaIndex;
use crate::{Decision, Effect, Request, Target};

impl Router {
    pub(super) fn dispatch(&mut self, queued: QueuedRequest, settled: Dispatch) {
        let QueuedRequest {
            request,
            arrived,
            pinned,
            ..
        } = queued;
        let slot = settled.slot;
        // Both lie far away, and the one need not wait for the other.
        self.index.prefetch_target(slot);
        self.replicas.prefetch(slot);
        let Some(replica) = self.replicas.id_of(slot) else {
            return;
        };
        let fallbacks = self.fallbacks(&request, pinned.as_deref(), slot, settled.matched.as_ref());
        let blocks = request.fingerprint.blocks();
        let matched = settled
            .matched
            .unwrap_or_else(|| self.index.deepest_of(blocks, slot));
        let unmatched = uncached_tokens(&request, matched.depth);
        let remembered = AnswerKey::matched(&request, matched.depth)
            .map_or(0.0, |key| self.answers.remembered(key, replica, unmatched));
        let uncached = unmatched - self.answers.expected(remembered);
        let ahead = self.replicas.pending_prefill_tokens(slot, self.now);
        let Some(sent) = self.replicas.dispatched(slot, uncached, self.now) else {
            return;
        };
        let followed = request
            .session
            .and_then(|session| self.sessions.record(session, replica));
        let outstanding = self.replicas.get(slot).map_or(1, |r| r.outstanding);
        let recorded = self.index.record(blocks, slot, &matched);
        self.share(Target::Replica(replica), blocks, matched.depth);
        self.policy.on_dispatch(slot);
        let matched_bytes = request.fingerprint.bytes_at(matched.depth);
        let share = request.fingerprint.share_at(matched.depth);
        *self.counters.decisions.entry(settled.reason).or_default() += 1;
        self.effects.push_back(Effect::Dispatch {
            id: request.id,
            decision: Decision {
                replica,
                fallbacks,
                reason: settled.reason,
                matched_bytes,
                matched_tokens: share_of(request.prompt_tokens, share),
                queued_for: self.now.since(arrived),
            },
        });
        self.in_flight.insert(
            request.id,
            InFlightRequest {
                replica,
                sent,
                at: self.now,
                fingerprint: request.fingerprint,
                session: request.session,
                matched_bytes,
                recorded,
                ahead_tokens: ahead,
                outstanding,
                behind_tokens: remembered,
                uncached_tokens: uncached,
                followed,
            },
        );
    }

    /// PeerHandle to try when the chosen one fails: others that are available, best first, then trusted ones that are
    /// busy, because a replica that queues is better than an error. None that fails itself, and no trials.
    fn fallbacks(
        &self,
        request: &Request,
        pinned: Option<&[ReplicaIndex]>,
        chosen: ReplicaIndex,
        matched: Option<&PrefixMatch>,
    ) -> SmallVec<[crate::ReplicaId; 3]> {
        let wanted = self.config.fallbacks_max.saturating_add(1);
        let allowed = self.allowed(pinned, self.replicas.available());
        let candidates = allowed.as_ref().unwrap_or(self.replicas.available());
        let view = self.view(candidates);
        let mut named: SmallVec<[ReplicaIndex; 4]> = SmallVec::new();
        named.push(chosen);
        while named.len() < wanted.min(candidates.len()) {
            let Some(next) = self.policy.select_fallback(request, matched, &view, &named) else {
                break;
            };
            named.push(next);
        }
        let trusted = self.replicas.trusted();
        named.retain(|slot| *slot == chosen || trusted.contains(*slot));
        if named.len() < wanted {
            let allowed = self.allowed(pinned, trusted);
            let trusted = allowed.as_ref().unwrap_or(trusted);
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
            .filter_map(|slot| self.replicas.id_of(*slot))
            .collect()
    }
}

/// A share of a number of tokens.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a u32 that is between 0 and 1 is a u32"
)]
pub(super) fn share_of(tokens: u32, share: f64) -> u32 {
    (f64::from(tokens) * share.clamp(0.0, 1.0)) as u32
}
