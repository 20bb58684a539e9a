//! Drives the routing core: feeds it events with the time they happened at, and carries out its effects.
//!
//! The core (`isotherm-router`) is free of clocks and sockets; everything that it needs from the world comes
//! through here. One [`Pool`] drives one `Router`; the [`PoolRegistry`] is all of them. A request that was handed in is a
//! [`InFlightGuard`], whose drop gives its place back.
//!
//! One pool: the replicas of one model, behind one routing core.
//!
//! One mutex guards the core. A decision takes microseconds, and everything else here is cheaper, so finer locks
//! would only add orders in which things can happen. The clock is read under the lock: the core sees time go
//! forwards only.

mod clock;
mod endpoint;
mod in_flight;
mod membership;
mod peers;
#[cfg(test)]
mod region_tests;
mod regions;
mod registry;
mod request;
mod shared_placement;
mod state;
#[cfg(test)]
mod tests;
mod timer;

pub use clock::Clock;
pub use endpoint::Endpoint;
pub use in_flight::{InFlightGuard, Submission};
pub use membership::{Member, MembershipError, REPLICAS_MAX};
pub use peers::{PEERS_MAX, PeerEntry, PeerTable};
pub use registry::{ANY_MODEL, PoolRegistry, PoolTable};
pub use request::{RouteRequest, session_key};
pub use shared_placement::{SharedPlacement, SharedTarget};
pub use state::{Forward, PoolDecision, Route};

use state::{PendingReplies, PoolState};

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::{
    Event, Explanation, Load, PeerId, ReplicaId, ReplicaSpec, ReplicaStatus, Router, Stats, Time,
};
use tokio::sync::{Notify, watch};

use crate::config::PoolConfig;
use crate::metrics::PoolMetrics;
use crate::recorder::recorder::Recorder;

/// One pool. Everything that drives it goes through here.
#[derive(Debug)]
pub struct Pool {
    name: Arc<str>,
    config: watch::Sender<Arc<PoolConfig>>,
    members: watch::Sender<Arc<Vec<Member>>>,
    /// See [`Pool::has_synced`].
    fed: AtomicBool,
    clock: Clock,
    core: Mutex<PoolState>,
    /// Rings when the core's next timeout came nearer than the timer task knows.
    alarm: Arc<Notify>,
    metrics: PoolMetrics,
    recorder: Arc<Recorder>,
    /// The registry's count of changes of membership.
    revision: watch::Sender<u64>,
}

impl Pool {
    /// A pool without replicas. Its time runs once [`timer::spawn`] is called.
    pub(crate) fn new(
        config: Arc<PoolConfig>,
        clock: Clock,
        seed: u64,
        metrics: PoolMetrics,
        revision: watch::Sender<u64>,
    ) -> Self {
        let router = Router::new(config.router.clone(), seed);
        let sources = &config.sources;
        let fed = sources.fixed.is_empty() && sources.dns.is_none();
        Self {
            name: Arc::from(config.model.as_str()),
            config: watch::Sender::new(config),
            members: watch::Sender::default(),
            fed: AtomicBool::new(fed),
            clock,
            core: Mutex::new(PoolState::new(router)),
            alarm: Arc::new(Notify::new()),
            metrics,
            recorder: Arc::default(),
            revision,
        }
    }

    /// The model that it serves; `*` for the pool of every model that no other names.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its Envoy cluster.
    #[must_use]
    pub fn cluster(&self) -> String {
        self.config.borrow().cluster.clone()
    }

    /// Its Envoy cluster, unless it is this one.
    pub(crate) fn cluster_unless(&self, known: Option<&str>) -> Option<String> {
        let config = self.config.borrow();
        (known != Some(&*config.cluster)).then(|| config.cluster.clone())
    }

    /// How long its queue keeps a request.
    pub(crate) fn wait_max(&self) -> Duration {
        self.config.borrow().router.queue.wait_max
    }

    /// Its configuration, now and whenever a reload changes it. Who probes it and who feeds it follow this.
    #[must_use]
    pub fn config(&self) -> watch::Receiver<Arc<PoolConfig>> {
        self.config.subscribe()
    }

    /// Its members, now and whenever they change, in order of address.
    #[must_use]
    pub fn members(&self) -> watch::Receiver<Arc<Vec<Member>>> {
        self.members.subscribe()
    }

    /// Whether its sources have said who its replicas are. Until then it is empty because nobody has asked yet, which
    /// is no reason to refuse a request, or to take from an Envoy the endpoints that it has.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.fed.load(Ordering::Acquire)
    }

    /// Its replicas are as its sources say, or as an operator does.
    pub(crate) fn mark_synced(&self) {
        if !self.fed.swap(true, Ordering::AcqRel) {
            self.revision.send_modify(|revision| *revision += 1);
        }
    }

    /// The clock that stamps its events.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// What records its requests, when somebody wants that.
    #[must_use]
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Takes a replica in. It gets requests after its first good probe. One that is adopted is this region's own from
    /// now on.
    ///
    /// # Errors
    ///
    /// When it is there already, or the pool is full.
    pub fn add_replica(&self, addr: SocketAddr) -> Result<ReplicaId, MembershipError> {
        self.change_members(|core, now| match core.membership.keep(addr) {
            Some(replica) => Ok((replica, PendingReplies::default())),
            None => join(core, now, addr, None),
        })
    }

    /// Lets a replica go at once. What it has in flight ends as it ends.
    ///
    /// # Errors
    ///
    /// When it is not in the pool.
    pub fn remove_replica(&self, addr: SocketAddr) -> Result<ReplicaId, MembershipError> {
        self.change_members(|core, now| {
            let replica = core.membership.remove(addr)?;
            core.unprobed.remove(&replica);
            Ok((replica, core.handle(now, Event::Removed { replica })))
        })
    }

    /// Gives a replica nothing new; it finishes what it has, and stays a member until it is removed.
    ///
    /// # Errors
    ///
    /// When it is not in the pool.
    pub fn drain_replica(&self, addr: SocketAddr) -> Result<ReplicaId, MembershipError> {
        self.change_members(|core, now| {
            let (replica, news) = core.membership.drain(addr)?;
            let replies = if news {
                core.handle(now, Event::Draining { replica })
            } else {
                PendingReplies::default()
            };
            Ok((replica, replies))
        })
    }

    /// What a probe said that was sent at `sent`. News of a replica that left is dropped.
    pub fn probed(&self, replica: ReplicaId, load: Load, sent: Time) {
        self.replica_event(
            replica,
            Event::Probed {
                replica,
                load,
                sent,
            },
        );
    }

    /// A probe failed or took too long.
    pub fn probe_failed(&self, replica: ReplicaId) {
        self.replica_event(replica, Event::ProbeFailed { replica });
    }

    /// Where a request would go now, and why. Nothing changes by asking.
    #[must_use]
    pub fn explain(&self, ask: &RouteRequest) -> Explanation {
        let core = self.lock();
        let now = self.clock.now();
        let request = core.request(ask);
        core.router.explain(now, &request)
    }

    /// What the core knows of each replica.
    #[must_use]
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        let core = self.lock();
        core.router.replicas(self.clock.now()).collect()
    }

    /// A replica that no probe has asked yet, well or in vain. What the core says of such a one depends on the pool's
    /// mode: where a probe is not needed, it may be available.
    #[must_use]
    pub fn unprobed(&self) -> Option<SocketAddr> {
        let core = self.lock();
        let mut unprobed = core.unprobed.iter();
        unprobed.find_map(|id| core.membership.addr_of(*id))
    }

    /// What the core has counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = self.lock();
        core.router.stats(self.clock.now())
    }

    /// Hands in a request. The ticket gives its place back when it is dropped.
    pub fn submit(self: &Arc<Self>, ask: &RouteRequest) -> (InFlightGuard, Submission) {
        let recorded = self.recorder.begin(|| self.clock.now(), ask);
        let (id, submission) = self.drive(|core, now| {
            let (id, submission, replies) = core.arrive(now, ask);
            ((id, submission), replies)
        });
        let ticket = InFlightGuard::new(Arc::clone(self), id, recorded);
        if let Submission::Decided(decision) = &submission {
            self.count(decision);
        }
        (ticket, submission)
    }

    /// Feeds the core what became of a request.
    pub(crate) fn request_event(&self, event: Event) {
        self.drive(|core, now| {
            if let Event::Aborted { id } = event {
                core.forget(id);
            }
            ((), core.handle(now, event))
        });
    }

    /// Counts what a response told of itself.
    pub(crate) fn observe(&self, outcome: &Outcome) {
        self.metrics.observe(outcome);
    }

    /// Who listens at an address.
    pub(crate) fn replica_at(&self, addr: SocketAddr) -> Option<ReplicaId> {
        self.lock().membership.id_of(addr)
    }

    /// Applies a changed configuration; replicas, queue and index stay.
    pub(crate) fn reconfigure(&self, config: Arc<PoolConfig>) {
        if *self.config.borrow() == config {
            return;
        }
        self.drive(|core, now| {
            core.router.reconfigure(now, config.router.clone());
            ((), core.settle(None).1)
        });
        self.config.send_replace(config);
    }

    /// Answers everything that waits; from now on every request is refused.
    pub(crate) fn shut_down(&self) {
        self.drive(|core, now| ((), core.handle(now, Event::Shutdown)));
    }

    /// The core's next timeout.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.lock().router.poll_timeout()
    }

    /// Rings when [`Pool::deadline`] came nearer.
    pub(crate) fn alarm(&self) -> Arc<Notify> {
        Arc::clone(&self.alarm)
    }

    /// Tells the core that its timeout has come.
    pub(crate) fn tick(&self) {
        self.drive(|core, now| {
            core.router.handle_timeout(now);
            ((), core.settle(None).1)
        });
    }

    fn replica_event(&self, replica: ReplicaId, event: Event) {
        self.drive(|core, now| {
            let replies = match core.membership.addr_of(replica) {
                Some(_) => {
                    core.unprobed.remove(&replica);
                    core.handle(now, event)
                }
                None => PendingReplies::default(),
            };
            ((), replies)
        });
    }

    /// Changes the members, and tells whoever follows them before the lock is given up: followers see every
    /// change in the order in which it happened.
    fn change_members(
        &self,
        change: impl FnOnce(
            &mut PoolState,
            Time,
        ) -> Result<(ReplicaId, PendingReplies), MembershipError>,
    ) -> Result<ReplicaId, MembershipError> {
        self.drive(|core, now| match change(core, now) {
            Ok((replica, replies)) => {
                self.members
                    .send_replace(Arc::new(core.membership.members()));
                self.revision.send_modify(|revision| *revision += 1);
                (Ok(replica), replies)
            }
            Err(error) => (Err(error), PendingReplies::default()),
        })
    }

    /// Runs one step of the core, wakes the timer when the next timeout came nearer, and delivers the answers.
    fn drive<T>(&self, step: impl FnOnce(&mut PoolState, Time) -> (T, PendingReplies)) -> T {
        let (result, replies, nearer) = {
            let mut core = self.lock();
            let before = core.router.poll_timeout();
            let (result, replies) = step(&mut core, self.clock.now());
            let after = core.router.poll_timeout();
            let nearer = after.is_some_and(|after| before.is_none_or(|before| after < before));
            (result, replies, nearer)
        };
        if nearer {
            self.alarm.notify_one();
        }
        for verdict in replies.verdicts() {
            self.count(verdict);
        }
        replies.send();
        result
    }

    fn count(&self, verdict: &PoolDecision) {
        match verdict {
            PoolDecision::Dispatch(route) => self.metrics.waited(route.decision.queued_for),
            PoolDecision::Forward(forward) => self.metrics.waited(forward.forwarding.queued_for),
            // The core counts these itself.
            PoolDecision::Reject { .. } => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // A panic under the lock is a bug in the core; the other requests still want their answers.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn join(
    core: &mut PoolState,
    now: Time,
    addr: SocketAddr,
    adopted_from: Option<PeerId>,
) -> Result<(ReplicaId, PendingReplies), MembershipError> {
    let replica = core.membership.add(addr, adopted_from)?;
    core.unprobed.insert(replica);
    let spec = ReplicaSpec {
        name: addr.to_string(),
    };
    Ok((replica, core.handle(now, Event::Added { replica, spec })))
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The timer task looks whether the pool is still there.
        self.alarm.notify_one();
    }
}
