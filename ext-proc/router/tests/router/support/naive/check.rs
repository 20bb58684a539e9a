//! Invariants that hold after every event.

use std::time::Duration;

use isotherm_router::{
    Availability, OUTSTANDING_MAX, PeerAvailability, PeerStatus, Push, ReplicaId, ReplicaStatus,
    Request, Time,
};

use super::super::serves_in_order;
use super::Naive;
use super::peers;
use super::replica::Replica;

/// Requests that a replica is sent between two probes at most.
const SENT_BETWEEN_PROBES: usize = 8;
/// Bound on the time until a request that waits beside a free replica is offered again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(50);

impl Naive {
    /// Whether a replica may serve a request at all.
    pub(super) fn is_eligible(&self, request: &Request, replica: ReplicaId) -> bool {
        let staying = self.replicas.get(&replica).is_some_and(|r| !r.draining);
        let subset = request.subset.as_deref();
        staying && subset.is_none_or(|subset| subset.contains(&replica))
    }

    pub(super) fn is_healthy(&self, replica: &Replica) -> bool {
        let stale_after = self.config.probe_stale_after;
        let stale = |sent: Time| sent.after(stale_after) <= self.now;
        !replica.draining && !replica.failed && !replica.probed().is_some_and(stale)
    }

    pub(super) fn look_whether_all_fail(&mut self) {
        let healthy = || self.replicas.values().filter(|r| self.is_healthy(r));
        let one_answers = healthy().any(|r| r.failing.left_out.is_none());
        let all_fail = healthy().count() > 0 && !one_answers;
        let one_is_back = self.all_fail && one_answers;
        self.all_fail = all_fail;
        let left_out = self
            .replicas
            .values_mut()
            .filter_map(|r| r.failing.left_out.as_mut())
            .filter(|left_out| one_is_back && !left_out.on_trial);
        for left_out in left_out {
            left_out.until = left_out.until.min(self.now);
        }
    }

    /// Whether how its requests end allows one more.
    pub(super) fn may_be_tried(&self, replica: &Replica) -> bool {
        let left_out = replica.failing.left_out;
        self.all_fail || left_out.is_none_or(|left_out| left_out.until <= self.now)
    }

    /// Whether the mode allows one more; for `pending` what must hold at least.
    pub(super) fn may_be_pushed(&self, id: ReplicaId) -> bool {
        let replica = &self.replicas[&id];
        match self.config.push {
            Push::Blind => {
                let has_healthy = self.replicas.values().any(|r| self.is_healthy(r));
                !replica.draining
                    && (!has_healthy || self.is_healthy(replica) && self.may_be_tried(replica))
            }
            Push::Outstanding { max } => {
                self.is_healthy(replica)
                    && self.may_be_tried(replica)
                    && replica.outstanding < max.max(1)
            }
            Push::Pending if replica.without_metrics.is_some() => {
                self.is_healthy(replica)
                    && self.may_be_tried(replica)
                    && replica.outstanding < OUTSTANDING_MAX
            }
            Push::Pending => {
                let stands_still = replica.stands_still && replica.outstanding == 0;
                match replica.probe {
                    Some((_, 0)) => {}
                    Some(_) if stands_still => {}
                    Some(_) | None => return false,
                }
                let count = |times: &[Time]| {
                    let counted = times.iter().filter(|at| **at >= replica.counted_from);
                    counted.count()
                };
                let pushed = count(&replica.pushes) + count(&replica.siblings);
                let free = count(&replica.begins);
                self.is_healthy(replica)
                    && self.may_be_tried(replica)
                    && pushed < SENT_BETWEEN_PROBES + free
            }
        }
    }

    /// The pool's report equals the sum of its replicas' figures.
    fn check_report(&self, statuses: &[ReplicaStatus]) {
        let report = self.router.report();
        let open = || {
            let mut all = statuses.iter();
            core::iter::from_fn(move || all.find(|r| r.availability == Availability::Available))
        };
        let room = |status: &ReplicaStatus| {
            let left_out = self.replicas[&status.id].failing.left_out.is_some();
            let headroom = status.headroom.unwrap_or(u32::MAX);
            u64::from(if left_out && !self.all_fail {
                headroom.min(1)
            } else {
                headroom
            })
        };
        let sum: u64 = open().map(room).sum();
        let told = u64::from(report.free_capacity);
        match self.config.push {
            Push::Outstanding { .. } | Push::Pending => assert_eq!(told, sum, "{report:?}"),
            Push::Blind => assert_eq!(report.free_capacity, u32::MAX),
        }
        assert!(report.available as usize >= open().count(), "{report:?}");
        assert!(report.available <= report.replicas, "{report:?}");
        assert_eq!(report.queue as usize, self.waiting.len());
        let held = self.waiting.iter().filter(|(_, since)| since.held).count();
        assert_eq!(report.batch_queue as usize, held);
        let by_tier = self.router.tiers(self.now).map(|tier| tier.waiting);
        assert_eq!(by_tier.iter().sum::<usize>(), self.waiting.len());
        assert!(report.drain_per_s >= 0.0, "{report:?}");
    }

    /// No request waits without a reason.
    fn check_liveness(&mut self, statuses: &[ReplicaStatus]) {
        let is_open = |status: &&ReplicaStatus| status.availability == Availability::Available;
        let beside = statuses.iter().filter(is_open).find_map(|status| {
            let waiting = self.waiting.iter().filter(|(_, since)| !since.held);
            let mut all = waiting.map(|(request, _)| request);
            let waits = all.find(|request| self.is_eligible(request, status.id))?;
            Some((waits.id, status.id))
        });
        if serves_in_order(self.policy()) {
            assert_eq!(beside, None, "waits for nothing");
        } else if beside.is_some() {
            let next = self.router.poll_timeout();
            let soon = self.now.after(ASKED_AGAIN_AFTER);
            assert!(next.is_some_and(|next| next <= soon), "{beside:?} {next:?}");
        }
        let mut staying = statuses.iter().filter(|status| !status.draining);
        let all_idle = staying.all(|status| is_open(&status) && status.outstanding == 0);
        let since = *self.idle_since.get_or_insert(self.now);
        self.idle_since = Some(since).filter(|_| all_idle);
        let is_long = since.after(ASKED_AGAIN_AFTER) <= self.now;
        if all_idle && is_long && self.replicas.values().any(|r| !r.draining) {
            let mut waiting = self.waiting.iter();
            assert!(
                waiting.all(|(_, since)| since.held),
                "all are idle, {:?}",
                self.waiting
            );
        }
    }

    pub(super) fn check(&mut self) {
        let stats = self.router.stats(self.now);
        assert_eq!(stats.queue_length, self.waiting.len());
        assert_eq!(stats.in_flight, self.in_flight.len());
        let bytes = stats.index.bytes + stats.peer_index.bytes;
        assert!(bytes <= self.config.index.bytes_max, "{stats:?}");
        assert_eq!(stats.forwarded_in_flight, self.peers.away());
        let peers: Vec<PeerStatus> = self.router.peers(self.now).collect();
        self.peers.check(&peers, self.now, &self.config.region);
        let open = |peer: &&PeerStatus| peer.availability == PeerAvailability::Available;
        let weighs_times = peers::weighs_times(&self.config.region, self.tells_times);
        for peer in peers.iter().filter(open).filter(|_| !weighs_times) {
            for (request, _) in self.waiting.iter().filter(|(_, since)| !since.held) {
                let idles = peers::may_leave_for(request, peer.id) && stats.available_replicas == 0;
                assert!(!idles, "{:?} could leave for {peer:?}", request.id);
            }
        }
        assert!(stats.index.entries >= stats.index.nodes);
        let statuses: Vec<_> = self.router.replicas(self.now).collect();
        assert_eq!(statuses.len(), self.replicas.len());
        self.check_report(&statuses);
        self.check_liveness(&statuses);
        for status in statuses {
            let replica = &self.replicas[&status.id];
            assert_eq!(status.outstanding, replica.outstanding);
            let available = status.availability == Availability::Available;
            if self.config.push == Push::Pending {
                assert!(!available || self.may_be_pushed(status.id), "{status:?}");
            } else {
                assert_eq!(available, self.may_be_pushed(status.id), "{status:?}");
            }
        }
        for (request, since) in &self.waiting {
            let expires = since.entered.after(self.wait_max(request, since));
            assert!(
                expires > self.now,
                "{:?} {since:?} at {:?}",
                request.id,
                self.now
            );
            assert!(!self.answered.contains(&request.id));
        }
    }
}
