//! The task that plans: samples in every few seconds, plans out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_planner::{
    AdoptedPlan, Plan, PlanReason, PlannerConfig, PoolPlan, ReplicasSample, Sample,
};
use isotherm_router::Time;
use tokio::sync::{broadcast, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::exchange::{SIBLING_SILENCE_MAX, Siblings, demand_sample, minute_of, share};
use super::samples::{WarmthSurvey, replicas_sample};
use super::webhook::{self, WebhookCall};
use super::{PoolScalingStatus, ScalingHandle, ScalingStatus, state_file, unix_now};
use crate::config::{Config, PoolScalingConfig, ScalingMode, WebhookConfig};
use crate::peering::PoolShare;
use crate::pool::{DemandParts, Pool, PoolRegistry};
use crate::regions::{ReceivedShare, RegionsHandle};
use crate::tasks::{AbortOnDrop, vital};

/// Time between two plans.
const TICK: Duration = Duration::from_secs(1);
/// Time between two writes of the state where no number of replicas changes.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// Share of the time that writes take at most where numbers change.
const WRITING_MAX: f64 = 0.1;

/// The task's own state.
#[derive(Debug)]
pub(crate) struct ScalingTask {
    handle: ScalingHandle,
    pool_registry: Arc<PoolRegistry>,
    regions: Option<RegionsHandle>,
    config: watch::Receiver<Arc<Config>>,
    shares: Option<broadcast::Receiver<ReceivedShare>>,
    siblings: Siblings,
    pools: BTreeMap<String, ScaledPool>,
    started: Instant,
    saved: Instant,
    /// Duration of the last write of the state.
    write_time: Duration,
    /// Whether a number of replicas has changed since the last write.
    has_unsaved_number: bool,
}

/// Memory of the task about one pool.
#[derive(Debug, Default)]
struct ScaledPool {
    survey: WarmthSurvey,
    /// Minute whose demand is being summed up.
    minute: u64,
    /// First minute that is summed up from its beginning.
    whole_from: u64,
    /// Last complete minute.
    last: Option<(u64, DemandParts, f64)>,
    decisions: BTreeMap<PlanReason, u64>,
    epoch: u64,
    webhook: Option<RunningWebhook>,
}

#[derive(Debug)]
struct RunningWebhook {
    config: WebhookConfig,
    calls: watch::Sender<Option<WebhookCall>>,
    _task: AbortOnDrop,
}

impl ScalingTask {
    /// Prepares the task, and reads the saved state.
    pub(crate) fn new(
        handle: &ScalingHandle,
        pool_registry: &Arc<PoolRegistry>,
        regions: Option<&RegionsHandle>,
        config: watch::Receiver<Arc<Config>>,
    ) -> Self {
        // The standard library seeds its hashers from the system's randomness.
        let own = (unix_now().as_nanos(), rand::random());
        let now = Instant::now();
        let mut task = Self {
            handle: handle.clone(),
            pool_registry: Arc::clone(pool_registry),
            shares: regions.map(RegionsHandle::scaling_shares),
            regions: regions.cloned(),
            config,
            siblings: Siblings::new(own),
            pools: BTreeMap::new(),
            started: now,
            saved: now,
            write_time: Duration::ZERO,
            has_unsaved_number: false,
        };
        let config = task.reconfigure();
        let state = config
            .scaling
            .state_file
            .as_deref()
            .and_then(state_file::read);
        if let Some(state) = state {
            task.handle.planner.lock().restore(state);
        }
        task
    }

    /// Plans until the service stops, then saves the state.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
            if self.config.has_changed().unwrap_or(false) {
                self.reconfigure();
            }
            self.tick();
            if self.is_save_due() {
                self.save().await;
            }
        }
        self.save().await;
    }

    /// Applies the configuration to the planner.
    fn reconfigure(&mut self) -> Arc<Config> {
        let config = Arc::clone(&self.config.borrow_and_update());
        let pools = config.pools.iter().filter_map(|pool| {
            let scaling = pool
                .scaling
                .as_ref()
                .filter(|scaling| scaling.mode != ScalingMode::Off)?;
            Some((pool.model.clone(), scaling.rules.clone()))
        });
        let planner_config = PlannerConfig {
            region: self.region(),
            pools: pools.collect(),
            gpus_max: config.scaling.gpus.clone(),
        };
        self.pools
            .retain(|name, _| planner_config.pools.contains_key(name));
        self.handle.planner.lock().reconfigure(planner_config);
        config
    }

    fn region(&self) -> String {
        self.regions
            .as_ref()
            .map(|regions| regions.scaling_identity().0)
            .unwrap_or_default()
    }

    /// Pools with a number, each with its rules; the meters of all others stop.
    fn scaled(&self) -> Vec<(Arc<Pool>, PoolScalingConfig)> {
        let pools = self.pool_registry.pools().into_iter();
        let scaled = pools.filter_map(|pool| {
            let scaling = pool.config().borrow().scaling.clone();
            let scaling = scaling.filter(|scaling| scaling.mode != ScalingMode::Off);
            if scaling.is_none() {
                pool.demand().stop();
            }
            Some((pool, scaling?))
        });
        scaled.collect()
    }

    fn tick(&mut self) {
        let now = unix_now();
        let scaled = self.scaled();
        if scaled.is_empty() {
            self.handle.status.send_replace(Arc::default());
            return;
        }
        self.receive(now);
        let samples: Vec<ReplicasSample> = scaled
            .iter()
            .map(|(pool, config)| self.measure(now, pool, config))
            .collect();
        if !self.knows_siblings() {
            return;
        }
        let is_leader = self.siblings.is_leading(now);
        let began = Instant::now();
        let plan = {
            let mut planner = self.handle.planner.lock();
            planner.set_following(!is_leader);
            for ((pool, _), sample) in scaled.iter().zip(&samples) {
                planner.handle(
                    now,
                    Sample::Replicas(pool.name().to_string(), sample.clone()),
                );
            }
            planner.plan(now)
        };
        let plan_s = began.elapsed().as_secs_f64();
        self.send_share(&scaled, &plan);
        let mut status = ScalingStatus {
            region: self.region(),
            is_leader,
            method: plan.method,
            plan_s,
            pools: BTreeMap::new(),
        };
        for ((pool, config), sample) in scaled.iter().zip(samples) {
            if let Some(pool_plan) = plan.pools.get(&**pool.name()) {
                let pool_status = self.carry_out(pool, config, pool_plan, sample, is_leader);
                status.pools.insert(pool.name().to_string(), pool_status);
            }
        }
        self.handle.status.send_replace(Arc::new(status));
    }

    /// Whether the service has heard its siblings, or waited long enough: a restarted service must not publish a number of its own.
    fn knows_siblings(&self) -> bool {
        let has_siblings = self
            .regions
            .as_ref()
            .is_some_and(|regions| regions.scaling_identity().1);
        !has_siblings || self.siblings.has_heard() || self.started.elapsed() >= SIBLING_SILENCE_MAX
    }

    /// Hands the planner what other services told since the last plan.
    fn receive(&mut self, now: Time) {
        let Some(shares) = &mut self.shares else {
            return;
        };
        let mut planner = self.handle.planner.lock();
        loop {
            match shares.try_recv() {
                Ok(received) => self.siblings.receive(now, &mut planner, &received),
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(
                    broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed,
                ) => return,
            }
        }
    }

    /// Reads the replicas of a pool, and its demand when a minute ends. Returns the sample of the replicas.
    fn measure(&mut self, now: Time, pool: &Pool, config: &PoolScalingConfig) -> ReplicasSample {
        let scaled = self.pools.entry(pool.name().to_string()).or_default();
        let sample = replicas_sample(pool, &mut scaled.survey, TICK, config.rules.utilisation.up);
        let minute = minute_of(now);
        if scaled.minute != minute {
            let sums = pool.demand().take();
            let is_next = scaled.minute + 1 == minute;
            if is_next && scaled.minute >= scaled.whole_from {
                scaled.last = Some((scaled.minute, sums, sample.waiting_s));
            } else {
                // The sums belong to a part of a minute, or to several.
                scaled.last = None;
            }
            if !is_next {
                scaled.whole_from = minute + 1;
            }
            scaled.minute = minute;
            let share = scaled.share(pool, None);
            if share.minute > 0 {
                let demand = demand_sample(&share, self.siblings.own_reporter());
                let mut planner = self.handle.planner.lock();
                planner.handle(now, Sample::Demand(pool.name().to_string(), demand));
            }
        }
        sample
    }

    fn send_share(&self, scaled: &[(Arc<Pool>, PoolScalingConfig)], plan: &Plan) {
        let Some(regions) = &self.regions else {
            return;
        };
        let pools = scaled.iter().filter_map(|(pool, _)| {
            let plan = plan.pools.get(&**pool.name())?;
            Some(self.pools.get(&**pool.name())?.share(pool, Some(plan)))
        });
        regions.share_scaling(share(self.siblings.own_rank(), pools.collect()));
    }

    /// Drains and resumes replicas, counts changes, and tells the webhook.
    fn carry_out(
        &mut self,
        pool: &Pool,
        config: &PoolScalingConfig,
        plan: &PoolPlan,
        sample: ReplicasSample,
        is_leader: bool,
    ) -> PoolScalingStatus {
        let scaled = self.pools.entry(pool.name().to_string()).or_default();
        if plan.epoch != scaled.epoch {
            tracing::info!(
                pool = %pool.name(), desired = plan.desired, ready = plan.ready, epoch = plan.epoch,
                reason = plan.reason.as_ref(), mode = config.mode.as_ref(), "number of replicas"
            );
            *scaled.decisions.entry(plan.reason).or_default() += 1;
            scaled.epoch = plan.epoch;
            self.has_unsaved_number = true;
        }
        if config.mode == ScalingMode::Act && plan.epoch > 0 {
            drain(pool, plan);
            if is_leader {
                scaled.call(pool.name(), self.regions.as_ref(), config, plan);
            }
        }
        PoolScalingStatus {
            mode: config.mode,
            plan: plan.clone(),
            waiting: usize::try_from(sample.waiting).unwrap_or(usize::MAX),
            utilisation: sample.utilisation,
            decisions: scaled.decisions.clone(),
        }
    }

    /// Whether to write the state: soon after a number changed, so that a killed service does not go back to an earlier one.
    fn is_save_due(&self) -> bool {
        let elapsed = self.saved.elapsed();
        let is_soon = self.has_unsaved_number && elapsed >= self.write_time.div_f64(WRITING_MAX);
        is_soon || elapsed >= SAVE_INTERVAL
    }

    async fn save(&mut self) {
        let file = self.config.borrow().scaling.state_file.clone();
        let began = Instant::now();
        if let Some(file) = file.filter(|_| !self.pools.is_empty()) {
            let state = self.handle.planner.lock().state();
            state_file::write(file, state).await;
        }
        self.saved = Instant::now();
        self.write_time = self.saved - began;
        self.has_unsaved_number = false;
    }
}

impl ScaledPool {
    /// Share of the pool for other services.
    fn share(&self, pool: &Pool, plan: Option<&PoolPlan>) -> PoolShare {
        let (minute, sums, waiting_s) = self.last.unwrap_or_default();
        PoolShare {
            model: Arc::clone(pool.name()),
            minute,
            interactive: sums.interactive,
            batch: sums.batch,
            waiting_s,
            plan: plan
                .map(|plan| AdoptedPlan {
                    desired: plan.desired,
                    epoch: plan.epoch,
                    drained: plan.drained.clone(),
                    hold: plan.hold,
                })
                .unwrap_or_default(),
            row: plan.map(|plan| plan.row).unwrap_or_default(),
        }
    }

    /// Tells the webhook a change of the number, or of the replicas to donate.
    fn call(
        &mut self,
        pool: &str,
        regions: Option<&RegionsHandle>,
        config: &PoolScalingConfig,
        plan: &PoolPlan,
    ) {
        let Some(wanted) = &config.webhook else {
            self.webhook = None;
            return;
        };
        if self
            .webhook
            .as_ref()
            .is_none_or(|running| running.config != *wanted)
        {
            let (calls, receiver) = watch::channel(None);
            let task = tokio::spawn(vital("webhook", webhook::run(wanted.clone(), receiver)));
            self.webhook = Some(RunningWebhook {
                config: wanted.clone(),
                calls,
                _task: AbortOnDrop(task.abort_handle()),
            });
        }
        let Some(running) = &self.webhook else {
            return;
        };
        let call = WebhookCall {
            pool: pool.to_owned(),
            region: regions
                .map(|regions| regions.scaling_identity().0)
                .unwrap_or_default(),
            epoch: plan.epoch,
            desired: plan.desired,
            ready: plan.ready,
            reason: plan.reason.into(),
            victims: plan.drain.clone(),
            donate: plan.donate.clone(),
            removal_order: plan.removal_order.clone(),
        };
        running.calls.send_if_modified(|last| {
            let is_new = last
                .as_ref()
                .is_none_or(|last| last.epoch != call.epoch || last.donate != call.donate);
            if is_new {
                *last = Some(call);
            }
            is_new
        });
    }
}

/// Drains the replicas that the plan gives up, and resumes the ones that it wants back.
fn drain(pool: &Pool, plan: &PoolPlan) {
    for (names, is_drain) in [(&plan.undrain, false), (&plan.drain, true)] {
        for name in names {
            let Ok(address) = name.parse::<SocketAddr>() else {
                continue;
            };
            let (changed, event) = if is_drain {
                (pool.drain_replica(address), "surplus replica drains")
            } else {
                (pool.resume_replica(address), "replica serves again")
            };
            match changed {
                Ok(_) => tracing::info!(pool = %pool.name(), replica = name, event),
                Err(error) => {
                    tracing::debug!(pool = %pool.name(), replica = name, %error, "replica not changed")
                }
            }
        }
    }
}
