//! What one lock guards: the routing core, who is in the pool, and who waits for an answer.
//!
//! The effects of an event are taken out of the core under the same lock that fed it, so that an answer is made
//! from the roster that it was decided on, and every waiting request is answered once. They are handed over after
//! the lock is released ([`Deliveries::send`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use isotherm_router::{
    Decision, Effect, Event, Forwarding, RejectReason, ReplicaId, Request, RequestId, Router, Time,
};
use tokio::sync::oneshot;

use super::endpoint::Endpoint;
use super::membership::Roster;
use super::peers::{Directory, Peer};
use super::request::Ask;

/// How a request was decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It goes to a replica.
    Go(Route),
    /// It goes to another region.
    Forward(Forward),
    /// It is refused.
    Refused {
        /// Why.
        reason: RejectReason,
        /// When another try is worth while.
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
    pub peer: Peer,
    /// The regions, for those who name them.
    pub directory: Arc<Directory>,
    /// Why, as the routing core says.
    pub forwarding: Forwarding,
}

/// A request that was handed to the core.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// It was decided at once.
    Decided(Verdict),
    /// It waits.
    Waiting(oneshot::Receiver<Verdict>),
}

/// Answers to requests that waited, on their way out of the lock.
#[must_use = "a waiting request hears of its answer only when this is sent"]
#[derive(Debug, Default)]
pub(crate) struct Deliveries(Vec<(oneshot::Sender<Verdict>, Verdict)>);

impl Deliveries {
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
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.0.iter().map(|(_, verdict)| verdict)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) router: Router,
    pub(crate) roster: Roster,
    /// The regions, where there are others.
    pub(crate) directory: Option<Arc<Directory>>,
    /// Members that no probe has asked yet, well or in vain.
    pub(crate) unasked: BTreeSet<ReplicaId>,
    waiting: HashMap<RequestId, oneshot::Sender<Verdict>>,
    next_request: u64,
}

impl Core {
    /// A core with nobody in it.
    pub(crate) fn new(router: Router) -> Self {
        Self {
            router,
            roster: Roster::default(),
            directory: None,
            unasked: BTreeSet::new(),
            waiting: HashMap::new(),
            next_request: 0,
        }
    }

    /// Hands a new request to the core.
    pub(crate) fn arrive(&mut self, now: Time, ask: &Ask) -> (RequestId, Admitted, Deliveries) {
        let request = self.request(ask);
        let id = request.id;
        // 2^64 requests do not happen.
        self.next_request = self.next_request.wrapping_add(1);
        self.router.handle(now, Event::Arrived(request));
        let (decided, deliveries) = self.settle(Some(id));
        let admitted = match decided {
            Some(verdict) => Admitted::Decided(verdict),
            None => {
                let (sender, receiver) = oneshot::channel();
                self.waiting.insert(id, sender);
                Admitted::Waiting(receiver)
            }
        };
        (id, admitted, deliveries)
    }

    /// The request that `ask` is if it comes now.
    pub(crate) fn request(&self, ask: &Ask) -> Request {
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
                    .filter_map(|addr| self.roster.id_of(*addr))
                    .collect()
            }),
        }
    }

    /// Feeds the core any other event.
    pub(crate) fn handle(&mut self, now: Time, event: Event) -> Deliveries {
        self.router.handle(now, event);
        self.settle(None).1
    }

    /// Takes a request off the list of those who wait: nobody listens any more.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.waiting.remove(&id);
    }

    /// Empties the core of its effects; returns the one for `arriving`, which has no waiter yet, apart.
    pub(crate) fn settle(&mut self, arriving: Option<RequestId>) -> (Option<Verdict>, Deliveries) {
        let mut decided = None;
        let mut deliveries = Deliveries::default();
        while let Some(effect) = self.router.poll_effect() {
            let (id, verdict) = self.verdict(effect);
            if Some(id) == arriving {
                decided = Some(verdict);
            } else if let Some(waiter) = self.waiting.remove(&id) {
                deliveries.0.push((waiter, verdict));
            }
        }
        (decided, deliveries)
    }

    fn verdict(&self, effect: Effect) -> (RequestId, Verdict) {
        match effect {
            Effect::Reject {
                id,
                reason,
                retry_after,
            } => (
                id,
                Verdict::Refused {
                    reason,
                    retry_after,
                },
            ),
            Effect::Dispatch { id, decision } => (id, self.route(decision)),
            Effect::Forward { id, forwarding } => (id, self.forward(forwarding)),
        }
    }

    fn forward(&self, forwarding: Forwarding) -> Verdict {
        let directory = self.directory.as_ref();
        match directory.and_then(|known| Some((known.get(forwarding.peer)?.clone(), known))) {
            Some((peer, directory)) => Verdict::Forward(Forward {
                peer,
                directory: Arc::clone(directory),
                forwarding,
            }),
            // The directory changes only together with the core, so a peer that the core chose is in it.
            None => nowhere(),
        }
    }

    fn route(&self, decision: Decision) -> Verdict {
        let endpoint_of = |id: &ReplicaId| self.roster.endpoint_of(*id).cloned();
        match endpoint_of(&decision.replica) {
            Some(chosen) => Verdict::Go(Route {
                chosen,
                fallbacks: decision.fallbacks.iter().filter_map(endpoint_of).collect(),
                decision,
            }),
            // The roster changes only together with the core, so a replica that the core chose is on it.
            None => nowhere(),
        }
    }
}

fn nowhere() -> Verdict {
    Verdict::Refused {
        reason: RejectReason::NoReplica,
        retry_after: Duration::from_secs(1),
    }
}
