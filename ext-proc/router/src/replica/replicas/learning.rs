//! Learning: finished requests and counters teach the models of a replica and of its pool.

use isotherm_fingerprint::Api;

use super::{CostInputs, Replicas};
use crate::constant::constants;
use crate::replica::latency::{LatencyModel, RequestMeasurement, SpeedRatios};
use crate::replica::{CounterSums, ServedPrompt};
use crate::replica_index::ReplicaIndex;
use crate::{EngineCounters, Signals, Source, Time};

constants! {
    /// Weight of an answer in the mean answer length.
    LEARNING_RATE: f64 = 0.03;
}

impl Replicas {
    /// Learns the speed of a replica, and of the pool, from a finished request.
    pub(crate) fn learn(
        &mut self,
        slot: Option<ReplicaIndex>,
        measured: RequestMeasurement,
        now: Time,
    ) {
        let (prompt, output) = (measured.prompt, measured.output);
        if output.is_some_and(|output| output.source == Source::Usage) {
            self.forget_presumed_decode();
        }
        let signals = &mut self.signals;
        let of_pool = RequestMeasurement {
            prompt: prompt.filter(|prompt| signals.prompt_speed.teach(prompt.source, now)),
            output: output.filter(|output| signals.decode_speed.teach(output.source, now)),
        };
        self.model.speed.learn(of_pool, now);
        if let Some(slot) = slot
            && let Some(Some(replica)) = self.replicas.get_mut(slot.index())
        {
            if let Some(prompt) = prompt
                && replica.work.sources.teach(prompt.source, now)
            {
                replica.work.speed.learn(prompt, &self.model.speed, now);
            }
            replica.age(self.model.speed.model.prefill, now);
            self.update_cost_inputs(slot);
        }
        self.lower_latency_bound(slot);
        self.age_next(now);
    }

    /// Forgets decode speeds from answers of presumed lengths, before an engine reports a speed for the first time.
    fn forget_presumed_decode(&mut self) {
        if !self.signals.decode_speed.is_told() {
            self.model.speed.forget_decode();
        }
    }

    /// Learns the length of an answer.
    pub(crate) fn learn_answer_length(&mut self, tokens: f64, now: Time) {
        self.signals.answer_length.teach(Source::Usage, now);
        self.model.output_tokens += LEARNING_RATE.get() * (tokens - self.model.output_tokens);
    }

    /// Registers a prompt that a replica answered, to be compared with the engine's counters.
    pub(crate) fn served(&mut self, slot: Option<ReplicaIndex>, prompt: &ServedPrompt, now: Time) {
        let replica = slot.and_then(|slot| self.replicas.get_mut(slot.index()));
        let Some(Some(replica)) = replica else {
            return;
        };
        if let Some(counted) = &mut replica.counts.sums {
            counted.served(prompt, now);
            self.model.counted.served(prompt, now);
        }
    }

    /// Learns from what the counters of a replica's engine have grown by.
    pub(crate) fn learn_counters(&mut self, slot: ReplicaIndex, grown: &EngineCounters, now: Time) {
        let Some(Some(replica)) = self.replicas.get_mut(slot.index()) else {
            return;
        };
        replica.signs.on_counters(grown, now);
        let counted = replica.counts.sums.get_or_insert_default();
        counted.on_counters(grown, now);
        let hit_discount = 1.0 - counted.hit_credit(now);
        self.model.counted.on_counters(grown, now);
        let speed = self.model.counted.speed(&LatencyModel::default());
        if speed.decode.is_some() {
            self.forget_presumed_decode();
        }
        let signals = &mut self.signals;
        self.model.speed.learn_counted(SpeedRatios {
            prefill: speed
                .prefill
                .filter(|_| signals.prompt_speed.teach(Source::Counters, now)),
            decode: speed
                .decode
                .filter(|_| signals.decode_speed.teach(Source::Counters, now)),
        });
        if self.model.counted.has_hits() {
            signals.cache_hits.teach(Source::Counters, now);
        }
        if let Some(tokens) = self.model.counted.answer_tokens()
            && signals.answer_length.teach(Source::Counters, now)
        {
            self.model.output_tokens = tokens;
        }
        if let Some(Some(replica)) = self.replicas.get_mut(slot.index()) {
            replica.counts.hit_discount = hit_discount;
            replica.age(self.model.speed.model.prefill, now);
        }
        self.update_cost_inputs(slot);
        self.lower_latency_bound(Some(slot));
    }

    /// Whether the counters at a replica's address are those of several processes.
    pub(crate) fn has_several_processes(&self, slot: ReplicaIndex, now: Time) -> bool {
        self.get(slot)
            .is_some_and(|replica| replica.counts.history.has_several(now))
    }

    /// Forgets what the counters of a replica taught of it, since they are those of several processes.
    pub(crate) fn forget_counters(&mut self, slot: ReplicaIndex) {
        if let Some(replica) = self.get_mut(slot) {
            replica.counts.sums = None;
            replica.counts.hit_discount = 0.0;
            self.update_cost_inputs(slot);
        }
    }

    /// Means of all engines' counters.
    pub(crate) const fn counter_sums(&self) -> &CounterSums {
        &self.model.counted
    }

    /// Sources of the learned quantities.
    pub(crate) fn signals(&self) -> Signals {
        self.signals.signals()
    }

    /// Whether an answer of a replica without a number of cached tokens had none: a replica that names them leaves zeros out. vLLM
    /// without flags names them for one API and not for the others.
    pub(crate) fn names_cached_tokens(
        &mut self,
        slot: Option<ReplicaIndex>,
        api: Option<Api>,
        cached: Option<u32>,
    ) -> bool {
        let of_api = 1 << api.map_or(0, |api| 1 + api as u8);
        let replica = slot.and_then(|slot| self.get_mut(slot));
        replica.is_some_and(|replica| {
            if cached.is_some() {
                replica.counts.names_cached_tokens |= of_api;
            }
            replica.counts.names_cached_tokens & of_api != 0
        })
    }

    /// Ages the model of the next replica in turn, since replicas without probes have no other event to age by.
    fn age_next(&mut self, now: Time) {
        let slots = self.replicas.len().max(1);
        self.model.aged = (self.model.aged + 1) % slots;
        let pool = self.model.speed.model.prefill;
        if let Some(Some(replica)) = self.replicas.get_mut(self.model.aged)
            && let Ok(slot) = u16::try_from(self.model.aged).map(ReplicaIndex)
        {
            replica.age(pool, now);
            if replica.others.is_decaying() {
                self.change_slot(slot, now, |replica| {
                    replica.others.refresh(&mut replica.ledger, now);
                });
            } else {
                self.update_cost_inputs(slot);
            }
        }
    }

    /// Copies what decisions read of a replica, and keeps the lower bound of all prefill lines.
    pub(super) fn update_cost_inputs(&mut self, slot: ReplicaIndex) {
        let Some(Some(replica)) = self.replicas.get(slot.index()) else {
            return;
        };
        if let Some(place) = self.cost_inputs.get_mut(slot.index()) {
            *place = CostInputs::of(replica);
            self.model.bound.lower(place);
        }
    }
}
