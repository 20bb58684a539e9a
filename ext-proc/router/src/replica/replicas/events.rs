//! Events of replicas: added, removed, probed, sent requests, finished requests.

use core::hint::black_box;
use core::time::Duration;

use super::{CostInputs, Rank, Replicas};
use crate::in_flight::InFlightRequest;
use crate::replica::latency::ReplicaLatency;
use crate::replica::{
    BreakerPermit, ComputedShare, CounterEvent, Evidence, FalseHits, PushedPrompt, Replica, RowId,
};
use crate::replica_index::ReplicaIndex;
use crate::{EngineCounters, Load, ReplicaId, Time};

impl Replicas {
    pub(crate) fn add(&mut self, slot: ReplicaIndex, mut replica: Replica, now: Time) {
        replica.work.speed = ReplicaLatency::new(self.model.speed.model.prefill);
        if self.replicas.len() <= slot.index() {
            let len = slot.index() + 1;
            self.replicas.resize_with(len, || None);
            self.cost_inputs.resize(len, CostInputs::default());
            self.ranks.resize(len, Rank::LAST);
        }
        self.slots.insert(replica.id, slot);
        if let Some(place) = self.replicas.get_mut(slot.index()) {
            *place = Some(replica);
        }
        self.list(slot, now);
        self.update_panic_mode(now);
    }

    /// Removes a replica.
    pub(crate) fn remove(&mut self, id: ReplicaId, now: Time) {
        let Some(slot) = self.slots.remove(&id) else {
            return;
        };
        self.unlist(slot);
        self.sets.staying.set(slot, false);
        self.sets.healthy.set(slot, false);
        self.sets.proven.set(slot, false);
        self.sets.prefillers.set(slot, false);
        let removed = self.replicas.get_mut(slot.index()).and_then(Option::take);
        if let Some(timer) = removed.and_then(|replica| replica.listed.timer) {
            self.expiries.remove(&(timer, slot));
        }
        if let Some(place) = self.ranks.get_mut(slot.index()) {
            *place = Rank::LAST;
        }
        if let Some(place) = self.cost_inputs.get_mut(slot.index()) {
            *place = CostInputs::default();
        }
        self.update_panic_mode(now);
    }

    /// Applies a probe: the load that it showed, or none if the replica answered it without metrics. Returns whether it is newer than
    /// the last one. A request occupies a replica for about `service`.
    pub(crate) fn on_probe(
        &mut self,
        id: ReplicaId,
        load: Option<Load>,
        sent: Time,
        service: Duration,
        now: Time,
    ) -> bool {
        let mut is_newer = false;
        let pool = self.model.speed.model.prefill;
        self.change(id, now, |replica| {
            is_newer = replica.on_probe(load, sent, service, pool, now);
        });
        is_newer
    }

    /// Takes in the counters of a replica's engine; returns what they tell.
    pub(crate) fn on_counters(
        &mut self,
        slot: ReplicaIndex,
        counters: &EngineCounters,
        sent: Time,
    ) -> Option<CounterEvent> {
        self.get_mut(slot)?.counts.history.reported(counters, sent)
    }

    /// Registers that the process of a replica is a new one: it has nothing queued, and its speed is not known yet.
    pub(crate) fn on_restart(&mut self, id: ReplicaId, now: Time) {
        let pool = self.model.speed.model.prefill;
        self.change(id, now, |replica| replica.on_restart(pool, now));
    }

    /// Prefetches what [`Self::on_dispatch`] reads of a replica.
    pub(crate) fn prefetch(&self, slot: ReplicaIndex) {
        if let Some(replica) = self.get(slot) {
            black_box((replica.ledger.last_sent(), replica.outstanding()));
            black_box((replica.draining, replica.probe.sent));
        }
    }

    /// Registers a dispatched request.
    pub(crate) fn on_dispatch(
        &mut self,
        slot: ReplicaIndex,
        prompt: PushedPrompt,
        now: Time,
    ) -> Option<(BreakerPermit, RowId)> {
        self.model
            .work
            .add(self.prefill_s(slot, prompt.tokens), now);
        self.claim(slot, prompt, now)
    }

    /// Registers a prompt on a replica. A prompt that a prefill replica computes for another one
    /// counts among the arrivals of the pool once, where its answer is written.
    #[inline]
    pub(crate) fn claim(
        &mut self,
        slot: ReplicaIndex,
        prompt: PushedPrompt,
        now: Time,
    ) -> Option<(BreakerPermit, RowId)> {
        self.turn += 1;
        let turn = self.turn;
        let pool = self.model.speed.model.prefill;
        let mut sent = None;
        self.change_slot(slot, now, |replica| {
            replica.age(pool, now);
            replica.turn = turn;
            sent = Some(replica.on_push(prompt, now));
        });
        sent
    }

    /// Registers a request that a sibling dispatched, with `tokens` prompt tokens to compute. A sibling that does not tell
    /// them counts as the mean of the pool.
    pub(crate) fn on_sibling_push(
        &mut self,
        slot: ReplicaIndex,
        tokens: Option<f64>,
        service: Duration,
        now: Time,
    ) {
        let pool = self.model.speed.model.prefill;
        let tokens = tokens.unwrap_or_else(|| self.work_s() / pool.each_s);
        let takes_s = self.prefill_s(slot, tokens);
        if self.has_requests(slot) {
            // A prompt that a prefill replica computes counts among the arrivals of the pool with its request.
            self.model.work.add(takes_s, now);
        }
        let prompt = PushedPrompt {
            tokens,
            memory_tokens: tokens + self.model.output_tokens,
            is_stream: false,
        };
        self.turn += 1;
        let turn = self.turn;
        self.change_slot(slot, now, |replica| {
            replica.age(pool, now);
            replica.turn = turn;
            replica.on_sibling_push(prompt, service, now);
        });
    }

    /// Registers that the response to a request begins.
    pub(crate) fn on_begin(&mut self, id: ReplicaId, row: RowId, permit: BreakerPermit, now: Time) {
        self.change(id, now, |replica| replica.on_begin(row, permit, now));
    }

    /// Registers the end of a request and its verdict. `computed` says what became of the prompt if the response had not
    /// begun, and `is_streamed` whether the response began with its first token, and told when that came.
    pub(crate) fn on_release(
        &mut self,
        flight: &InFlightRequest,
        evidence: Evidence,
        computed: ComputedShare,
        is_streamed: bool,
        now: Time,
    ) {
        let claim = &flight.claim;
        self.change(claim.replica, now, |replica| {
            let ended = replica.on_end(claim.row, computed, now);
            replica.breaker.on_end(claim.permit, evidence, now);
            if let Some(ended) = ended
                && evidence == Evidence::Success
            {
                replica.ends.add(false);
                if ended.prompt.is_stream {
                    replica.on_answer(is_streamed);
                }
                if ended.has_begun {
                    replica.signs.add_sign(now);
                } else {
                    replica.signs.responded(now.since(ended.sent_at), now);
                }
            }
        });
    }

    /// Registers that a replica refused a request. Returns whether one of its peers answers, or computes, what it refuses.
    pub(crate) fn on_refusal(&mut self, slot: ReplicaIndex) -> bool {
        let Some(replica) = self.get_mut(slot) else {
            return false;
        };
        replica.ends.add(true);
        let ends = replica.ends;
        self.all().filter(|peer| *peer != slot).any(|peer| {
            self.get(peer).is_some_and(|peer| {
                let is_known = !peer.ends.is_empty() || peer.outstanding() > 0;
                is_known && peer.ends.refuses_less_than(ends)
            })
        })
    }

    /// Registers the verdict of a request that Envoy retried on this replica.
    pub(crate) fn served_retry(&mut self, id: ReplicaId, evidence: Evidence, now: Time) {
        self.change(id, now, |replica| {
            replica.breaker.served_retry(evidence, now);
            if evidence == Evidence::Success {
                replica.signs.add_sign(now);
            }
        });
    }

    /// Registers a false prediction of this tick; returns the false ones in a row.
    pub(crate) fn count_false_hit(&mut self, slot: ReplicaIndex, tick: u64) -> FalseHits {
        let Some(replica) = self.get_mut(slot) else {
            return FalseHits::default();
        };
        let false_hits = &mut replica.counts.false_hits;
        if false_hits.in_a_row == 0 {
            false_hits.first = tick;
        }
        false_hits.first = tick.min(false_hits.first);
        false_hits.in_a_row = false_hits.in_a_row.saturating_add(1);
        *false_hits
    }
}
