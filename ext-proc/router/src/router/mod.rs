//! The router of one pool: events in, effects out.
//!
//! [`PoolState`] holds what decisions read: replicas, caches, queue and peers. Decisions are functions that borrow it: `decide`, `regions`
//! between regions, `hold` for batch work. `arrive` and `serve` apply them, `dispatch` sends requests away, and `finish` learns from the end of
//! each. The [`Router`] owns the parts, and turns what happened into effects.

mod arrive;
mod corrections;
mod decide;
mod dispatch;
mod entitled;
mod explain;
mod finish;
mod hang;
mod hold;
mod learning;
mod members;
mod outbox;
mod plausibility;
mod prefill;
mod queued;
mod regions;
mod routing;
mod serve;
mod service;
mod status;
mod verdict;

use self::arrive::next_rejection;
use self::hold::next_at_gate;
use self::members::UnpinQueue;
use self::outbox::Outbox;
use self::plausibility::ResponseUsage;
use self::service::Service;
use crate::policy::{Policy, PolicyEvent};
use crate::pool_state::PoolState;
use crate::{Effect, Event, Placement, PolicyFactory, RouterConfig, Time};

/// Routes the requests of one pool.
#[derive(Debug)]
pub struct Router {
    pool: PoolState,
    policy: Box<dyn Policy>,
    /// The factory of the policy.
    factory: PolicyFactory,
    seed: u64,
    service: Service,
    unpinning: UnpinQueue,
    outbox: Outbox,
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
            unpinning: UnpinQueue::default(),
            outbox: Outbox::default(),
        };
        let rules = router.policy.rules();
        router.pool.set_line_rules(rules.past_slo_last);
        router
    }

    /// Handles an event. A time before the last one counts as the last one. Events about unknown ids are ignored.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.advance(now);
        if self
            .service
            .next_due(&self.pool)
            .is_some_and(|due| due <= self.pool.now)
        {
            // A request that arrives comes after the requests whose review is due.
            self.serve_queue();
        }
        self.apply_event(event);
        self.serve_queue();
    }

    fn apply_event(&mut self, event: Event) {
        let (now, pool) = (self.pool.now, &mut self.pool);
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
            Event::Stored(id, served_by, response) => pool.on_stored(id, served_by, response),
            Event::Aborted(id) => self.on_abort(id),
            Event::Probed {
                replica,
                load,
                sent,
            } => self.on_probe(replica, Some(load), sent),
            Event::AnsweredWithoutMetrics { replica, sent } => self.on_probe(replica, None, sent),
            Event::ProbeFailed(replica) => self.probe_failed(replica),
            Event::AdaptersListed { replica, adapters } => pool.list_adapters(replica, adapters),
            Event::AdaptersReported {
                replica,
                report,
                sent,
            } => pool.report_adapters(replica, &report, sent),
            Event::CountersReported {
                replica,
                counters,
                sent,
            } => self.report_counters(replica, &counters, sent),
            Event::Added {
                replica,
                name,
                role,
            } => self.add(replica, name, role),
            Event::RoleChanged(id, role) => self.assign(id, role.has_requests(), |r| r.role = role),
            Event::Draining(id) => self.assign(id, false, |r| r.draining = true),
            Event::Resumed(id) => self.assign(id, true, |r| r.draining = false),
            Event::CacheEmptied(replica) => pool.on_cache_emptied(replica),
            Event::Removed(replica) => self.remove(replica),
            Event::PeerAdded { peer, name } => pool.add_peer(peer, name),
            Event::PeerRemoved(peer) => pool.remove_peer(peer),
            Event::PeerReported {
                peer,
                report,
                as_of,
                round_trip,
            } => pool.peers.on_report(peer, report, as_of, round_trip, now),
            Event::PeerLost(peer) => pool.peers.on_loss(peer, now),
            Event::Shared(placement) => self.shared(&placement),
            Event::Shutdown => self.shut_down(),
        }
    }

    /// The next effect that the driver must carry out, oldest first; called until it returns `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.outbox.effects.pop_front()
    }

    /// Takes the oldest placement that the driver has not sent to the siblings. There is none unless [`crate::RegionRules::share`] is set.
    pub fn poll_placement(&mut self) -> Option<Placement> {
        let placement = self.outbox.placements.pop_front()?;
        self.outbox.counters.placements_sent += 1;
        Some(placement)
    }

    /// The time of the next call of [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        let pool = &self.pool;
        let is_pending = self.unpinning.first().is_some()
            || self.service.has_more_to_forward
            || pool.caches.is_pending()
            || pool.peers.index.has_excess();
        let times = [
            next_rejection(pool).map(|(time, _)| time),
            pool.replicas.next_expiry(),
            pool.peers.next_change(),
            next_at_gate(pool),
            self.service.next_due(pool),
            is_pending.then_some(pool.now),
        ];
        times.into_iter().flatten().min()
    }

    /// Handles the time that [`Self::poll_timeout`] named. An early call does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
        self.serve_queue();
    }

    /// Lets time pass, in which probes become stale and queued requests expire.
    fn advance(&mut self, now: Time) {
        self.pool.advance(now);
        let (size, now) = (self.pool.replicas.size(), self.pool.now);
        self.service.past_slo.advance(size, now);
        if let Some(replica) = self.unpinning.first() {
            self.unpin(replica);
        }
        self.reject_expired();
        let pool = &mut self.pool;
        if let Some(rules) = pool.config.tiers.map(|tiers| tiers.batch)
            && pool.gate.next_signal(&rules) <= now
        {
            // An interval without the end of a request is a signal, too.
            pool.gate.signal(now);
        }
    }

    /// Replaces the configuration; replicas, queue and index stay. A policy of another name decides from now on.
    pub fn reconfigure(&mut self, now: Time, config: RouterConfig) {
        let is_new = config.policy != self.factory;
        self.factory = config.policy.clone();
        let pool = &mut self.pool;
        pool.config = config.with_policy(());
        let (slots, load) = (pool.config.adapter_slots, pool.config.adapter_load);
        pool.adapters.configure(slots, load);
        pool.set_now(now);
        if is_new {
            // The new policy hears of no request that waits: each one counts as an arrival when it is next asked, so a reload does no
            // work for a long queue.
            self.policy = self.factory.build(self.seed);
            pool.queue.forget_preferences();
            // A draining replica may resume.
            for index in pool.replicas.all() {
                if let Some(replica) = pool.replicas.get(index) {
                    let event = PolicyEvent::ReplicaAdded(index, &replica.name);
                    self.policy.on_event(event);
                }
            }
        }
        let rules = self.policy.rules();
        self.pool.set_line_rules(rules.past_slo_last);
        let pool = &mut self.pool;
        pool.tenants.set_weights(pool.config.tenants.as_ref());
        if pool.config.tiers.is_none() {
            // No gate holds requests any more.
            self.promote_due(usize::MAX);
        }
        self.advance(now);
        let pool = &mut self.pool;
        pool.divide_index_memory();
        if !pool.config.region.share {
            self.outbox.placements.clear();
        }
        let (push, stale_after) = (pool.config.push, pool.config.probe_stale_after);
        pool.replicas.set_rules(push, stale_after, pool.now);
        self.serve_queue();
    }

    /// Applies the order of service of the configuration and the policy.
    fn shut_down(&mut self) {
        self.pool.is_shutting_down = true;
        self.reject_expired();
    }
}

#[cfg(test)]
mod tests;
