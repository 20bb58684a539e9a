//! Between regions (SkyLB 3.3): requests that leave for a peer, requests that came from one, and what peers are told.
//!
//! A request leaves when no local replica is available to it; one that the policy lets wait for a particular
//! replica, while others are free, stays. When a peer becomes available, those that wait here leave for it, oldest first.
//! What the pool has measured makes two exceptions, for the sake of warm caches: see `worth`.

use super::dispatch::share_of;
use super::forwarded::ForwardedRequest;
use super::{InFlightRequest, Router};
use crate::peers::ForwardTarget;
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica::Evidence;
use crate::{
    Effect, End, Forwarding, PeerId, PeerReport, PeerStatus, Request, RequestId, Scope, ServedBy,
    Target, Time,
};

/// How much a finished request moves the learned time that one takes.
const SERVICE_LEARNING_RATE: f64 = 0.05;

/// Where an arriving request stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivalRecord {
    pub(super) seq: QueueSeq,
    pub(super) arrived: Time,
    /// Whether it was here before: then it is not refused for want of a place.
    pub(super) is_back: bool,
}

impl Request {
    /// The peers that it has come back from, if it may leave the region at all. One that the gateway restricts to some
    /// replicas may not: they are all here.
    pub(crate) fn tried(&self) -> Option<&[PeerId]> {
        match &self.scope {
            Scope::Regions { tried } if self.subset.is_none() => Some(tried),
            Scope::Regions { .. } | Scope::Local | Scope::Forwarded => None,
        }
    }
}

impl Router {
    /// What this pool tells its peers.
    ///
    /// `drain_per_s` is Little's law: the requests that the replicas would hold when their room is used, by the time that
    /// one takes them (learned from those that end). When the pool is full that is its throughput; when it is not, it is
    /// what its throughput would be. Zero means that no request has ended yet.
    ///
    /// Rejected: the rate at which requests left the queue lately. It is the same when somebody waits, but knows nothing
    /// before, which is when a peer has to choose; and it needs a window, which is too long or too short.
    #[must_use]
    pub fn report(&self, now: Time) -> PeerReport {
        // The sets are as of the last event. What has grown old since then is news with the next one.
        let _ = now;
        let free_capacity = self.replicas.free_capacity();
        let held = self.in_flight.len() as u64 + free_capacity.unwrap_or_default();
        PeerReport {
            available: count(self.replicas.available_in_all() as u64),
            replicas: count(self.replicas.staying().len() as u64),
            free_capacity: free_capacity.map_or(u32::MAX, count),
            queue: count(self.queue.len() as u64),
            drain_per_s: per_second(held, self.service_s),
        }
    }

    /// Every peer region, in order of identity.
    pub fn peers(&self, now: Time) -> impl Iterator<Item = PeerStatus> + '_ {
        self.peers.all(now)
    }

    /// Since when a request is on its way, and its place in the order of arrival: one that comes back has them already.
    /// Counts it by where it comes from.
    pub(super) fn received(&mut self, request: &Request) -> ArrivalRecord {
        match &request.scope {
            Scope::Local => {}
            Scope::Forwarded => self.counters.forwarded_in += 1,
            Scope::Regions { tried } => {
                let from = tried.last();
                if let Some(known) = from.and_then(|from| self.came_back(*from, request)) {
                    return known;
                }
            }
        }
        ArrivalRecord {
            seq: self.queue.next_seq(),
            arrived: self.now,
            is_back: false,
        }
    }

    fn came_back(&mut self, from: PeerId, request: &Request) -> Option<ArrivalRecord> {
        if self.peers.returned(from, self.now) {
            self.counters.returned += 1;
        }
        let forwarded = self.forwarded.came_back(from, request)?;
        let blocks = forwarded.fingerprint.blocks();
        self.peers
            .retract(forwarded.handle, blocks, &forwarded.recorded);
        Some(ArrivalRecord {
            seq: forwarded.seq,
            arrived: forwarded.arrived,
            is_back: true,
        })
    }

    /// Whether a guest would make the queue longer than guests may.
    pub(super) fn is_too_full_for(&self, request: &Request) -> bool {
        let tau = usize::try_from(self.config.region.queue_max).unwrap_or(usize::MAX);
        request.scope == Scope::Forwarded && self.queue.len() > tau
    }

    /// Where a request that no local replica is available to goes at once, if anywhere. So many are in front of it.
    pub(super) fn find_peer(&self, queued: &QueuedRequest, ahead: usize) -> Option<ForwardTarget> {
        let request = &queued.request;
        let tried = request.tried()?;
        if !self.replicas.available().is_empty() || self.peers.available().is_empty() {
            return None;
        }
        let target = self.peers.choose(request, tried, self.config.policy)?;
        let waited = self.now.since(queued.arrived);
        (!self.is_waiting_cheaper(&target, request, waited, ahead)).then_some(target)
    }

    /// Whether a request may be served elsewhere some time, when there is nobody here.
    pub(super) fn may_be_served_elsewhere(&self, request: &Request) -> bool {
        let tried = request.tried();
        tried.is_some_and(|tried| self.peers.may_serve(tried))
    }

    /// Those that wait here leave for peers that have room, oldest first, while there is none here.
    pub(super) fn forward_queued(&mut self) {
        while self.replicas.available().is_empty() && !self.peers.available().is_empty() {
            let peers = &self.peers;
            let Some(seq) = self.queue.oldest_leaving(|tried| peers.is_open_to(tried)) else {
                return;
            };
            let queued = self.queue.get(seq);
            let Some(target) = queued.and_then(|queued| self.find_peer(queued, 0)) else {
                return;
            };
            if let Some(queued) = self.dequeue(seq) {
                self.forward(queued, &target);
            }
        }
    }

    pub(super) fn forward(&mut self, queued: QueuedRequest, target: &ForwardTarget) {
        let QueuedRequest {
            request,
            arrived,
            seq,
            ..
        } = queued;
        let blocks = request.fingerprint.blocks();
        let Some((handle, sent, recorded)) = self.peers.forwarded(target, blocks, self.now) else {
            return;
        };
        let matched_bytes = request.fingerprint.bytes_at(target.matched.depth);
        let share = request.fingerprint.share_at(target.matched.depth);
        self.counters.forwarded += 1;
        self.share(Target::Peer(handle.id), blocks, target.matched.depth);
        self.effects.push_back(Effect::Forward {
            id: request.id,
            forwarding: Forwarding {
                peer: handle.id,
                reason: target.reason,
                matched_bytes,
                matched_tokens: share_of(request.prompt_tokens, share),
                queued_for: self.now.since(arrived),
                estimated_ttft: target.estimated_ttft,
            },
        });
        self.forwarded.insert(
            request.id,
            ForwardedRequest {
                handle,
                sent,
                left: self.now,
                seq,
                arrived,
                fingerprint: request.fingerprint,
                session: request.session,
                matched_bytes,
                recorded,
                came_back: false,
            },
        );
    }

    /// A forwarded request's response has ended. One that came back was decided anew under another identity, so its end
    /// counts there and not here.
    pub(super) fn finish_forwarded(
        &mut self,
        forwarded: &ForwardedRequest,
        served_by: ServedBy,
        end: End,
        tokens: Option<(u32, u32)>,
    ) {
        let blocks = forwarded.fingerprint.blocks();
        let (handle, now) = (forwarded.handle, self.now);
        // Whoever says how it ended may not know that it came back first.
        if served_by != ServedBy::Unreported || forwarded.came_back {
            self.peers
                .ended_elsewhere(handle, forwarded.sent, forwarded.left, now);
            if !forwarded.came_back {
                self.peers.retract(handle, blocks, &forwarded.recorded);
            }
            return;
        }
        let evidence = match end {
            End::Answered => Evidence::Success,
            End::Refused => Evidence::None,
            End::Failed => Evidence::Failure,
        };
        self.peers.ended(handle, forwarded.sent, evidence, now);
        if end != End::Answered {
            self.peers.retract(handle, blocks, &forwarded.recorded);
            self.counters.finished_failed += 1;
            return;
        }
        self.counters.finished_ok += 1;
        let Some((prompt, cached)) = tokens.filter(|(prompt, _)| *prompt > 0) else {
            return;
        };
        self.counters.forwarded_prompt_tokens += u64::from(prompt);
        self.counters.forwarded_cached_tokens += u64::from(cached);
        let Some(measured) = self.measured_bytes(&forwarded.fingerprint, prompt, cached) else {
            return;
        };
        if forwarded.matched_bytes > 0 {
            let wrong = super::feedback::is_false_hit(forwarded.matched_bytes, measured)
                .then(|| blocks.partition_point(|block| f64::from(block.end_bytes) <= measured));
            self.peers.predicted(handle, blocks, wrong);
        }
    }

    /// The client of a forwarded request went away.
    pub(super) fn abort_forwarded(&mut self, id: RequestId) {
        if let Some(forwarded) = self.forwarded.remove(id) {
            let (handle, sent) = (forwarded.handle, forwarded.sent);
            self.peers
                .aborted(handle, sent, forwarded.came_back, self.now);
            self.counters.aborted_in_flight += 1;
        }
    }

    /// A replica was busy with a request until now.
    pub(super) fn learn_service_time(&mut self, flight: &InFlightRequest) {
        let took = self.now.since(flight.at).as_secs_f64();
        self.service_s = Some(match self.service_s {
            None => took,
            Some(known) => known + SERVICE_LEARNING_RATE * (took - known),
        });
    }
}

fn count(n: u64) -> u32 {
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
