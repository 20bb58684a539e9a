//! Charges of tenants (VTC, arXiv 2401.00588): work measured at replicas, divided by the tenant's weight.
//!
//! Work is the time of a replica that a request takes: to compute what its cache does not hold, and for the request's share of each
//! decoding step. A dispatch charges an estimate. The end of the request replaces the estimate by what was measured, or takes it back where
//! the replica failed before the first byte. So the charges of a tenant add up to its measured work once all its requests have ended.
//!
//! A tenant whose requests begin to wait is lifted to the charge of the least charged tenant that waits: idle time saves nothing up.
//! Without waiting tenants, the charge at which the last request started counts instead. Estimates count for neither: once they
//! are corrected, the lifted tenant would pay for work that was never done, and wait until the other one has had as much.

use core::time::Duration;

use super::Router;
use super::feedback::ResponseUsage;
use crate::pool_state::{InFlightRequest, WorkAccount};
use crate::queue::{Band, QueuedRequest};
use crate::tenants::{Charge, TenantAccount, TenantSlot, Work};
use crate::{End, FairnessStatus, Placement, ReplicaId, TenantCharge, TenantStatus};

/// The most work of one request, and of one placement of a sibling.
const WORK_MAX: Duration = Duration::from_secs(3_600);

impl Router {
    const fn is_fair(&self) -> bool {
        self.pool.config.fairness.is_some()
    }

    /// The account of a queued request's tenant, lifted if its requests begin to wait.
    pub(super) fn enter_account(&mut self, queued: &QueuedRequest) -> TenantAccount {
        if self.is_fair() && !self.pool.queue.has_tenant(queued.tenant, queued.band) {
            self.lift(queued.tenant, queued.band);
        }
        self.account(queued.tenant)
    }

    fn account(&self, slot: TenantSlot) -> TenantAccount {
        TenantAccount {
            slot,
            charge: self.pool.tenants.charge(slot),
        }
    }

    /// Raises a tenant's charge to that of the least charged tenant that waits.
    fn lift(&mut self, slot: TenantSlot, band: Band) {
        let least = self.pool.queue.least_charged(band);
        let to = least.map_or_else(
            || self.pool.tenants.floor(),
            |least| self.measured_charge(least),
        );
        self.pool.tenants.lift(slot, to);
        self.publish_charge(slot);
    }

    /// Tells the queue a tenant's charge, which orders the tenants.
    fn publish_charge(&mut self, slot: TenantSlot) {
        let account = self.account(slot);
        self.pool.queue.set_charge(account);
    }

    /// Tells the queue the charges of all tenants, after a change of the rules.
    pub(super) fn publish_charges(&mut self) {
        if self.is_fair() {
            for account in self.pool.tenants.accounts() {
                self.pool.queue.set_charge(account);
            }
        }
    }

    /// Charges the estimated work of a request that is dispatched now.
    pub(super) fn charge_dispatch(
        &mut self,
        (slot, band): (TenantSlot, Band),
        replica: ReplicaId,
        uncached: f64,
        outstanding: u32,
    ) -> Option<Box<WorkAccount>> {
        if !self.is_fair() {
            return None;
        }
        if !self.pool.queue.has_tenant(slot, band) {
            self.lift(slot, band);
        }
        let least = self.pool.queue.least_charged(band).unwrap_or(slot);
        let start = self.measured_charge(least);
        self.pool.tenants.raise_floor(start);
        let replicas = &self.pool.replicas;
        let answer = replicas.output_tokens();
        let charged = duration(replicas.work_of_s(replica, uncached, answer, outstanding));
        self.charge(slot, Work::plus(charged));
        self.pool.tenants.estimate(slot, Work::plus(charged));
        Some(Box::new(WorkAccount {
            charged,
            began_at: None,
        }))
    }

    /// Replaces the estimated work of a request that has ended by what was measured.
    pub(super) fn settle(&mut self, request: &InFlightRequest, measured: Duration) {
        let Some(account) = &request.account else {
            return;
        };
        let estimate = Work::Minus(account.charged);
        self.pool.tenants.estimate(request.tenant, estimate);
        if self.is_fair() {
            let change = Work::difference(measured, account.charged);
            self.charge(request.tenant, change);
            self.pool.tenants.owe(request.tenant, change);
        }
    }

    fn charge(&mut self, slot: TenantSlot, work: Work) {
        let weight = self.weight_of(slot);
        self.pool.tenants.charge_work(slot, work, weight);
        self.publish_charge(slot);
    }

    /// Charge of a tenant without estimates.
    fn measured_charge(&self, slot: TenantSlot) -> Charge {
        let weight = self.weight_of(slot);
        self.pool.tenants.measured_charge(slot, weight)
    }

    fn weight_of(&self, slot: TenantSlot) -> f64 {
        let rules = self.pool.config.fairness.as_ref();
        let id = self.pool.tenants.id_of(slot);
        let weight = id.and_then(|id| rules?.weights.get(&id).copied());
        weight.unwrap_or(1.0)
    }

    /// Work of a request that has ended. Tokens that the engine did not tell are estimated.
    pub(super) fn measured_work(
        &self,
        request: &InFlightRequest,
        end: End,
        usage: Option<&ResponseUsage>,
    ) -> Duration {
        if !self.is_fair() || (end != End::Answered && !request.has_begun) {
            return Duration::ZERO;
        }
        let replicas = &self.pool.replicas;
        let prompt = usage.and_then(|usage| usage.prompt_tokens.zip(usage.cached_tokens));
        let uncached = prompt.map_or(request.uncached_tokens, |(prompt, cached)| {
            f64::from(prompt.saturating_sub(cached))
        });
        let output = usage.and_then(|usage| usage.completion);
        let output = output.map_or_else(|| replicas.output_tokens(), f64::from);
        let (replica, outstanding) = (request.replica, request.outstanding);
        duration(replicas.work_of_s(replica, uncached, output, outstanding))
    }

    /// Work of a request whose client has gone: the part of its prompt, and of its answer, that may have been done.
    pub(super) fn aborted_work(&self, request: &InFlightRequest) -> Duration {
        let replicas = &self.pool.replicas;
        let (replica, outstanding) = (request.replica, request.outstanding);
        let prompt_s = replicas.work_of_s(replica, request.uncached_tokens, 0.0, outstanding);
        let elapsed = |since| self.pool.now.since(since).as_secs_f64();
        let began_at = request
            .account
            .as_ref()
            .and_then(|account| account.began_at);
        let work_s = match began_at {
            Some(began_at) => prompt_s + elapsed(began_at) / f64::from(outstanding.max(1)),
            None => prompt_s.min(elapsed(request.dispatched_at)),
        };
        duration(work_s)
    }

    /// The change of a tenant's account that goes to the siblings with a placement.
    pub(super) fn take_charge(
        &mut self,
        slot: TenantSlot,
        account: Option<&WorkAccount>,
    ) -> Option<TenantCharge> {
        let work = account?.charged;
        let tenant = self.pool.tenants.id_of(slot)?;
        let owed = self.pool.tenants.take_owed(slot);
        Some(TenantCharge {
            tenant,
            work_us: owed.and(Work::plus(work)).micros(),
        })
    }

    /// Charges a tenant for what a sibling dispatched.
    pub(super) fn charge_shared(&mut self, placement: &Placement) {
        let Some(charge) = placement.charge.filter(|_| self.is_fair()) else {
            return;
        };
        let slot = self.pool.track_tenant(charge.tenant);
        if !self.pool.queue.has_tenant(slot, Band::Waiting) {
            self.lift(slot, Band::Waiting);
        }
        let most = i64::try_from(WORK_MAX.as_micros()).unwrap_or(i64::MAX);
        let work = Work::from_micros(charge.work_us.clamp(-most, most));
        let weight = self.weight_of(slot);
        self.pool.tenants.charge_of_sibling(slot, work, weight);
        self.publish_charge(slot);
    }

    /// Figures of the fairness between tenants; all zero in a pool without such rules.
    #[must_use]
    pub fn fairness_status(&self) -> FairnessStatus {
        let charges = self.pool.queue.charges(Band::Waiting);
        let is_backlogged = |tenant: &&TenantStatus| tenant.waiting > 0;
        let backlogged = self.pool.tenants.all().filter(is_backlogged).count();
        FairnessStatus {
            backlogged: if self.is_fair() { backlogged } else { 0 },
            gap: charges.map_or(Duration::ZERO, |(least, most)| most.above(least)),
        }
    }
}

/// Seconds of work as a duration, within bounds.
fn duration(work_s: f64) -> Duration {
    let work = Duration::try_from_secs_f64(work_s.max(0.0));
    work.unwrap_or(WORK_MAX).min(WORK_MAX)
}
