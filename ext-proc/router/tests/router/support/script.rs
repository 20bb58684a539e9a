//! A router to write scripts for: one line for each thing that happens.

use std::time::Duration;

use isotherm_router::{
    Availability, Decision, Effect, End, Event, ForwardDecision, Load, PeerId, PeerReport,
    PeerStatus, RejectReason, ReplicaId, Request, RequestId, Role, Router, RouterConfig, ServedBy,
    Stats, Time,
};

/// A router, the time, and what it did.
pub struct Script {
    pub router: Router,
    pub now: Time,
}

impl Script {
    /// A router with this many replicas, all probed and idle.
    pub fn new(config: RouterConfig, replicas: u32) -> Self {
        let mut script = Self {
            router: Router::new(config, 1),
            now: Time::ZERO,
        };
        for id in 0..replicas {
            script.add(id);
        }
        script.probe_all(0..replicas);
        script
    }

    pub fn add(&mut self, id: u32) {
        self.add_as(id, Role::Both);
    }

    pub fn add_as(&mut self, id: u32, role: Role) {
        let name = format!("10.0.0.{id}:8000");
        let replica = ReplicaId(id);
        self.event(Event::Added {
            replica,
            name,
            role,
        });
    }

    pub fn event(&mut self, event: Event) {
        self.router.handle(self.now, event);
    }

    pub fn sleep(&mut self, ms: u64) {
        self.now = self.now.after(Duration::from_millis(ms));
        self.router.handle_timeout(self.now);
    }

    pub fn probe(&mut self, id: u32, pending: u32) {
        self.probe_load(
            id,
            Load {
                pending,
                ..Load::default()
            },
        );
    }

    pub fn probe_load(&mut self, id: u32, load: Load) {
        self.event(Event::Probed {
            replica: ReplicaId(id),
            load,
            sent: self.now,
        });
    }

    pub fn probe_all(&mut self, ids: impl Iterator<Item = u32>) {
        for id in ids {
            self.probe(id, 0);
        }
    }

    pub fn probe_fails(&mut self, id: u32) {
        let replica = ReplicaId(id);
        self.event(Event::ProbeFailed(replica));
    }

    /// A peer region of this name joins.
    pub fn add_peer(&mut self, id: u16) {
        let name = format!("region-{id}");
        let peer = PeerId(id);
        self.event(Event::PeerAdded { peer, name });
    }

    /// A peer is asked now, and says this at once.
    pub fn peer_says(&mut self, id: u16, report: PeerReport) {
        self.peer_at(id, 100, report);
    }

    /// Reports a peer at a round trip of its own.
    pub fn peer_at(&mut self, id: u16, round_trip_ms: u64, report: PeerReport) {
        self.event(Event::PeerReported {
            peer: PeerId(id),
            report,
            as_of: self.now,
            round_trip: Duration::from_millis(round_trip_ms),
        });
    }

    pub fn peer(&self, id: u16) -> PeerStatus {
        let mut all = self.router.peers(self.now);
        all.find(|peer| peer.id == PeerId(id)).unwrap()
    }

    /// Requests forwarded since the last call, in order.
    pub fn forwardings(&mut self) -> Vec<(u64, ForwardDecision)> {
        self.effects()
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Forward(id, forwarding) => Some((id.0, forwarding)),
                Effect::Dispatch(..) | Effect::Reject { .. } | Effect::Hung { .. } => None,
            })
            .collect()
    }

    /// Forwarded requests since the last call: id and peer.
    pub fn forwarded(&mut self) -> Vec<(u64, u16)> {
        self.forwardings()
            .into_iter()
            .map(|(id, forwarding)| (id, forwarding.peer.0))
            .collect()
    }

    pub fn arrive(&mut self, request: Request) {
        self.event(Event::Arrived(request));
    }

    pub fn abort(&mut self, id: u64) {
        let id = RequestId(id);
        self.event(Event::Aborted(id));
    }

    pub fn finish(&mut self, id: u64) {
        self.finish_as(id, End::Answered, ServedBy::Unreported, None);
    }

    /// `tokens` are those of the prompt and those of them that were cached.
    pub fn finish_as(
        &mut self,
        id: u64,
        end: End,
        served_by: ServedBy,
        tokens: Option<(u32, u32)>,
    ) {
        self.event(Event::Finished {
            id: RequestId(id),
            served_by,
            end,
            ttft_us: None,
            prompt_tokens: tokens.map(|(prompt, _)| prompt),
            cached_tokens: tokens.map(|(_, cached)| cached),
            completion_tokens: None,
        });
    }

    /// Requests dispatched since the last call, in order.
    pub fn dispatches(&mut self) -> Vec<(u64, Decision)> {
        self.effects()
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Dispatch(id, decision) => Some((id.0, decision)),
                Effect::Forward(..) | Effect::Reject { .. } | Effect::Hung { .. } => None,
            })
            .collect()
    }

    /// Dispatched requests since the last call: id and replica.
    pub fn sent(&mut self) -> Vec<(u64, u32)> {
        self.dispatches()
            .into_iter()
            .map(|(id, decision)| (id, decision.replica.0))
            .collect()
    }

    pub fn rejects(&mut self) -> Vec<(u64, RejectReason)> {
        self.effects()
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Reject { id, reason, .. } => Some((id.0, reason)),
                Effect::Dispatch(..) | Effect::Forward(..) | Effect::Hung { .. } => None,
            })
            .collect()
    }

    pub fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.router.poll_effect()).collect()
    }

    pub fn availability(&self, id: u32) -> Availability {
        let mut all = self.router.replicas(self.now);
        let found = all.find(|status| status.id == ReplicaId(id));
        found.unwrap().availability
    }

    pub fn stats(&self) -> Stats {
        self.router.stats(self.now)
    }
}
