//! The router: events in, effects out.
//!
//! A thin hand that joins the parts: the fleet knows who is available, the policy says who goes where, the queue
//! keeps those who must wait, the index remembers who was sent what.

mod admit;
mod dispatch;
mod explain;
mod feedback;
mod forward;
mod notify;
mod serve;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use core::time::Duration;
use isotherm_fingerprint::Fingerprint;

use crate::forwarding::{ForwardedTable, PeerTable, PlacementQueue};
use crate::index::{Answers, PredictionRecord, PrefixIndex, Sessions};
use crate::policy::Policy;
use crate::queue::Queue;
use crate::replica::{BreakerPermit, Replica, Replicas};
use crate::replica_index::ReplicaIndex;
use crate::{
    Counters, Effect, Event, IndexLimits, Load, RejectReason, ReplicaId, ReplicaSpec,
    ReplicaStatus, RequestId, RouterConfig, SessionKey, Stats, Time,
};

/// Soonest that another try can be worth while.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// One part in so many of the memory for indexes is for the one over peers: there are fewer of them, and only what
/// overflows goes there.
const PEER_INDEX_SHARE: usize = 4;
/// Latest that a client should be told to come back.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Routes the requests of one pool.
#[derive(Debug)]
pub struct Router {
    config: RouterConfig,
    seed: u64,
    now: Time,
    shutting_down: bool,
    replicas: Replicas,
    index: PrefixIndex,
    answers: Answers,
    sessions: Sessions,
    policy: Box<dyn Policy>,
    queue: Queue,
    peers: PeerTable,
    in_flight: BTreeMap<RequestId, InFlightRequest>,
    forwarded: ForwardedTable,
    placements: PlacementQueue,
    effects: VecDeque<Effect>,
    counters: Counters,
    /// Length of prompt that makes a token, in bytes; learned.
    bytes_per_token: f64,
    /// How long a replica is busy with a request, in seconds; learned, once one has ended.
    service_s: Option<f64>,
    /// When those were last asked who wait for one replica although others are free.
    reviewed: Time,
    /// Which replica they are offered next.
    review_from: ReplicaIndex,
    /// Whether none of those that wait took a free replica when it was offered last.
    offer_declined: bool,
}

/// A request that was dispatched.
#[derive(Debug)]
struct InFlightRequest {
    replica: ReplicaId,
    sent: BreakerPermit,
    at: Time,
    fingerprint: Arc<Fingerprint>,
    session: Option<SessionKey>,
    matched_bytes: u32,
    recorded: PredictionRecord,
    /// Prompt tokens that the replica had to compute first, by estimate.
    ahead_tokens: f64,
    /// Tokens that were remembered behind the match, as an answer.
    behind_tokens: f64,
    /// Tokens that were taken for uncached, the session left aside.
    uncached_tokens: f64,
    /// Whether it went where its session was last; if it has one that was somewhere.
    followed: Option<bool>,
    /// Requests that the replica had then, this one included.
    outstanding: u32,
}

impl Router {
    /// A router without replicas. The seed feeds the policies that draw lots: same seed, same decisions. It also
    /// decides where prefixes lie in memory, so that nobody outside can choose many that lie in one place.
    #[must_use]
    pub fn new(config: RouterConfig, seed: u64) -> Self {
        Self {
            seed,
            now: Time::ZERO,
            shutting_down: false,
            replicas: Replicas::new(config.push, config.probe_stale_after),
            index: PrefixIndex::new(config.index, seed),
            answers: Answers::new(seed),
            sessions: Sessions::new(seed),
            policy: config.policy.build(seed),
            queue: Queue::default(),
            peers: PeerTable::new(config.region, config.index, seed),
            in_flight: BTreeMap::new(),
            forwarded: ForwardedTable::default(),
            placements: PlacementQueue::default(),
            effects: VecDeque::new(),
            counters: Counters::default(),
            bytes_per_token: feedback::BYTES_PER_TOKEN,
            service_s: None,
            reviewed: Time::ZERO,
            review_from: ReplicaIndex(0),
            offer_declined: false,
            config,
        }
    }

    /// Something happened. Time must not go backwards; a time that does is read as the latest one seen.
    ///
    /// Events about requests and replicas that the router does not know (any more) are ignored: answers and
    /// cancellations cross each other on the way.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.advance(now);
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
                let measured = feedback::ResponseUsage {
                    ttft: ttft_us.map(Duration::from_micros),
                    prompt: prompt_tokens.zip(cached_tokens),
                    completion: completion_tokens,
                };
                self.finished(id, served_by, end, &measured);
            }
            Event::Aborted { id } => self.aborted(id),
            Event::Probed {
                replica,
                load,
                sent,
            } => self.probed(replica, load, sent),
            Event::ProbeFailed { replica } => self.replicas.probe_failed(replica, self.now),
            Event::Added { replica, spec } => self.added(replica, spec),
            Event::Draining { replica } => self.draining(replica),
            Event::Removed { replica } => self.removed(replica),
            Event::PeerAdded { peer, spec } => {
                self.peers.add(peer, spec, self.now);
                self.share_out_index();
            }
            Event::PeerRemoved { peer } => {
                self.peers.remove(peer, self.now);
                self.share_out_index();
            }
            Event::PeerReported {
                peer,
                report,
                as_of,
                round_trip,
            } => self
                .peers
                .on_report(peer, report, as_of, round_trip, self.now),
            Event::PeerLost { peer } => self.peers.on_lost(peer, self.now),
            Event::Shared(placement) => self.shared(&placement),
            Event::Shutdown => self.shutdown(),
        }
        self.pump();
    }

    /// What the driver must do next, oldest first; call until there is nothing.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let deadline = self
            .queue
            .oldest()
            .map(|(_, queued)| queued.arrived.after(self.config.queue.wait_max));
        let changes = [self.replicas.next_expiry(), self.peers.next_change()];
        let changes = changes.into_iter().flatten();
        let review = self.next_review();
        deadline.into_iter().chain(changes).chain(review).min()
    }

    /// Time has come to the point that [`Self::poll_timeout`] named. Calling it early does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
        self.pump();
    }

    /// Switches parts of the policy off, to see what they are good for. The service is built without this.
    #[cfg(feature = "research")]
    pub fn ablate(&mut self, ablation: crate::Ablation) {
        self.policy.ablate(ablation);
    }

    /// Replaces the configuration; replicas, queue and index stay.
    pub fn reconfigure(&mut self, now: Time, config: RouterConfig) {
        let is_new = config.policy != self.config.policy;
        self.config = config;
        self.queue.clear_past_slo();
        if is_new {
            self.policy = self.config.policy.build(self.seed);
            for slot in self.replicas.staying().iter() {
                if let Some(replica) = self.replicas.get(slot) {
                    self.policy.on_replica_added(slot, &replica.name);
                }
            }
        }
        self.advance(now);
        if is_new {
            self.tell_who_waits();
        }
        self.share_out_index();
        self.replicas
            .set_rules(self.config.push, self.config.probe_stale_after, self.now);
        self.pump();
    }

    /// The bound on memory is for both indexes: with peers, the one over peers has its share of it.
    fn share_out_index(&mut self) {
        let whole = self.config.index;
        let for_peers = if self.peers.is_empty() {
            0
        } else {
            whole.bytes_max / PEER_INDEX_SHARE
        };
        let of = |bytes_max| IndexLimits { bytes_max, ..whole };
        self.index.set_limits(of(whole.bytes_max - for_peers));
        self.peers
            .set_rules(self.config.region, of(for_peers), self.now);
        if !self.config.region.share {
            self.placements.clear();
        }
    }

    /// Figures as of `now`.
    #[must_use]
    pub fn stats(&self, now: Time) -> Stats {
        let oldest = self.queue.oldest();
        Stats {
            queue_length: self.queue.len(),
            oldest_wait: oldest
                .map(|(_, queued)| now.since(queued.arrived))
                .unwrap_or_default(),
            in_flight: self.in_flight.len(),
            available_replicas: self.replicas.available().len(),
            forwarded_in_flight: self.forwarded.len(),
            available_peers: self.peers.available().len(),
            peer_index: self.peers.index_stats(),
            index: self.index.stats(),
            counters: self.counters.clone(),
        }
    }

    /// Every replica, in order of identity.
    pub fn replicas(&self, now: Time) -> impl Iterator<Item = ReplicaStatus> + '_ {
        self.replicas.all().filter_map(move |slot| {
            let status = self.replicas.status(slot, now)?;
            Some(ReplicaStatus {
                prefix_bytes: self.index.held_bytes(slot),
                ..status
            })
        })
    }

    /// Lets time pass: probes grow old, and so do requests that wait.
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.replicas.expire(self.now);
        self.peers.expire(self.now);
        if self.policy.past_slo_last() {
            self.queue.mark_past_slo(self.now, self.config.ttft_slo);
        }
        let wait_max = self.config.queue.wait_max;
        if self.queue.expired(self.now, wait_max).is_none() {
            return;
        }
        let reason = if self.replicas.staying().is_empty() {
            RejectReason::NoReplica
        } else if self.replicas.any_healthy() {
            RejectReason::WaitedTooLong
        } else {
            RejectReason::NoHealthyReplica
        };
        while let Some(seq) = self.queue.expired(self.now, wait_max) {
            if let Some(queued) = self.dequeue(seq) {
                self.reject(queued.request.id, reason);
            }
        }
    }

    fn probed(&mut self, id: ReplicaId, load: Load, sent: Time) {
        let news = self.replicas.probed(id, load, sent, self.now);
        if news && let Some(tokens) = load.kv_capacity_tokens {
            self.budget(id, tokens);
        }
    }

    fn added(&mut self, id: ReplicaId, spec: ReplicaSpec) {
        if self.replicas.slot_of(id).is_some() {
            return;
        }
        let Some(slot) = self.index.join() else {
            self.counters.replicas_refused += 1;
            return;
        };
        self.policy.on_replica_added(slot, &spec.name);
        self.replicas
            .add(slot, Replica::new(id, spec.name), self.now);
    }

    fn draining(&mut self, id: ReplicaId) {
        if let Some(slot) = self.replicas.slot_of(id) {
            self.replicas.drain(id, self.now);
            self.forget_preferred(slot);
            self.reject_unroutable(slot);
        }
    }

    fn removed(&mut self, id: ReplicaId) {
        let Some(slot) = self.replicas.slot_of(id) else {
            return;
        };
        if let Some(replica) = self.replicas.get(slot) {
            self.policy.on_replica_removed(slot, &replica.name);
        }
        self.replicas.remove(id, self.now);
        self.index.leave(slot);
        self.forget_preferred(slot);
        self.reject_unroutable(slot);
    }

    /// Those that waited for this replica are offered the others again.
    fn forget_preferred(&mut self, slot: ReplicaIndex) {
        self.offer_declined |= self.queue.forget_preferred(slot);
    }

    /// Refuses those that could only have gone to this replica.
    fn reject_unroutable(&mut self, slot: ReplicaIndex) {
        if !self.queue.has_pinned() {
            return;
        }
        for seq in self.queue.unpin(slot) {
            if let Some(queued) = self.dequeue(seq) {
                self.reject(queued.request.id, RejectReason::EmptySubset);
            }
        }
    }

    fn shutdown(&mut self) {
        self.shutting_down = true;
        while let Some((seq, _)) = self.queue.oldest() {
            if let Some(queued) = self.dequeue(seq) {
                self.reject(queued.request.id, RejectReason::ShuttingDown);
            }
        }
    }

    fn reject(&mut self, id: RequestId, reason: RejectReason) {
        // Whoever comes now has to expect to wait as long as the oldest one has.
        let oldest_wait = self
            .queue
            .oldest()
            .map(|(_, queued)| self.now.since(queued.arrived))
            .unwrap_or_default();
        *self.counters.rejects.entry(reason).or_default() += 1;
        self.effects.push_back(Effect::Reject {
            id,
            reason,
            retry_after: oldest_wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX),
        });
    }
}

#[cfg(test)]
mod tests;
