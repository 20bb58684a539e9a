//! The router: events in, effects out.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    Availability, Candidate, Choice, Counters, Decision, Effect, Event, Explanation, IndexStats,
    Load, Push, Reason, RejectReason, ReplicaId, ReplicaStatus, Request, RequestId, RouterConfig,
    Stats, Time,
};

/// Routes the requests of one pool.
#[derive(Debug)]
pub struct Router {
    config: RouterConfig,
    replicas: BTreeMap<ReplicaId, Replica>,
    queue: VecDeque<(Time, Request)>,
    in_flight: BTreeMap<RequestId, ReplicaId>,
    effects: VecDeque<Effect>,
    counters: Counters,
}

#[derive(Debug)]
struct Replica {
    name: String,
    outstanding: u32,
    pushed: u32,
    load: Option<(Load, Time)>,
    failed: bool,
    draining: bool,
}

impl Router {
    /// A router without replicas. The seed feeds the policies that draw lots: same seed, same decisions.
    #[must_use]
    pub fn new(config: RouterConfig, seed: u64) -> Self {
        let _ = seed;
        Self {
            config,
            replicas: BTreeMap::new(),
            queue: VecDeque::new(),
            in_flight: BTreeMap::new(),
            effects: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Something happened. Times must not go backwards; one that does is read as the latest seen.
    pub fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Arrived(request) => {
                self.counters.arrived += 1;
                if self.replicas.is_empty() {
                    self.reject(request.id, RejectReason::NoReplica);
                } else if self.queue.len() >= self.config.queue.length_max {
                    self.reject(request.id, RejectReason::QueueFull);
                } else {
                    self.queue.push_back((now, request));
                }
            }
            Event::Finished { id, ok, .. } => {
                self.leave(id);
                if ok {
                    self.counters.finished_ok += 1;
                } else {
                    self.counters.finished_failed += 1;
                }
            }
            Event::Aborted { id } => {
                self.queue.retain(|(_, request)| request.id != id);
                self.leave(id);
            }
            Event::Probed {
                replica,
                load,
                sent,
            } => {
                if let Some(replica) = self.replicas.get_mut(&replica) {
                    replica.load = Some((load, sent));
                    replica.failed = false;
                    replica.pushed = 0;
                }
            }
            Event::ProbeFailed { replica } => {
                if let Some(replica) = self.replicas.get_mut(&replica) {
                    replica.failed = true;
                }
            }
            Event::Added { replica, spec } => {
                self.replicas.entry(replica).or_insert(Replica {
                    name: spec.name,
                    outstanding: 0,
                    pushed: 0,
                    load: None,
                    failed: false,
                    draining: false,
                });
            }
            Event::Draining { replica } => {
                if let Some(replica) = self.replicas.get_mut(&replica) {
                    replica.draining = true;
                }
            }
            Event::Removed { replica } => {
                self.replicas.remove(&replica);
            }
            Event::Shutdown => {
                while let Some((_, request)) = self.queue.pop_front() {
                    self.reject(request.id, RejectReason::ShuttingDown);
                }
            }
        }
        self.pump(now);
    }

    /// What the driver must do next, oldest first; call until there is nothing.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.queue
            .front()
            .map(|(arrived, _)| arrived.after(self.config.queue.wait_max))
    }

    /// Time has come to the point that [`Self::poll_timeout`] named. Calling it early does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((arrived, request)) = self.queue.front() {
            if arrived.after(self.config.queue.wait_max) > now {
                break;
            }
            let id = request.id;
            self.queue.pop_front();
            self.reject(id, RejectReason::WaitedTooLong);
        }
        self.pump(now);
    }

    /// Replaces the configuration; replicas, queue and index stay.
    pub fn reconfigure(&mut self, now: Time, config: RouterConfig) {
        self.config = config;
        self.pump(now);
    }

    /// What would happen to this request now, and why. Changes nothing.
    #[must_use]
    pub fn explain(&self, now: Time, request: &Request) -> Explanation {
        let _ = request;
        let choice = self.choose(now).map_or(
            Choice::Wait {
                replica: None,
                ahead: self.queue.len(),
            },
            |replica| Choice::Dispatch {
                replica,
                reason: Reason::LeastLoaded,
            },
        );
        let candidates = self
            .replicas
            .iter()
            .map(|(id, replica)| Candidate {
                replica: *id,
                name: replica.name.clone(),
                matched_bytes: 0,
                outstanding: replica.outstanding,
                pending: replica.load.map(|(load, _)| load.pending),
                availability: self.availability(now, replica),
                score: -f64::from(replica.outstanding),
            })
            .collect();
        Explanation { candidates, choice }
    }

    /// Figures as of `now`.
    #[must_use]
    pub fn stats(&self, now: Time) -> Stats {
        Stats {
            queue_length: self.queue.len(),
            oldest_wait: self
                .queue
                .front()
                .map(|(arrived, _)| now.since(*arrived))
                .unwrap_or_default(),
            in_flight: self.in_flight.len(),
            available_replicas: self
                .replicas
                .values()
                .filter(|r| self.availability(now, r) == Availability::Available)
                .count(),
            index: IndexStats::default(),
            counters: self.counters.clone(),
        }
    }

    /// Every replica, in order of identity.
    pub fn replicas(&self, now: Time) -> impl Iterator<Item = ReplicaStatus> + '_ {
        self.replicas
            .iter()
            .map(move |(id, replica)| ReplicaStatus {
                id: *id,
                name: replica.name.clone(),
                outstanding: replica.outstanding,
                load: replica.load.map(|(load, _)| load),
                probed: replica.load.map(|(_, sent)| sent),
                headroom: None,
                capacity: None,
                availability: self.availability(now, replica),
                draining: replica.draining,
            })
    }

    fn availability(&self, now: Time, replica: &Replica) -> Availability {
        if replica.draining {
            return Availability::Draining;
        }
        if replica.failed {
            return Availability::ProbeFailed;
        }
        match (self.config.push, replica.load) {
            (Push::Blind, _) => Availability::Available,
            (Push::Outstanding { max }, _) if replica.outstanding < max.max(1) => {
                Availability::Available
            }
            (Push::Outstanding { .. }, _) => Availability::Full,
            (Push::Pending, None) => Availability::NeverProbed,
            (Push::Pending, Some((_, sent))) if now.since(sent) > self.config.probe_stale_after => {
                Availability::Stale
            }
            (Push::Pending, Some((load, _))) if load.pending > 0 => Availability::Pending,
            (Push::Pending, Some(_)) if replica.pushed > 1 => Availability::NoHeadroom,
            (Push::Pending, Some(_)) => Availability::Available,
        }
    }

    fn choose(&self, now: Time) -> Option<ReplicaId> {
        self.replicas
            .iter()
            .filter(|(_, r)| self.availability(now, r) == Availability::Available)
            .min_by_key(|(id, r)| (r.outstanding, **id))
            .map(|(id, _)| *id)
    }

    fn pump(&mut self, now: Time) {
        while let Some(replica) = self.choose(now) {
            let Some((arrived, request)) = self.queue.pop_front() else {
                return;
            };
            if let Some(state) = self.replicas.get_mut(&replica) {
                state.outstanding += 1;
                state.pushed += 1;
            }
            self.in_flight.insert(request.id, replica);
            *self
                .counters
                .decisions
                .entry(Reason::LeastLoaded)
                .or_default() += 1;
            self.effects.push_back(Effect::Dispatch {
                id: request.id,
                decision: Decision {
                    replica,
                    fallbacks: smallvec::SmallVec::new(),
                    reason: Reason::LeastLoaded,
                    matched_bytes: 0,
                    matched_tokens: 0,
                    queued_for: now.since(arrived),
                },
            });
        }
    }

    fn leave(&mut self, id: RequestId) {
        if let Some(replica) = self.in_flight.remove(&id)
            && let Some(state) = self.replicas.get_mut(&replica)
        {
            state.outstanding = state.outstanding.saturating_sub(1);
        }
    }

    fn reject(&mut self, id: RequestId, reason: RejectReason) {
        *self.counters.rejects.entry(reason).or_default() += 1;
        self.effects.push_back(Effect::Reject {
            id,
            reason,
            retry_after: core::time::Duration::from_secs(1),
        });
    }
}
