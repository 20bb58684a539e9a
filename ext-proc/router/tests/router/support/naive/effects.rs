//! Checks each effect of the router against the naive model.

use std::collections::BTreeSet;

use isotherm_policies::PolicyName;
use isotherm_router::{
    Choice, Decision, Effect, Event, QueueOrder, RejectReason, ReplicaId, Request, RequestId,
    Scope, Tier,
};

use super::super::serves_in_order;
use super::Naive;
use super::peers::{Since, weighs_times};
use super::replica::InFlightRequest;

impl Naive {
    pub(super) fn event(&mut self, event: Event) {
        self.event_foretold(event, None);
    }

    pub(super) fn event_foretold(&mut self, event: Event, choice: Option<Choice>) {
        self.tick();
        self.router.handle(self.now, event);
        self.settle(choice);
    }

    /// Takes the effects, and checks them and everything else.
    pub(super) fn settle(&mut self, mut foretold: Option<Choice>) {
        self.look_whether_all_fail();
        let (mut placed, mut left) = (0, false);
        while let Some(effect) = self.router.poll_effect() {
            self.log.push(effect.clone());
            match effect {
                Effect::Dispatch(id, decision) => {
                    let newest = RequestId(self.next_request - 1);
                    if let Some(choice) = foretold.take_if(|_| id == newest)
                        && !self.may_be_asked_again(&choice)
                    {
                        let (replica, reason) = (decision.replica, decision.reason);
                        assert_eq!(
                            choice,
                            Choice::Dispatch {
                                replica,
                                prefiller: decision.prefiller,
                                reason
                            }
                        );
                    }
                    placed += 1;
                    self.dispatched(id, &decision);
                    // A request that is asked before the arriving one may change the outcome for it.
                    foretold.take_if(|_| !serves_in_order(self.policy()));
                }
                Effect::Reject { id, reason, .. } => self.rejected(id, reason),
                Effect::Hung { replica, .. } => {
                    let failing = &mut self.replicas.get_mut(&replica).unwrap().failing;
                    failing.hangs(self.now);
                }
                Effect::Forward(id, forwarding) => {
                    let newest = RequestId(self.next_request - 1);
                    if let Some(choice) = foretold.take_if(|_| id == newest) {
                        let (peer, reason) = (forwarding.peer, forwarding.reason);
                        assert_eq!(choice, Choice::Forward { peer, reason });
                    }
                    placed += 1;
                    left |= !self.forwarded(id, &forwarding);
                }
            }
        }
        let free = self.router.stats(self.now).available_replicas;
        let may_leave = free == 0 || weighs_times(&self.config.region, self.tells_times);
        assert!(!left || may_leave, "{free} replicas were free here");
        let told = std::iter::from_fn(|| self.router.poll_placement()).count();
        assert_eq!(told, placed, "siblings hear of each");
        self.check();
    }

    /// Whether one that was to wait may yet go in the same event: another replica has become free by it. The pool is then not busy either,
    /// so the share of a tenant is not bounded.
    fn may_be_asked_again(&self, choice: &Choice) -> bool {
        let limit = RejectReason::TenantLimit;
        let waits = matches!(choice, Choice::Wait { .. })
            || matches!(choice, Choice::Reject { reason } if *reason == limit);
        waits && !serves_in_order(self.policy())
    }

    /// Removes a waiting request; returns the earlier ones that could have been dispatched instead.
    pub(super) fn take_waiting(
        &mut self,
        id: RequestId,
        could: impl Fn(&Self, &Request) -> bool,
    ) -> (Request, Since, Vec<(RequestId, Since)>) {
        assert!(self.answered.insert(id), "{id:?} was answered twice");
        let at = self
            .waiting
            .iter()
            .position(|(request, _)| request.id == id);
        let at = at.expect("only who waits is sent");
        let older = self.waiting[..at].iter();
        let passed = older.filter(|(older, _)| could(self, older));
        let passed = passed.map(|(older, since)| (older.id, *since)).collect();
        let (request, since) = self.waiting.remove(at);
        (request, since, passed)
    }

    /// A request goes to a replica that these could have gone to, who came before it.
    fn pass_over(&self, id: RequestId, older: &[(RequestId, Since)]) {
        let policy = self.policy();
        assert!(
            older.is_empty() || !self.serves_by_rank(),
            "{older:?} came before {id:?}"
        );
        // Other policies put requests past the SLO last, and others pass those without bound. Where the line is not the order of
        // arrival, later requests may be in front.
        let half = self.config.queue.wait_max / 2;
        let is_by_arrival = self.config.queue.order == QueueOrder::Auto;
        let is_plain = self.config.tiers.is_none() && is_by_arrival;
        let is_bound = policy == PolicyName::DualMap && is_plain;
        for (older, since) in older.iter().filter(|_| is_bound) {
            assert!(since.arrived.after(half) > self.now, "{older:?} waits");
        }
    }

    pub(super) fn dispatched(&mut self, id: RequestId, decision: &Decision) {
        let could = |naive: &Self, older: &Request| naive.is_eligible(older, decision.replica);
        let (request, since, _) = self.take_waiting(id, could);
        if !since.held {
            let rank = self.rank(&request, &since);
            // A batch request that is promoted now joins the line behind the requests that the event serves first.
            let joined_later = |other: &Request, standing: &Since| {
                let is_batch = other.tier == Tier::NonInteractive;
                is_batch && standing.entered == self.now && standing.place > since.place
            };
            let in_front = self.waiting.iter().filter(|(other, standing)| {
                !standing.held
                    && could(self, other)
                    && self.rank(other, standing) < rank
                    && !joined_later(other, standing)
            });
            let in_front: Vec<_> = in_front.map(|(other, since)| (other.id, *since)).collect();
            self.pass_over(id, &in_front);
        }
        self.check_release(&request, &since, decision.replica, decision.class);
        assert_eq!(decision.queued_for, self.now.since(since.arrived));
        assert!(decision.matched_bytes <= request.fingerprint.total_bytes());
        assert!(self.is_eligible(&request, decision.replica));
        assert!(decision.fallbacks.len() <= self.config.fallbacks_max);
        let mut named: Vec<ReplicaId> = decision.fallbacks.to_vec();
        named.push(decision.replica);
        assert!(named.iter().all(|r| self.is_eligible(&request, *r)));
        for fallback in &decision.fallbacks {
            let fails = self.replicas[fallback].failing.left_out.is_some();
            assert!(self.all_fail || !fails, "{fallback:?} fails itself");
        }
        assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len());

        assert!(self.may_be_pushed(decision.replica), "{decision:?}");
        let replica = self.replicas.get_mut(&decision.replica).unwrap();
        let blocks = request.fingerprint.blocks();
        assert!(
            blocks
                .iter()
                .take_while(|block| block.end_bytes <= decision.matched_bytes)
                .all(|block| replica.sent.contains(&block.hash)),
            "a match with what it was never sent"
        );
        replica.sent.extend(blocks.iter().map(|block| block.hash));
        replica.outstanding += 1;
        replica.pushes.push(self.now);
        let flight = InFlightRequest {
            replica: decision.replica,
            request,
            epoch: replica.failing.epoch,
            is_trial: replica.failing.sent(self.now),
            at: self.now,
            has_begun: false,
            matched_bytes: decision.matched_bytes,
        };
        self.in_flight.insert(id, flight);
    }

    pub(super) fn rejected(&mut self, id: RequestId, reason: RejectReason) {
        assert!(self.answered.insert(id), "{id:?} was answered twice");
        let at = self
            .waiting
            .iter()
            .position(|(request, _)| request.id == id);
        let (request, since) = self.waiting.remove(at.expect("only who waits is refused"));
        let staying = || self.replicas.values().filter(|r| !r.draining);
        match reason {
            RejectReason::QueueFull => {
                self.check_queue_full(&request, &since);
            }
            RejectReason::WaitedTooLong | RejectReason::NoHealthyReplica => {
                let wait_max = self.wait_max(&request, &since);
                assert!(since.entered.after(wait_max) <= self.now);
            }
            RejectReason::EmptySubset => {
                let mut all = self.replicas.keys();
                assert!(!all.any(|replica| self.is_eligible(&request, *replica)));
            }
            RejectReason::NoReplica => assert_eq!(staying().count(), 0),
            RejectReason::RegionFull => {
                assert_eq!(request.scope, Scope::Forwarded);
                let tau = usize::try_from(self.config.region.queue_max).unwrap();
                let waiting = self.waiting.iter().filter(|(_, since)| !since.held);
                assert!(since.held || waiting.count() > tau);
            }
            RejectReason::ShuttingDown => {}
            RejectReason::Quarantined => unreachable!("no replica breaks in these operations"),
            RejectReason::TenantLimit => assert!(self.config.tenants.is_some()),
            RejectReason::NoSpareCapacity => {
                let wait_max = self.wait_max(&request, &since);
                assert!(since.held && since.entered.after(wait_max) <= self.now);
            }
        }
    }
}
