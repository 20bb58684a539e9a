//! What one lock guards: the routing core, who is in the pool, and who waits for an answer.
//!
//! The effects of an event are taken out of the core under the same lock that fed it, so that an answer is made
//! from the roster that it was decided on, and every waiting request is answered once. They are handed over after
//! the lock is released ([`PendingReplies::send`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use isotherm_router::{
    Decision, Effect, Event, Forwarding, RejectReason, ReplicaId, Request, RequestId, Router, Time,
};
use tokio::sync::oneshot;

use super::endpoint::Endpoint;
use super::in_flight::Submission;
use super::membership::Membership;
use super::peers::{PeerEntry, PeerTable};
use super::request::RouteRequest;

/// How a request was decided.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolDecision {
    /// The request goes to a replica.
    Dispatch(Route),
    /// The request goes to another region.
    Forward(Forward),
    /// The request is rejected.
    Reject {
        /// The reason for the rejection.
        reason: RejectReason,
        /// The delay after which the client may try again.
        retry_after: Duration,
    },
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The chosen replica.
    pub chosen: Endpoint,
    /// Whom to try next, best first.
    pub fallbacks: Vec<Endpoint>,
    /// Why, as the routing core says.
    pub decision: Decision,
}

/// The region that a request goes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// The region.
    pub peer: PeerEntry,
    /// The regions, for those who name them.
    pub peer_table: Arc<PeerTable>,
    /// Why, as the routing core says.
    pub forwarding: Forwarding,
}

/// Answers to requests that waited, on their way out of the lock.
#[must_use = "a waiting request hears of its answer only when this is sent"]
#[derive(Debug, Default)]
pub(crate) struct PendingReplies(Vec<(oneshot::Sender<PoolDecision>, PoolDecision)>);

impl PendingReplies {
    /// Hands every answer over. Whoever went away in the meantime gives the place back by its own drop guard.
    pub(crate) fn send(self) {
        for (waiter, verdict) in self.0 {
            drop(waiter.send(verdict));
        }
    }

    /// Adds answers that came after these.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }

    /// The answers, for those who count them.
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = &PoolDecision> {
        self.0.iter().map(|(_, verdict)| verdict)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) router: Router,
    pub(crate) membership: Membership,
    /// The regions, where there are others.
    pub(crate) peer_table: Option<Arc<PeerTable>>,
    /// Members that no probe has asked yet, well or in vain.
    pub(crate) unprobed: BTreeSet<ReplicaId>,
    waiting: HashMap<RequestId, oneshot::Sender<PoolDecision>>,
    next_request: u64,
}

impl PoolState {
    /// A core with nobody in it.
    pub(crate) fn new(router: Router) -> Self {
        Self {
            router,
            membership: Membership::default(),
            peer_table: None,
            unprobed: BTreeSet::new(),
            waiting: HashMap::new(),
            next_request: 0,
        }
    }

    /// Hands a new request to the core.
    pub(crate) fn arrive(
        &mut self,
        now: Time,
        ask: &RouteRequest,
    ) -> (RequestId, Submission, PendingReplies) {
        let request = self.request(ask);
        let id = request.id;
        // 2^64 requests do not happen.
        self.next_request = self.next_request.wrapping_add(1);
        self.router.handle(now, Event::Arrived(request));
        let (decided, replies) = self.settle(Some(id));
        let admitted = match decided {
            Some(verdict) => Submission::Decided(verdict),
            None => {
                let (sender, receiver) = oneshot::channel();
                self.waiting.insert(id, sender);
                Submission::Queued(receiver)
            }
        };
        (id, admitted, replies)
    }

    /// The request that `ask` is if it comes now.
    pub(crate) fn request(&self, ask: &RouteRequest) -> Request {
        Request {
            id: RequestId(self.next_request),
            fingerprint: ask.fingerprint.clone(),
            session: ask.session,
            tier: ask.tier,
            prompt_tokens: ask.prompt_tokens,
            output_tokens_max: ask.output_tokens_max,
            scope: ask.scope.clone(),
            subset: ask.subset.as_ref().map(|addrs| {
                addrs
                    .iter()
                    .filter_map(|addr| self.membership.id_of(*addr))
                    .collect()
            }),
        }
    }

    /// Feeds the core any other event.
    pub(crate) fn handle(&mut self, now: Time, event: Event) -> PendingReplies {
        self.router.handle(now, event);
        self.settle(None).1
    }

    /// Takes a request off the list of those who wait: nobody listens any more.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.waiting.remove(&id);
    }

    /// Empties the core of its effects; returns the one for `arriving`, which has no waiter yet, apart.
    pub(crate) fn settle(
        &mut self,
        arriving: Option<RequestId>,
    ) -> (Option<PoolDecision>, PendingReplies) {
        let mut decided = None;
        let mut replies = PendingReplies::default();
        while let Some(effect) = self.router.poll_effect() {
            let (id, verdict) = self.verdict(effect);
            if Some(id) == arriving {
                decided = Some(verdict);
            } else if let Some(waiter) = self.waiting.remove(&id) {
                replies.0.push((waiter, verdict));
            }
        }
        (decided, replies)
    }

    fn verdict(&self, effect: Effect) -> (RequestId, PoolDecision) {
        match effect {
            Effect::Reject {
                id,
                reason,
                retry_after,
            } => (
                id,
                PoolDecision::Reject {
                    reason,
                    retry_after,
                },
            ),
            Effect::Dispatch { id, decision } => (id, self.route(decision)),
            Effect::Forward { id, forwarding } => (id, self.forward(forwarding)),
        }
    }

    fn forward(&self, forwarding: Forwarding) -> PoolDecision {
        let peer_table = self.peer_table.as_ref();
        match peer_table.and_then(|known| Some((known.get(forwarding.peer)?.clone(), known))) {
            Some((peer, peer_table)) => PoolDecision::Forward(Forward {
                peer,
                peer_table: Arc::clone(peer_table),
                forwarding,
            }),
            // The peer_table changes only together with the core, so a peer that the core chose is in it.
            None => nowhere(),
        }
    }

    fn route(&self, decision: Decision) -> PoolDecision {
        let endpoint_of = |id: &ReplicaId| self.membership.endpoint_of(*id).cloned();
        match endpoint_of(&decision.replica) {
            Some(chosen) => PoolDecision::Dispatch(Route {
                chosen,
                fallbacks: decision.fallbacks.iter().filter_map(endpoint_of).collect(),
                decision,
            }),
            // The roster changes only together with the core, so a replica that the core chose is on it.
            None => nowhere(),
        }
    }
}

fn nowhere() -> PoolDecision {
    PoolDecision::Reject {
        reason: RejectReason::NoReplica,
        retry_after: Duration::from_secs(1),
    }
}
