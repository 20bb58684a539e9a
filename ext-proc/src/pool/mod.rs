//! A pool: the replicas of one model behind one router.
//!
//! `isotherm-router` is free of clocks and sockets. A [`Pool`] feeds its router the events of requests, probes and
//! regions, and turns the router's effects into replies. A [`PoolRegistry`] holds all pools of the service.
//!
//! [`Pool::submit`] returns an [`InFlightGuard`]; dropping the guard releases the request.

mod adapters;
mod decision;
mod demand;
mod endpoint;
mod engine_counters;
mod failures;
mod history;
mod in_flight;
mod log_limit;
mod membership;
mod page_reports;
mod peer_table;
#[cfg(test)]
mod region_tests;
mod regions;
mod registry;
mod request;
mod shared_placement;
mod signals;
mod source_replicas;
mod sources;
mod state;
mod tasks;
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isotherm_router::{
    BatchStatus, Event, Explanation, Load, ReplicaId, ReplicaStatus, RequestId, ResponseKey, Role,
    Router, Scope, Stats, TenantId, TierStatus, Time, WorkClass,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::config::{PoolConfig, PriorityHeader, Sources};
use crate::metrics::PoolMetrics;
use crate::recorder::Recorder;
use crate::sans_io::{DrivenCore, Driver};
use adapters::AdapterNames;
use demand::ExpectedRequest;
use failures::FailureLog;
use history::PoolHistory;
use log_limit::LogLimit;
use signals::SignalCheck;
use state::{PendingReplies, PoolState};

pub use adapters::ReplicaAdapters;
pub use decision::{ForwardRoute, PoolDecision, Route, Submission};
pub(crate) use demand::{DemandMeter, DemandParts, MeterModel};
pub use endpoint::Endpoint;
pub(crate) use history::{HistorySample, SAMPLE_INTERVAL};
pub use in_flight::InFlightGuard;
pub use membership::{Member, MembershipError, REPLICAS_MAX, ReplicaLease};
pub(crate) use page_reports::CountedTokens;
use page_reports::PageReports;
pub use peer_table::{PeerEntry, PeerTable};
pub use registry::{ANY_MODEL, PoolRegistry, PoolTable};
pub use request::{EndpointMatch, RouteRequest, session_key};
pub(crate) use request::{response_key, tenant_id};
pub use shared_placement::{SharedPlacement, SharedTarget};
pub(crate) use signals::sources;
pub(crate) use sources::Discovery;
pub use tasks::follow_sources;
pub(crate) use tasks::for_each_pool;
pub(crate) use tasks::keep_histories;
pub(crate) use tenants::NamedTenant;

/// Time between two looks at a draining replica.
const DRAIN_POLL: Duration = Duration::from_millis(100);

/// A pool and everything that drives it.
#[derive(Debug)]
pub struct Pool {
    name: Arc<str>,
    config: watch::Sender<Arc<PoolConfig>>,
    members: watch::Sender<Arc<Vec<Member>>>,
    has_synced: AtomicBool,
    source_problem: Mutex<Option<Arc<str>>>,
    state: DrivenCore<PoolState>,
    adapters: AdapterNames,
    page_reports: PageReports,
    metrics: PoolMetrics,
    recorder: Arc<Recorder>,
    signal_check: SignalCheck,
    /// Log lines about requests that timeouts of Envoy ended.
    timeout_log: LogLimit,
    /// Log lines about requests that Envoy sent elsewhere.
    override_log: LogLimit,
    demand: DemandMeter,
    history: PoolHistory,
    failures: FailureLog,
    /// The registry's counter of changes of membership.
    revision: watch::Sender<u64>,
    /// The registry's counter of replicas that were found to hang.
    hangs: watch::Sender<u64>,
}

impl Pool {
    /// Creates a pool without replicas. [`crate::sans_io::run_timer`] makes its time pass.
    pub(crate) fn new(
        config: Arc<PoolConfig>,
        clock: Clock,
        seed: u64,
        metrics: PoolMetrics,
        [revision, hangs]: [watch::Sender<u64>; 2],
    ) -> Self {
        let router = Router::new(config.router.clone(), seed);
        let sources = &config.sources;
        let has_synced = sources == &Sources::default();
        Self {
            name: Arc::from(config.model.as_str()),
            config: watch::Sender::new(config),
            members: watch::Sender::default(),
            has_synced: AtomicBool::new(has_synced),
            source_problem: Mutex::default(),
            state: DrivenCore::new(PoolState::new(router), clock),
            adapters: AdapterNames::default(),
            page_reports: PageReports::default(),
            metrics,
            recorder: Arc::default(),
            signal_check: SignalCheck::default(),
            timeout_log: LogLimit::default(),
            override_log: LogLimit::default(),
            demand: DemandMeter::default(),
            history: PoolHistory::default(),
            failures: FailureLog::default(),
            revision,
            hangs,
        }
    }

    /// The model that the pool serves, or [`ANY_MODEL`].
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The last ten minutes.
    pub(crate) const fn history(&self) -> &PoolHistory {
        &self.history
    }

    /// The replicas that fail, and why.
    pub(crate) const fn failures(&self) -> &FailureLog {
        &self.failures
    }

    const fn timeout_log(&self) -> &LogLimit {
        &self.timeout_log
    }

    const fn override_log(&self) -> &LogLimit {
        &self.override_log
    }

    /// The Envoy cluster of the pool.
    pub fn cluster(&self) -> String {
        self.config.borrow().cluster.clone()
    }

    /// The Envoy cluster of the pool, unless it equals `known`.
    pub(crate) fn cluster_unless(&self, known: Option<&str>) -> Option<String> {
        let config = self.config.borrow();
        (known != Some(&*config.cluster)).then(|| config.cluster.clone())
    }

    /// Longest time that a request stays queued, whatever its tier.
    pub(crate) fn wait_max(&self) -> Duration {
        let config = self.config.borrow();
        let of_pool = config.router.queue.wait_max;
        config.router.tiers.as_ref().map_or(of_pool, |tiers| {
            // A batch request that is promoted waits by the rules of its new tier.
            let promoted = tiers.batch.wait_max.saturating_add(tiers.normal.wait_max);
            tiers.fast.wait_max.max(promoted)
        })
    }

    /// Whether the pool distinguishes tiers.
    pub(crate) fn has_tiers(&self) -> bool {
        self.config.borrow().router.tiers.is_some()
    }

    /// The header by which the pool's engines learn the class of a request.
    pub(crate) fn engine_priority(&self, class: WorkClass) -> Option<PriorityHeader> {
        self.config.borrow().engine_priority.header(class)
    }

    /// Follows the configuration of the pool through reloads.
    pub fn config(&self) -> watch::Receiver<Arc<PoolConfig>> {
        self.config.subscribe()
    }

    /// Follows the members of the pool, in the order of their addresses.
    pub fn members(&self) -> watch::Receiver<Arc<Vec<Member>>> {
        self.members.subscribe()
    }

    /// Whether the sources of the pool have reported its replicas. Until then an empty pool is no reason to reject a
    /// request, or to take endpoints away from an Envoy.
    pub fn has_synced(&self) -> bool {
        self.has_synced.load(Ordering::Acquire)
    }

    /// Records that the sources of the pool have reported its replicas.
    pub(crate) fn mark_synced(&self) {
        if !self.has_synced.swap(true, Ordering::AcqRel) {
            self.revision.send_modify(|revision| *revision += 1);
        }
    }

    /// The clock that stamps the events of the pool.
    pub fn clock(&self) -> Clock {
        self.state.clock()
    }

    /// The recorder of the pool's requests.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Adds a replica, which gets requests after its first successful probe. A leased replica becomes this region's own.
    /// Fails when the pool has the replica already, or is full.
    pub fn add_replica(&self, addr: SocketAddr) -> Result<ReplicaId, MembershipError> {
        self.add_replica_as(addr, Role::Both)
    }

    /// Adds a replica with a role, like [`Self::add_replica`].
    /// Fails when the pool has the replica already, or is full.
    pub fn add_replica_as(
        &self,
        addr: SocketAddr,
        role: Role,
    ) -> Result<ReplicaId, MembershipError> {
        self.change_members(|state, now| match state.membership.keep(addr) {
            Some(replica) => {
                state.membership.change_role(addr, role)?;
                state.router.handle(now, Event::RoleChanged(replica, role));
                Ok(replica)
            }
            None => state.add_replica(now, addr, role, None),
        })
    }

    /// Changes the role of a replica. What the router knows of its cache still holds.
    /// Fails when the pool does not have the replica.
    pub fn change_role(&self, addr: SocketAddr, role: Role) -> Result<ReplicaId, MembershipError> {
        self.change_members(|state, now| {
            let replica = state.membership.change_role(addr, role)?;
            state.router.handle(now, Event::RoleChanged(replica, role));
            Ok(replica)
        })
    }

    /// Removes a replica at once. Its requests in flight still end as usual.
    /// Fails when the pool does not have the replica.
    pub fn remove_replica(&self, addr: SocketAddr) -> Result<ReplicaId, MembershipError> {
        self.change_members(|state, now| {
            let replica = state.membership.remove(addr)?;
            state.on_replica_removed(now, replica);
            self.adapters.remove(replica);
            self.page_reports.remove(replica);
            Ok(replica)
        })
    }

    /// Drains a replica: it finishes its requests, gets no new ones, and stays a member until it is removed.
    /// Fails when the pool does not have the replica.
    pub fn drain_replica(&self, addr: SocketAddr) -> Result<ReplicaId, MembershipError> {
        self.change_members(|state, now| {
            let (replica, is_new) = state.membership.drain(addr)?;
            if is_new {
                state.router.handle(now, Event::Draining(replica));
            }
            Ok(replica)
        })
    }

    /// Waits until a replica has no requests, those of siblings included. Returns the requests that are left at the deadline.
    pub(crate) async fn wait_until_empty(&self, replica: ReplicaId, deadline: Instant) -> u32 {
        loop {
            let replicas = self.replicas();
            let status = replicas.iter().find(|status| status.id == replica);
            let left = status.map_or(0, |status| {
                status.outstanding.saturating_add(status.of_others)
            });
            if left == 0 || Instant::now() >= deadline {
                return left;
            }
            sleep_until(deadline.min(Instant::now() + DRAIN_POLL)).await;
        }
    }

    /// Gives a draining replica requests again. What the router knows of its cache still holds.
    /// Fails when the pool does not have the replica.
    pub(crate) fn resume_replica(&self, addr: SocketAddr) -> Result<ReplicaId, MembershipError> {
        self.change_members(|state, now| {
            let (replica, was_draining) = state.membership.resume(addr)?;
            let is_own = state.membership.is_own(addr);
            if was_draining && !(is_own && state.is_suspended) {
                state.router.handle(now, Event::Resumed(replica));
            }
            Ok(replica)
        })
    }

    /// Forgets what the cache of a replica held. Fails when the pool does not have the replica.
    pub(crate) fn forget_cache(&self, addr: SocketAddr) -> Result<ReplicaId, MembershipError> {
        self.change_members(|state, now| {
            let replica = state.membership.id_of(addr);
            let replica = replica.ok_or(MembershipError::Unknown(addr))?;
            state.router.handle(now, Event::CacheEmptied(replica));
            Ok(replica)
        })
    }

    /// Why the sources of the pool cannot be followed now; `None` while they can.
    pub fn source_problem(&self) -> Option<Arc<str>> {
        self.source_problem.lock().clone()
    }

    /// Sets the reason why the sources of the pool cannot be followed.
    pub(crate) fn set_source_problem(&self, problem: Option<Arc<str>>) {
        *self.source_problem.lock() = problem;
    }

    /// Lets the probes of an idle replica rest. Returns what wakes them; `None` while the replica has a request.
    pub(crate) fn rest(&self, replica: ReplicaId) -> Option<Arc<Notify>> {
        self.state.lock().rest(replica)
    }

    /// Reports the result of a probe that was sent at `sent`. A replica that has left is ignored.
    pub fn probed(&self, replica: ReplicaId, load: Load, sent: Time) {
        let event = Event::Probed {
            replica,
            load,
            sent,
        };
        self.probe_event(replica, event);
    }

    /// Reports a probe, sent at `sent`, that was answered without metrics. A replica that has left is ignored.
    pub fn answered_without_metrics(&self, replica: ReplicaId, sent: Time) {
        self.probe_event(replica, Event::AnsweredWithoutMetrics { replica, sent });
    }

    /// Reports a probe that failed or timed out. A replica that has left is ignored.
    pub fn probe_failed(&self, replica: ReplicaId) {
        self.probe_event(replica, Event::ProbeFailed(replica));
    }

    /// Explains where a request would go now, without a change of state.
    pub fn explain(&self, request: &RouteRequest) -> Explanation {
        let state = self.state.lock();
        let now = self.clock().now();
        state.router.explain(now, &state.resolve(now, request))
    }

    /// The router's view of each replica.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        let state = self.state.lock();
        state.router.replicas(self.clock().now()).collect()
    }

    /// Returns a replica without a completed probe, successful or not. The router's view does not tell: in a mode that
    /// needs no probes, an unprobed replica may be available.
    pub fn unprobed(&self) -> Option<SocketAddr> {
        let state = self.state.lock();
        let mut unprobed = state.unprobed.iter();
        unprobed.find_map(|id| state.membership.addr_of(*id))
    }

    /// The router's counters and gauges.
    pub fn stats(&self) -> Stats {
        let state = self.state.lock();
        state.router.stats(self.clock().now())
    }

    /// Figures of the tenants, with their names.
    pub(crate) fn tenants(&self) -> Vec<NamedTenant> {
        let state = self.state.lock();
        state.tenants.named(&state.router)
    }

    /// Figures of the tiers; `None` in a pool without them.
    pub(crate) fn tiers(&self) -> Option<[TierStatus; 3]> {
        let state = self.has_tiers().then(|| self.state.lock())?;
        Some(state.router.tiers(self.clock().now()))
    }

    /// Figures of the batch gate; `None` in a pool without tiers.
    pub(crate) fn batch_status(&self) -> Option<BatchStatus> {
        let state = self.has_tiers().then(|| self.state.lock())?;
        Some(state.router.batch_status(self.clock().now()))
    }

    /// Submits a request. Dropping the guard releases the request.
    pub fn submit(self: &Arc<Self>, request: &RouteRequest) -> (InFlightGuard, Submission) {
        // A request that another region forwarded, or that came back from one, is in the recording of its first arrival.
        let is_first_arrival = match &request.scope {
            Scope::Forwarded => false,
            Scope::Regions { tried } => tried.is_empty(),
            Scope::Local => true,
        };
        let entry = if is_first_arrival {
            let (fingerprint, session) = (&request.fingerprint, request.session);
            let now = || self.clock().now();
            self.recorder
                .begin(now, fingerprint, session, request.output_tokens_max)
        } else {
            None
        };
        let (id, submission) = self.drive(|state, now| state.submit(now, request));
        let tier = self.has_tiers().then_some(request.tier);
        let expected = ExpectedRequest {
            tier: request.tier,
            prompt_tokens: request.prompt_tokens,
            is_foreign: matches!(request.scope, Scope::Forwarded),
            has_api: request.api.is_some(),
            ..ExpectedRequest::default()
        };
        let guard = InFlightGuard::new(Arc::clone(self), id, tier, entry, expected);
        (guard, submission)
    }

    /// Reports what became of a request.
    pub(crate) fn request_event(&self, event: Event) {
        self.drive(|state, now| {
            if let Event::Aborted(id) | Event::Finished { id, .. } = event {
                state.forget(id);
            }
            state.router.handle(now, event);
        });
    }

    /// Sums of the demand of the pool's clients.
    pub(crate) fn demand(&self) -> &DemandMeter {
        &self.demand
    }

    /// Position of the prefix index in its own time, and the work that each replica's removal would cost, in seconds, counting
    /// prefixes that were used after a position.
    pub(crate) fn warmth(&self, since: u64) -> (u64, BTreeMap<ReplicaId, f64>) {
        let state = self.state.lock();
        (state.router.index_tick(), state.router.warmth(since))
    }

    /// The hung replica of a request that its frontend is to end; returned once.
    pub(crate) fn take_abandoned(&self, id: RequestId) -> Option<Endpoint> {
        self.state.lock().take_abandoned(id)
    }

    /// Metrics of the pool's requests.
    pub(crate) fn metrics(&self) -> &PoolMetrics {
        &self.metrics
    }

    /// Returns the replica at an address.
    pub(crate) fn replica_at(&self, addr: SocketAddr) -> Option<ReplicaId> {
        self.state.lock().membership.id_of(addr)
    }

    /// The replica that may have a stored response of a tenant.
    pub(crate) fn endpoint_of_response(
        &self,
        tenant: TenantId,
        response: ResponseKey,
    ) -> Option<Endpoint> {
        let state = self.state.lock();
        let replica = state.router.replica_of_response(tenant, response)?;
        state.membership.endpoint_of(replica).cloned()
    }

    /// Applies a changed configuration; replicas, queue and index stay.
    pub(crate) fn reconfigure(&self, config: Arc<PoolConfig>) {
        if *self.config.borrow() == config {
            return;
        }
        self.drive(|state, now| state.router.reconfigure(now, config.router.clone()));
        self.config.send_replace(config);
    }

    /// Rejects every queued request, and every request from now on.
    pub(crate) fn shut_down(&self) {
        self.drive(|state, now| state.router.handle(now, Event::Shutdown));
    }

    fn probe_event(&self, replica: ReplicaId, event: Event) {
        self.drive(|state, now| {
            if state.membership.addr_of(replica).is_some() {
                state.unprobed.remove(&replica);
                state.router.handle(now, event);
            }
        });
    }

    /// Changes the members and publishes them under the lock, so that followers see every change in order.
    fn change_members(
        &self,
        change: impl FnOnce(&mut PoolState, Time) -> Result<ReplicaId, MembershipError>,
    ) -> Result<ReplicaId, MembershipError> {
        self.drive(|state, now| {
            let replica = change(state, now)?;
            let members = state.membership.members();
            self.members.send_replace(Arc::new(members));
            self.revision.send_modify(|revision| *revision += 1);
            Ok(replica)
        })
    }
}

impl Driver for Pool {
    type Core = PoolState;
    type Deferred = PendingReplies;

    fn driven_core(&self) -> &DrivenCore<PoolState> {
        &self.state
    }

    fn poll_timeout(state: &PoolState) -> Option<Time> {
        state.router.poll_timeout()
    }

    fn handle_timeout(state: &mut PoolState, now: Time) {
        state.router.handle_timeout(now);
    }

    fn take_effects(&self, state: &mut PoolState) -> PendingReplies {
        state.take_replies()
    }

    fn finish(&self, replies: PendingReplies) {
        for hung in &replies.hung {
            tracing::warn!(
                pool = %self.name, replica = %hung.endpoint, abandoned = hung.abandoned,
                "replica hangs: it accepts requests, and nothing comes back"
            );
            self.hangs
                .send_modify(|hangs| *hangs = hangs.wrapping_add(1));
        }
        replies.send();
    }
}
