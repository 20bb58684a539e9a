//! Replicas that hang: they accept requests, and nothing comes back.
//!
//! A broken replica fails, and the ends of its requests open its circuit breaker. The requests of a hung replica do not end. With
//! each probe, the router therefore measures how long the replica has been silent (`replica/vital_signs.rs`), and checks its
//! requests after a timeout. A dispatch writes nothing for these checks.
//!
//! The circuit breaker opens on less evidence than requests are abandoned on: a trial closes the breaker again, but an abandoned
//! request is lost to its client. `docs/decisions/0114-hung-replicas.md` has the reasons.

use core::time::Duration;

use super::Router;
use crate::replica::{HANG_TIMEOUT_FACTOR, Silence};
use crate::replica_index::ReplicaIndex;
use crate::{Effect, ReplicaId, RequestId, Time};

/// Shortest silence between two checks of a replica's requests.
const CHECK_PAUSE_MIN: Duration = Duration::from_millis(100);

/// Requests of a silent replica.
#[derive(Debug, Default)]
struct SilentRequests {
    /// Dispatch of the oldest request that the circuit breaker counts and whose response has not begun.
    oldest_unbegun: Option<Time>,
    /// The longest prompt of such requests, in tokens to compute.
    tokens_max: f64,
    /// Whether a response is written, or may be.
    is_writing: bool,
    /// Requests whose responses have not begun, without the abandoned ones.
    unbegun: Vec<RequestId>,
}

impl Router {
    /// Registers a probe that a replica answered without metrics.
    pub(super) fn answered_without_metrics(&mut self, id: ReplicaId, sent: Time) {
        self.pool.on_probe(id, None, sent);
        self.observe_silence(id);
    }

    /// Observes the silence of a replica, after a probe of it.
    pub(super) fn observe_silence(&mut self, id: ReplicaId) {
        let now = self.pool.now;
        if let Some(replica) = self.pool.replicas.slot_of(id)
            && let Some(silence) = self.pool.replicas.observe_silence(replica, now)
        {
            self.judge_silence(id, replica, &silence);
        }
    }

    #[cold]
    fn judge_silence(&mut self, id: ReplicaId, replica: ReplicaIndex, silence: &Silence) {
        let now = self.pool.now;
        let requests = self.silent_requests(id, replica);
        let is_unsure = requests.is_writing && !silence.is_certain;
        let replicas = &mut self.pool.replicas;
        let prompt_s = replicas.prefill_s(replica, requests.tokens_max);
        let prompt = Duration::try_from_secs_f64(prompt_s).unwrap_or_default();
        let timeout = replicas
            .hang_timeout(replica, is_unsure)
            .max(prompt.saturating_mul(HANG_TIMEOUT_FACTOR.get()));
        // Frozen counters show that answers stall. Without them, only a request without a response shows a hang.
        let heard_for = match requests.oldest_unbegun {
            _ if silence.are_counters_frozen => silence.lasts,
            Some(oldest) => silence.lasts.min(now.since(oldest)),
            None => Duration::ZERO,
        };
        let pause = if heard_for < timeout {
            timeout.saturating_sub(heard_for)
        } else if replicas.are_others_alive(replica, timeout / 2, now) {
            replicas.on_hang(replica, now);
            self.counters.hung_replicas += 1;
            return self.abandon(id, requests.unbegun, silence.is_certain);
        } else {
            CHECK_PAUSE_MIN
        };
        if let Some(replica) = replicas.get_mut(replica) {
            replica.signs.check_after(pause.max(CHECK_PAUSE_MIN));
        }
    }

    fn silent_requests(&self, id: ReplicaId, replica: ReplicaIndex) -> SilentRequests {
        let mut found = SilentRequests::default();
        let in_flight = self.pool.in_flight.iter();
        for (number, request) in in_flight.filter(|(_, request)| request.replica == id) {
            // Another replica may be at fault for a prompt that is computed there.
            if request.has_begun || !request.tells_start || request.prefill.is_some() {
                found.is_writing = true;
                continue;
            }
            if request.is_abandoned {
                continue;
            }
            found.unbegun.push(*number);
            let judged = self.pool.replicas.get(replica);
            if judged.is_some_and(|judged| judged.breaker.is_of_epoch(request.permit)) {
                let oldest = found.oldest_unbegun.unwrap_or(request.dispatched_at);
                found.oldest_unbegun = Some(oldest.min(request.dispatched_at));
                found.tokens_max = found.tokens_max.max(request.uncached_tokens);
            }
        }
        found
    }

    /// Reports a hung replica, and the requests that get no response there.
    fn abandon(&mut self, replica: ReplicaId, unbegun: Vec<RequestId>, is_certain: bool) {
        let requests = if is_certain { unbegun } else { Vec::new() };
        for id in &requests {
            if let Some(request) = self.pool.in_flight.get_mut(id) {
                request.is_abandoned = true;
            }
        }
        self.counters.abandoned += requests.len() as u64;
        self.effects.push_back(Effect::Hung {
            replica,
            abandoned: requests.into(),
        });
    }
}
