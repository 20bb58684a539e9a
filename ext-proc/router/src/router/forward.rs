//! Forwarding (SkyLB 3.3): requests that leave for a peer, requests that a peer forwards here, and this pool's report.
//!
//! `docs/design/forwarding.md` says which requests leave.

use isotherm_fingerprint::BlockHash;

use super::Router;
use super::decide::{AvailableTargets, RoutingDecision};
use super::dispatch::share_of;
use super::feedback::evidence_of;
use crate::constant::constants;
use crate::forwarding::{ChosenRegion, ForwardEnd, ForwardTarget, ForwardedRequest};
use crate::policy::RegionCosts;
use crate::pool_state::InFlightRequest;
use crate::queue::{Band, QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaSet;
use crate::{
    Effect, End, ForwardDecision, ForwardingRule, PeerId, PeerReport, PeerStatus, Placement,
    PromptCost, Request, RequestId, Scope, ServedBy, Target, Time,
};

/// Limit of placements that the driver has not taken yet.
const PLACEMENTS_MAX: usize = 4_096;
constants! {
    /// Advantage from which a peer counts as cheaper, as a share of the learned service time, where one peer is available. The
    /// peer's report is a heartbeat old, and a session that leaves stays away. The advantage grows with the square root of the number of
    /// available peers: the more reports, the further the lowest cost among them lies below the true one.
    FORWARDING_MARGIN: f64 = 0.03;
    /// Weight of a finished request in the learned service time.
    SERVICE_LEARNING_RATE: f64 = 0.05;
}

impl Request {
    /// Peers that have returned the request; `None` for a request that must not leave the region, as one with a subset.
    pub(crate) fn tried(&self) -> Option<&[PeerId]> {
        match &self.scope {
            Scope::Regions { tried } if self.subset.is_none() => Some(tried),
            Scope::Regions { .. } | Scope::Local | Scope::Forwarded => None,
        }
    }
}

impl Router {
    /// Report of this pool for its peers, as of the last event.
    ///
    /// `drain_per_s` follows from Little's law: the requests that the replicas hold when their free capacity is used, divided
    /// by the learned service time; zero while no request has ended.
    #[expect(clippy::cast_possible_truncation, reason = "a share for a message")]
    pub fn report(&self) -> PeerReport {
        let free_capacity = self.pool.replicas.free_capacity();
        let held = self.pool.in_flight.len() as u64 + free_capacity.unwrap_or_default();
        let of_pool = self.pool.replicas.memory_use_of_pool();
        PeerReport {
            available: saturate(self.pool.replicas.available().len() as u64),
            replicas: saturate(self.pool.replicas.staying().len() as u64),
            free_capacity: free_capacity.map_or(u32::MAX, saturate),
            queue: saturate(self.pool.queue.len() as u64),
            drain_per_s: per_second(held, self.pool.service_s),
            prompt_cost: self.prompt_cost(),
            utilisation: of_pool.map(|of_pool| of_pool.share as f32),
            kv_capacity_tokens: of_pool.and_then(|p| p.capacity_tokens).unwrap_or_default(),
            batch_credit: self.offered_batch_credit(),
            batch_queue: saturate(self.pool.queue.held_len() as u64),
        }
    }

    fn prompt_cost(&self) -> Option<PromptCost> {
        let available = self.pool.replicas.available();
        let prices = !self.pool.peers.is_empty() && !available.is_empty();
        let costs = self.policy.region_costs().filter(|_| prices)?;
        let cost = costs.prompt_cost(&self.pool.view(available))?;
        // A peer refuses a report with another number.
        cost.parts()
            .iter()
            .all(|part| part.is_finite())
            .then_some(cost)
    }

    /// Status of every peer, in order of id.
    pub fn peers(&self, now: Time) -> impl Iterator<Item = PeerStatus> + '_ {
        self.pool.peers.statuses(now)
    }

    /// Takes the oldest placement that the driver has not sent to the siblings. There is none unless [`crate::RegionRules::share`] is set.
    pub fn poll_placement(&mut self) -> Option<Placement> {
        let placement = self.placements.pop_front()?;
        self.counters.placements_sent += 1;
        Some(placement)
    }

    /// Queues a placement for the siblings, whose indexes and counts then agree. The target held the first `depth` blocks, and
    /// has to compute `uncached` tokens.
    ///
    /// A lost placement costs at most a cache hit. Each service corrects its own index by its own requests.
    pub(super) fn share(
        &mut self,
        target: Target,
        blocks: &[BlockHash],
        depth: usize,
        uncached: Option<f64>,
    ) {
        if !self.pool.config.region.share {
            return;
        }
        if self.placements.len() >= PLACEMENTS_MAX {
            self.placements.pop_front();
            self.counters.placements_dropped += 1;
        }
        let (known, new) = blocks.split_at_checked(depth).unwrap_or((&[], blocks));
        self.placements.push_back(Placement {
            target,
            parent: known.last().copied(),
            blocks: new.into(),
            uncached_tokens: uncached.map(whole_tokens),
        });
    }

    pub(super) fn shared(&mut self, placement: &Placement) {
        let (parent, blocks) = (placement.parent, &placement.blocks);
        self.counters.placements_received += 1;
        let is_attached = match placement.target {
            Target::Replica(id) => self.pool.replicas.slot_of(id).is_some_and(|slot| {
                self.pool.on_sibling_push(slot, placement.uncached_tokens);
                self.pool.index.attach(slot, parent, blocks)
            }),
            Target::Peer(id) => self.pool.peers.on_shared(id, parent, blocks, self.pool.now),
        };
        if !is_attached {
            self.counters.placements_unattached += 1;
        }
    }

    /// Counts an arriving request by its origin. Returns the position, the first arrival and the start of the waits of a request
    /// that a peer returned.
    pub(super) fn receive(&mut self, request: &Request) -> Option<(QueueSeq, Time, Time)> {
        match &request.scope {
            Scope::Local => None,
            Scope::Forwarded => {
                self.counters.forwarded_in += 1;
                None
            }
            Scope::Regions { tried } => self.take_returned(*tried.last()?, request),
        }
    }

    fn take_returned(&mut self, peer: PeerId, request: &Request) -> Option<(QueueSeq, Time, Time)> {
        if self.pool.peers.on_return(peer, self.pool.now) {
            self.counters.returned += 1;
        }
        let forwarded = self.pool.forwarded.take_returned(peer, request)?;
        let blocks = forwarded.fingerprint.blocks();
        self.pool
            .peers
            .retract(forwarded.peer, blocks, &forwarded.recorded);
        Some((forwarded.seq, forwarded.arrived, forwarded.entered))
    }

    /// Selects a peer for a request behind `ahead` others that no local replica can start.
    pub(super) fn find_peer(
        &self,
        queued: &QueuedRequest,
        ahead: usize,
        at: AvailableTargets<'_>,
    ) -> Option<ForwardTarget> {
        if !at.replicas.is_empty() {
            return None;
        }
        let target = match self.choose_region(queued, at.peers) {
            Some(ChosenRegion::Peer(target)) => {
                let routing = RoutingDecision::Wait(queued.preferred);
                let stays = self.is_cheaper_here(queued, &routing, &target, at);
                return (!stays).then_some(target);
            }
            Some(ChosenRegion::Own) => return None,
            None => self.select_peer(&queued.request, at.peers)?,
        };
        let waited = self.pool.now.since(queued.arrived);
        let stays = self.forwards_by_cost()
            && self
                .pool
                .is_waiting_cheaper(&target, &queued.request, waited, ahead);
        (!stays).then_some(target)
    }

    /// Selects a peer for a request that a local replica could start, if it costs less there than on the replica that the
    /// policy selected, or lets it wait for.
    ///
    /// A policy without such costs keeps to SkyLB's rule. Without a free replica, the queue decides; without a measured speed, the local
    /// replicas do.
    pub(super) fn find_cheaper_peer(
        &self,
        queued: &QueuedRequest,
        routing: &RoutingDecision,
        at: AvailableTargets<'_>,
    ) -> Option<ForwardTarget> {
        let (pool, request) = (&self.pool, &queued.request);
        let is_measured = pool.replicas.prefill_of_pool_s(0.0).is_some();
        if at.replicas.is_empty() || !is_measured || !self.forwards_by_cost() {
            return None;
        }
        let costs = self.policy.region_costs()?;
        let here_s = self.cost_here(costs, queued, routing)?;
        let view = pool.view_of(queued, pool.replicas.available());
        let price = |cost: &_, tokens, wait_s| costs.cost_there(cost, tokens, wait_s, &view);
        let peers = &pool.peers;
        let (cost_s, target) = peers.cheapest(request, request.tried()?, at.peers, price)?;
        let reports = u32::try_from(at.peers.len()).unwrap_or(u32::MAX);
        let margin_s = FORWARDING_MARGIN.get() * f64::from(reports).sqrt() * pool.service_s?;
        (cost_s + margin_s < here_s).then_some(target)
    }

    /// Cost of a request on the local replica that the policy selected, or lets it wait for.
    pub(super) fn cost_here(
        &self,
        costs: &dyn RegionCosts,
        queued: &QueuedRequest,
        routing: &RoutingDecision,
    ) -> Option<f64> {
        let pool = &self.pool;
        let (replica, wait_s) = match routing {
            RoutingDecision::Dispatch(dispatch) => (dispatch.replica, 0.0),
            RoutingDecision::Wait(Some(preferred)) => (*preferred, pool.turn_s(*preferred)),
            RoutingDecision::Wait(None)
            | RoutingDecision::Forward(_)
            | RoutingDecision::Reject(_) => return None,
        };
        let view = pool.view_of(queued, pool.replicas.available());
        costs.cost_here(&queued.request, replica, wait_s, &view)
    }

    /// Whether the exceptions to SkyLB's rule apply.
    pub(super) fn forwards_by_cost(&self) -> bool {
        let rule = self.pool.config.region.forwarding;
        rule == ForwardingRule::Cost && !self.policy.rules().ignores_prefixes
    }

    pub(super) fn select_peer(
        &self,
        request: &Request,
        peers: &ReplicaSet,
    ) -> Option<ForwardTarget> {
        let tried = request.tried()?;
        let ignores_prefixes = self.policy.rules().ignores_prefixes;
        self.pool
            .peers
            .select(request, tried, ignores_prefixes, peers)
    }

    /// Whether a peer may serve a request for which this region has no replica.
    pub(super) fn may_be_served_elsewhere(&self, request: &Request) -> bool {
        let tried = request.tried();
        tried.is_some_and(|tried| self.pool.peers.has_replicas(tried, self.pool.now))
    }

    pub(super) fn forward(&mut self, queued: QueuedRequest, target: &ForwardTarget) {
        let is_batch = queued.band == Band::Held;
        let QueuedRequest {
            request,
            arrived,
            entered,
            seq,
            ..
        } = queued;
        let blocks = request.fingerprint.blocks();
        let matched = &target.matched;
        let load = (request.prompt_tokens, is_batch);
        let sent = self
            .pool
            .peers
            .on_forward(target.slot, matched, blocks, load, self.pool.now);
        let Some((permit, recorded)) = sent else {
            return;
        };
        let matched_bytes = request.fingerprint.bytes_at(matched.depth);
        let share = request.fingerprint.share_at(matched.depth);
        self.counters.forwarded += 1;
        self.share(Target::Peer(target.peer), blocks, matched.depth, None);
        self.effects.push_back(Effect::Forward(
            request.id,
            ForwardDecision {
                peer: target.peer,
                reason: target.reason,
                matched_bytes,
                matched_tokens: share_of(request.prompt_tokens, share),
                queued_for: self.pool.now.since(arrived),
                estimated_ttft: target.estimated_ttft,
            },
        ));
        self.pool.forwarded.insert(
            request.id,
            ForwardedRequest {
                peer: target.peer,
                permit,
                forwarded_at: self.pool.now,
                seq,
                arrived,
                entered,
                fingerprint: request.fingerprint,
                session: request.session,
                recorded,
                has_returned: false,
            },
        );
    }

    /// Handles the end of a forwarded request. The end of a request that returned counts under its new id.
    pub(super) fn finish_forwarded(
        &mut self,
        forwarded: &ForwardedRequest,
        served_by: ServedBy,
        end: End,
        tokens: Option<(u32, u32)>,
    ) {
        let blocks = forwarded.fingerprint.blocks();
        let (peer, permit, now) = (forwarded.peer, forwarded.permit, self.pool.now);
        // A report of another server means that the request returned, perhaps to a sibling.
        if served_by != ServedBy::Unreported || forwarded.has_returned {
            let forwarded_at = forwarded.forwarded_at;
            let end = ForwardEnd::ServedElsewhere { forwarded_at };
            self.pool.peers.on_end(peer, permit, end, now);
            if !forwarded.has_returned {
                self.pool.peers.retract(peer, blocks, &forwarded.recorded);
            }
            return;
        }
        let evidence = evidence_of(end);
        self.pool
            .peers
            .on_end(peer, permit, ForwardEnd::Ended(evidence), now);
        self.count_result(end);
        if end != End::Answered {
            self.pool.peers.retract(peer, blocks, &forwarded.recorded);
            return;
        }
        if let Some((prompt, cached)) = tokens {
            self.counters.forwarded_prompt_tokens += u64::from(prompt);
            self.counters.forwarded_cached_tokens += u64::from(cached);
        }
    }

    pub(super) fn abort_forwarded(&mut self, id: RequestId) {
        if let Some(forwarded) = self.pool.forwarded.remove(id) {
            let has_returned = forwarded.has_returned;
            let end = ForwardEnd::Aborted { has_returned };
            self.pool
                .peers
                .on_end(forwarded.peer, forwarded.permit, end, self.pool.now);
            self.counters.aborted_in_flight += 1;
        }
    }

    /// Learns how long a request occupied its replica.
    pub(super) fn learn_service_time(&mut self, request: &InFlightRequest) {
        let took = self.pool.now.since(request.dispatched_at).as_secs_f64();
        self.pool.service_s = Some(match self.pool.service_s {
            None => took,
            Some(known) => known + SERVICE_LEARNING_RATE.get() * (took - known),
        });
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number of tokens; saturates"
)]
pub(super) const fn whole_tokens(tokens: f64) -> u32 {
    tokens.round() as u32
}

fn saturate(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "an estimate"
)]
fn per_second(held: u64, service_s: Option<f64>) -> f32 {
    match service_s {
        Some(service_s) if service_s > 0.0 => (held as f64 / service_s) as f32,
        Some(_) | None => 0.0,
    }
}
