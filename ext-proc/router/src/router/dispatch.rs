//! A request goes to its replica: what is remembered of it, and whom to try when that one fails.

use smallvec::SmallVec;

use super::admit::Settled;
use super::{Flight, Router};
use crate::index::{Behind, Match};
use crate::policy::uncached_tokens;
use crate::queue::Waiting;
use crate::slots::Slot;
use crate::{Decision, Effect, Request, Target};

impl Router {
    pub(super) fn dispatch(&mut self, waiting: Waiting, settled: Settled) {
        let Waiting {
            request,
            arrived,
            pinned,
            ..
        } = waiting;
        let slot = settled.slot;
        // Both lie far away, and the one need not wait for the other.
        self.index.read_target(slot);
        self.fleet.read(slot);
        let Some(replica) = self.fleet.id_of(slot) else {
            return;
        };
        let fallbacks = self.fallbacks(&request, pinned.as_deref(), slot, settled.found.as_ref());
        let blocks = request.fingerprint.blocks();
        let found = settled
            .found
            .unwrap_or_else(|| self.index.deepest_of(blocks, slot));
        let unmatched = uncached_tokens(&request, found.depth);
        let remembered = Behind::matched(&request, found.depth).map_or(0.0, |behind| {
            self.answers.remembered(behind, replica, unmatched)
        });
        let uncached = unmatched - self.answers.expected(remembered);
        let ahead = self.fleet.pending_prefill_tokens(slot, self.now);
        let Some(sent) = self.fleet.dispatched(slot, uncached, self.now) else {
            return;
        };
        let followed = request
            .session
            .and_then(|session| self.sessions.went(session, replica));
        let outstanding = self.fleet.get(slot).map_or(1, |r| r.outstanding);
        let recorded = self.index.record(blocks, slot, &found);
        self.share(Target::Replica(replica), blocks, found.depth);
        self.policy.placed(slot);
        let matched_bytes = request.fingerprint.bytes_at(found.depth);
        let share = request.fingerprint.share_at(found.depth);
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
            Flight {
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

    /// Whom to try when the chosen one fails: others that are available, best first, then trusted ones that are
    /// busy, because a replica that queues is better than an error. None that fails itself, and no trials.
    fn fallbacks(
        &self,
        request: &Request,
        pinned: Option<&[Slot]>,
        chosen: Slot,
        found: Option<&Match>,
    ) -> SmallVec<[crate::ReplicaId; 3]> {
        let wanted = self.config.fallbacks_max.saturating_add(1);
        let allowed = self.allowed(pinned, self.fleet.available());
        let candidates = allowed.as_ref().unwrap_or(self.fleet.available());
        let view = self.view(candidates);
        let mut named: SmallVec<[Slot; 4]> = SmallVec::new();
        named.push(chosen);
        while named.len() < wanted.min(candidates.len()) {
            let Some(next) = self.policy.next_best(request, found, &view, &named) else {
                break;
            };
            named.push(next);
        }
        let trusted = self.fleet.trusted();
        named.retain(|slot| *slot == chosen || trusted.contains(*slot));
        if named.len() < wanted {
            let allowed = self.allowed(pinned, trusted);
            let trusted = allowed.as_ref().unwrap_or(trusted);
            let mut from = chosen;
            for _ in 0..trusted.len().min(2 * wanted) {
                from = Slot(from.0.wrapping_add(1));
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
            .filter_map(|slot| self.fleet.id_of(*slot))
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
