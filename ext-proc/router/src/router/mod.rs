//! The router of one pool: events in, effects out.
//!
//! [`PoolState`] holds what decisions read: replicas, index, queue and peers. `decide` reads it
//! without a change, `arrive` and `serve` apply decisions, `dispatch` and `forward` send requests away, and `feedback`
//! learns from the end of each.

mod adapters;
mod arrive;
mod claims;
mod corrections;
mod counters;
mod decide;
mod dispatch;
mod entitled;
mod estimates;
mod explain;
mod feedback;
mod forward;
mod forward_queued;
mod gate;
mod hang;
mod learning;
mod members;
mod plausibility;
mod prefill;
mod quarantine;
mod reconfigure;
mod region_choice;
mod reject;
mod restart;
mod serve;
mod stored;
mod tiers;
mod token_length;

use std::collections::VecDeque;

use self::claims::Claims;
use self::entitled::PastSloCredit;
use self::feedback::ResponseUsage;
use self::gate::BatchGate;
use self::reject::UnpinQueue;
use self::restart::ForgetQueue;
use self::serve::Service;
use self::tiers::TierCounts;
use self::token_length::TokenLength;
use crate::policy::Policy;
use crate::pool_state::PoolState;
use crate::quarantine::Quarantine;
use crate::{
    Counters, Effect, Event, Placement, PolicyFactory, ReplicaId, ReplicaStatus, RouterConfig,
    Stats, TenantStatus, Time,
};

/// Routes the requests of one pool.
#[derive(Debug)]
pub struct Router {
    pool: PoolState,
    policy: Box<dyn Policy>,
    /// The factory of the policy.
    factory: PolicyFactory,
    seed: u64,
    service: Service,
    /// Whether the last event forwarded as many requests as one event may.
    has_more_to_forward: bool,
    past_slo_credit: PastSloCredit,
    /// Placements that the driver has not taken yet, oldest first.
    placements: VecDeque<Placement>,
    effects: VecDeque<Effect>,
    counters: Counters,
    token_length: TokenLength,
    forgetting: ForgetQueue,
    claims: Claims,
    unpinning: UnpinQueue,
    quarantine: Quarantine,
    gate: BatchGate,
    tier_counts: TierCounts,
}

impl Router {
    /// A router without replicas. The seed feeds random policies, and decides where prefixes lie in memory, so that crafted
    /// prompts cannot be made to collide.
    #[must_use]
    pub fn new(config: RouterConfig, seed: u64) -> Self {
        let mut router = Self {
            policy: config.policy.build(seed),
            factory: config.policy.clone(),
            pool: PoolState::new(config.with_policy(()), seed),
            seed,
            service: Service::default(),
            has_more_to_forward: false,
            past_slo_credit: PastSloCredit::default(),
            placements: VecDeque::new(),
            effects: VecDeque::new(),
            counters: Counters::default(),
            token_length: TokenLength::default(),
            forgetting: ForgetQueue::default(),
            claims: Claims::default(),
            unpinning: UnpinQueue::default(),
            quarantine: Quarantine::default(),
            gate: BatchGate::default(),
            tier_counts: TierCounts::default(),
        };
        router.set_line_rules();
        router
    }

    /// Handles an event. A time before the last one counts as the last one. Events about unknown ids are ignored.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.advance(now);
        if self.next_service().is_some_and(|due| due <= self.pool.now) {
            // A request that arrives comes after the requests whose review is due.
            self.serve_queue();
        }
        self.apply_event(event);
        self.serve_queue();
    }

    fn apply_event(&mut self, event: Event) {
        match event {
            Event::Arrived(request) => self.arrived(request),
            Event::Finished {
                id,
                served_by,
                end,
                prompt_tokens,
                cached_tokens,
                ttft_us,
                completion_tokens,
            } => {
                let tokens = [prompt_tokens, cached_tokens, completion_tokens];
                self.on_finish(id, served_by, end, &ResponseUsage::new(ttft_us, tokens));
            }
            Event::Began(id) => self.on_begin(id),
            Event::Stored(id, served_by, response) => self.on_stored(id, served_by, response),
            Event::Aborted(id) => self.on_abort(id),
            Event::Probed {
                replica,
                load,
                sent,
            } => self.on_probe(replica, load, sent),
            Event::AdaptersListed { replica, adapters } => self.list_adapters(replica, adapters),
            Event::AdaptersReported {
                replica,
                report,
                sent,
            } => self.report_adapters(replica, &report, sent),
            Event::CountersReported {
                replica,
                counters,
                sent,
            } => self.report_counters(replica, &counters, sent),
            Event::AnsweredWithoutMetrics { replica, sent } => {
                self.answered_without_metrics(replica, sent);
            }
            Event::ProbeFailed(replica) => self.probe_failed(replica),
            Event::Added {
                replica,
                name,
                role,
            } => self.add(replica, name, role),
            Event::RoleChanged(replica, role) => self.change_role(replica, role),
            Event::Draining(replica) => self.drain(replica),
            Event::Resumed(replica) => self.resume(replica),
            Event::CacheEmptied(replica) => self.on_cache_emptied(replica),
            Event::Removed(replica) => self.remove(replica),
            Event::PeerAdded { peer, name } => self.add_peer(peer, name),
            Event::PeerRemoved(peer) => self.remove_peer(peer),
            Event::PeerReported {
                peer,
                report,
                as_of,
                round_trip,
            } => self.peer_reported(peer, report, as_of, round_trip),
            Event::PeerLost(peer) => self.pool.peers.on_loss(peer, self.pool.now),
            Event::Shared(placement) => self.shared(&placement),
            Event::Shutdown => self.shutdown(),
        }
    }

    /// The next effect that the driver must carry out, oldest first; called until it returns `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The time of the next call of [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        let changes = [
            self.pool.replicas.next_expiry(),
            self.pool.peers.next_change(),
        ];
        let changes = changes.into_iter().flatten();
        let service = self.next_service();
        let is_pending = self.forgetting.is_pending()
            || self.unpinning.is_pending()
            || self.has_more_to_forward
            || self.pool.index.has_excess()
            || self.pool.peers.index.has_excess();
        let rest = is_pending.then_some(self.pool.now);
        let due = self.next_rejection().into_iter().chain(changes);
        let due = due.chain(self.next_at_gate());
        due.chain(service).chain(rest).min()
    }

    /// Handles the time that [`Self::poll_timeout`] named. An early call does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
        self.serve_queue();
    }

    /// Statistics as of `now`.
    pub fn stats(&self, now: Time) -> Stats {
        let oldest = self.pool.queue.oldest();
        Stats {
            queue_length: self.pool.queue.len(),
            oldest_wait: oldest
                .map(|(_, queued)| now.since(queued.arrived))
                .unwrap_or_default(),
            in_flight: self.pool.in_flight.len(),
            available_replicas: self.pool.replicas.available().len(),
            available_prefillers: self.pool.replicas.prefillers().len(),
            forwarded_in_flight: self.pool.forwarded.len(),
            peer_index: self.pool.peers.index.stats(),
            index: self.pool.index.stats(),
            counters: self.counters.clone(),
        }
    }

    /// Figures of the tenants, in no order: those with an entry of their own, then all others together.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantStatus> {
        self.pool.tenants.all()
    }

    /// Every replica, in order of identity.
    pub fn replicas(&self, now: Time) -> impl Iterator<Item = ReplicaStatus> + '_ {
        self.pool.replicas.all().filter_map(move |index| {
            let status = self.pool.replicas.status(index, now)?;
            Some(ReplicaStatus {
                prefix_bytes: self.pool.index.held_bytes(index),
                adapters: self.pool.adapters.status(index),
                ..status
            })
        })
    }

    /// Whether a replica has no request, as far as this router and its siblings know.
    #[must_use]
    pub fn is_idle(&self, replica: ReplicaId) -> bool {
        let slot = self.pool.replicas.slot_of(replica);
        let replica = slot.and_then(|slot| self.pool.replicas.get(slot));
        replica.is_some_and(|replica| replica.requests() == 0)
    }

    /// Lets time pass, in which probes become stale and queued requests expire.
    fn advance(&mut self, now: Time) {
        self.pool.now = self.pool.now.max(now);
        self.pool.queue.set_now(self.pool.now);
        let replicas = self.pool.replicas.size();
        self.past_slo_credit.advance(replicas, self.pool.now);
        self.pool.replicas.expire(self.pool.now);
        self.pool.peers.expire(self.pool.now);
        self.forget_more();
        self.pool.evict_excess();
        self.unpin_more();
        self.reject_expired();
        self.advance_gate();
    }

    fn shutdown(&mut self) {
        self.pool.is_shutting_down = true;
        self.reject_expired();
    }
}

#[cfg(test)]
mod tests;
