//! One request from its client and back.
//!
//! Client to the gateway of its region, the router's queue, the replica; or another region in between, which may send it
//! back. The response takes the same way. Times at the client are written down when they are known, which is when the
//! engine brings them forth: nothing happens on the way back that could change them.

use std::sync::Arc;

use core::time::Duration;
use isotherm_engine::model as engine;
use isotherm_fingerprint::Fingerprint;
use isotherm_router::{
    Decision, End, Event, Forwarding, PeerId, RejectReason, Request, RequestId, Scope, Served,
    SessionKey, Tier,
};

use super::agenda::{Ns, What};
use super::{World, nanos};
use crate::chain;
use crate::record::RequestRecord;
use crate::setup::Balancing;

/// A request that has been sent and not answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Journey {
    /// Its record.
    pub(super) number: usize,
    session: u32,
    step: u32,
    /// The service of its client's region.
    home: u32,
    fingerprint: Arc<Fingerprint>,
    prompt_tokens: u32,
    /// The regions that it came back from.
    tried: Vec<PeerId>,
    /// Its identities at home that left, and when.
    left: Vec<(RequestId, Ns)>,
    /// The service that dispatched it, and as what.
    served: Option<(u32, RequestId)>,
    dispatched: Ns,
    /// Its replica.
    pub(super) replica: u32,
    /// Prompt tokens that the oracle expects its replica to compute.
    expected_tokens: u32,
    /// When its first token left the engine.
    first: Option<Ns>,
    /// What the engine counted at its end; none when it refused.
    usage: Option<engine::Usage>,
    refusal: Option<End>,
}

impl World<'_> {
    /// A client sends a step.
    pub(super) fn sends(&mut self, session: u32, step: u32) {
        self.open -= 1;
        if !self.clients.may_send(self.now) {
            let due = self.clients.over(session, step, self.now, false);
            self.expect(due);
            return;
        }
        let (Some(client), Some(asks)) = (
            self.clients.session(session),
            self.clients.step(session, step),
        ) else {
            return;
        };
        let region = client.region % self.setup.regions.len().max(1);
        let number = self.requests.len();
        self.requests.push(RequestRecord {
            session: session as usize,
            step: step as usize,
            region,
            sent: Duration::from_nanos(self.now),
            dispatched: None,
            first_token: None,
            ended: None,
            replica: None,
            prompt_tokens: asks.prompt.tokens(),
            cached_tokens: 0,
            output_tokens: 0,
            queued: Duration::ZERO,
            refused: None,
            engine_refused: false,
            forwarded: false,
            warmup: self.clients.is_warmup(number),
        });
        let home = self.balancer_of(region);
        let journey = self.set_out(Journey {
            number,
            session,
            step,
            home: home.unwrap_or_default(),
            fingerprint: match home {
                Some(_) => Arc::new(chain::fingerprint(&asks.prompt)),
                None => Arc::default(),
            },
            prompt_tokens: asks.prompt.tokens(),
            ..Journey::default()
        });
        let gateway = self.gateway(home, region);
        let at = self.now + nanos(self.setup.network.to_gateway(region, gateway));
        let home = home.unwrap_or_default();
        self.agenda.add(at, What::Arrives { journey, at: home });
    }

    /// A request is at a service.
    pub(super) fn arrives(&mut self, number: u32, at: u32) {
        if self.setup.balancing == Balancing::Oracle {
            self.ask_oracle(number);
            return;
        }
        let forwards = self.forwards();
        let (Some(journey), Some(balancer)) = (
            self.journeys.get(number as usize),
            self.balancers.get_mut(at as usize),
        ) else {
            return;
        };
        let key = self.clients.session(journey.session);
        let scope = if at != journey.home {
            Scope::Guest
        } else if forwards {
            Scope::Regions {
                tried: journey.tried.iter().copied().collect(),
            }
        } else {
            Scope::Home
        };
        let request = Request {
            id: balancer.name(number),
            fingerprint: Arc::clone(&journey.fingerprint),
            session: key.map(|session| SessionKey(session.key)),
            tier: Tier::default(),
            prompt_tokens: journey.prompt_tokens,
            output_tokens_max: None,
            subset: None,
            scope,
        };
        self.tell(at, Event::Arrived(request));
    }

    /// A router chose a replica.
    pub(super) fn dispatched(
        &mut self,
        balancer: u32,
        number: u32,
        id: RequestId,
        decision: &Decision,
    ) {
        let now = self.now;
        let replica = decision.replica.0;
        let from = self.balancers.get(balancer as usize);
        let way = self.way(from.map_or(0, |from| from.region), replica);
        let Some(journey) = self.journeys.get_mut(number as usize) else {
            return;
        };
        journey.served = Some((balancer, id));
        journey.dispatched = now;
        journey.replica = replica;
        if let Some(record) = self.requests.get_mut(journey.number) {
            record.dispatched = Some(Duration::from_nanos(now));
            record.replica = Some(replica as usize);
            record.queued += decision.queued_for;
            record.forwarded = balancer != journey.home;
        }
        self.agenda
            .add(now + way, What::Reaches { journey: number });
    }

    /// A router sends a request to another region.
    pub(super) fn forwarded(
        &mut self,
        balancer: u32,
        number: u32,
        id: RequestId,
        forwarding: &Forwarding,
    ) {
        let at = u32::from(forwarding.peer.0);
        let way = self.between(balancer, at);
        let Some(journey) = self.journeys.get_mut(number as usize) else {
            return;
        };
        journey.left.push((id, self.now));
        if let Some(record) = self.requests.get_mut(journey.number) {
            record.queued += forwarding.queued_for;
        }
        let arrives = What::Arrives {
            journey: number,
            at,
        };
        self.agenda.add(self.now + way, arrives);
    }

    /// A router refuses a request: a guest goes back to its own region, the others' clients hear of it.
    pub(super) fn rejected(&mut self, balancer: u32, number: u32, reason: RejectReason) {
        let Some(journey) = self.journeys.get_mut(number as usize) else {
            return;
        };
        let home = journey.home;
        if balancer != home {
            journey.tried.extend(u16::try_from(balancer).map(PeerId));
            let way = self.between(balancer, home);
            let arrives = What::Arrives {
                journey: number,
                at: home,
            };
            self.agenda.add(self.now + way, arrives);
            return;
        }
        let record = journey.number;
        self.refused(record, Some(reason), self.now);
        self.follow(number);
        self.come_home(number, End::Failed);
    }

    /// A request is at its replica.
    pub(super) fn reaches(&mut self, number: u32) {
        let Some(journey) = self.journeys.get_mut(number as usize) else {
            return;
        };
        let replica = journey.replica;
        let expected = u64::from(journey.expected_tokens);
        let (Some(asks), Some(at)) = (
            self.clients.step(journey.session, journey.step),
            self.replicas.get_mut(replica as usize),
        ) else {
            return;
        };
        at.coming_tokens = at.coming_tokens.saturating_sub(expected);
        let blocks = chain::blocks(&asks.prompt, asks.answer(), at.engine.config().block_tokens);
        let request = engine::Request {
            id: engine::RequestId(u64::from(number)),
            prompt_tokens: journey.prompt_tokens,
            output_tokens: asks.output_tokens,
            blocks,
            stream_interval_tokens: None,
        };
        at.engine.submit(Duration::from_nanos(self.now), request);
        self.attend(replica);
    }

    /// Something happened to a request in its engine.
    pub(super) fn heard(&mut self, event: &engine::Event) {
        let Ok(number) = u32::try_from(event.id.0) else {
            return;
        };
        let at = nanos(event.at);
        let Some(journey) = self.journeys.get(number as usize) else {
            return;
        };
        let record = journey.number;
        let to_service = self.way_back(journey);
        let to_client = to_service + self.way_home(journey, record);
        let there = Duration::from_nanos(at + to_client);
        let Some(journey) = self.journeys.get_mut(number as usize) else {
            return;
        };
        match event.kind {
            engine::EventKind::FirstToken { cached_tokens } => {
                journey.first = Some(at);
                if let Some(record) = self.requests.get_mut(record) {
                    record.first_token = Some(there);
                    record.cached_tokens = cached_tokens;
                }
                return;
            }
            engine::EventKind::Tokens { .. } => return,
            engine::EventKind::Finished(usage) => {
                journey.usage = Some(usage);
                if let Some(record) = self.requests.get_mut(record) {
                    record.ended = Some(there);
                    record.output_tokens = usage.completion_tokens;
                }
            }
            engine::EventKind::Rejected(rejection) => {
                journey.refusal = Some(match rejection {
                    engine::Rejection::QueueFull { .. } => End::Failed,
                    engine::Rejection::Empty
                    | engine::Rejection::TooLong { .. }
                    | engine::Rejection::Duplicate => End::Refused,
                });
                self.refused(record, None, at + to_service);
            }
        }
        self.follow(number);
        self.agenda
            .add(at + to_service, What::Ends { journey: number });
    }

    /// The end of a response passes the service that dispatched it.
    pub(super) fn ends(&mut self, number: u32) {
        let Some(journey) = self.journeys.get(number as usize) else {
            return;
        };
        let Some((balancer, id)) = journey.served else {
            // The oracle keeps no books.
            self.arrive(number);
            return;
        };
        let first = journey.first.map(|first| first + self.way_back(journey));
        let event = journey.finished(id, Served::Unsaid, first, journey.dispatched);
        let home = journey.home;
        self.close(balancer, id);
        self.tell(balancer, event);
        if balancer == home {
            self.come_home(number, End::Answered);
        } else {
            let at = self.now + self.between(balancer, home);
            self.agenda.add(at, What::Returns { journey: number });
        }
    }

    /// The end of a response passes the service that forwarded the request.
    pub(super) fn returns(&mut self, number: u32) {
        self.come_home(number, End::Answered);
    }

    /// A request is over: its identities at home that left end now, those that came back as somebody else's.
    fn come_home(&mut self, number: u32, end: End) {
        let Some(journey) = self.journeys.get_mut(number as usize) else {
            return;
        };
        let left = core::mem::take(&mut journey.left);
        let home = journey.home;
        let away = journey
            .served
            .is_some_and(|(balancer, _)| balancer != journey.home);
        let last = left.len().checked_sub(1).filter(|_| away);
        for (index, (id, when)) in left.into_iter().enumerate() {
            let Some(journey) = self.journeys.get(number as usize) else {
                break;
            };
            let event = if Some(index) == last {
                let back = self.way_back(journey) + self.detour(journey);
                let first = journey.first.map(|first| first + back);
                journey.finished(id, Served::Unsaid, first, when)
            } else {
                Event::Finished {
                    id,
                    served: Served::Stranger,
                    end,
                    ttft_us: None,
                    prompt_tokens: None,
                    cached_tokens: None,
                    completion_tokens: None,
                }
            };
            self.close(home, id);
            self.tell(home, event);
        }
        self.arrive(number);
    }

    /// Writes down that a client was refused; `at` is when its own gateway knew.
    fn refused(&mut self, record: usize, reason: Option<RejectReason>, at: Ns) {
        let way = self
            .requests
            .get(record)
            .map(|request| self.gateway_way(request.region));
        if let (Some(record), Some(way)) = (self.requests.get_mut(record), way) {
            record.refused = reason;
            record.engine_refused = reason.is_none();
            record.ended = Some(Duration::from_nanos(at + way));
        }
    }

    /// The client's answer is on its way: what waits for it is sent when the client has had it for its think time.
    fn follow(&mut self, number: u32) {
        let Some(journey) = self.journeys.get(number as usize) else {
            return;
        };
        let (session, step) = (journey.session, journey.step);
        let Some(record) = self.requests.get(journey.number) else {
            return;
        };
        let ended = record.ended.map_or(self.now, nanos);
        let answered = record.is_answered();
        let due = self.clients.over(session, step, ended, answered);
        self.expect(due);
    }

    fn set_out(&mut self, journey: Journey) -> u32 {
        self.open += 1;
        if let Some(number) = self.vacant.pop()
            && let Some(place) = self.journeys.get_mut(number as usize)
        {
            *place = journey;
            return number;
        }
        self.journeys.push(journey);
        u32::try_from(self.journeys.len() - 1).unwrap_or(u32::MAX)
    }

    /// Nothing of a request is on its way any more.
    fn arrive(&mut self, number: u32) {
        self.open -= 1;
        if let Some(journey) = self.journeys.get_mut(number as usize) {
            *journey = Journey::default();
        }
        self.vacant.push(number);
    }

    fn forwards(&self) -> bool {
        matches!(self.setup.balancing, Balancing::Router(_)) && self.balancers.len() > 1
    }

    /// The region whose gateway a client's request goes to.
    fn gateway(&self, home: Option<u32>, region: usize) -> usize {
        let balancer = home.and_then(|home| self.balancers.get(home as usize));
        balancer.map_or(region, |balancer| balancer.region)
    }

    fn gateway_way(&self, region: usize) -> Ns {
        let gateway = self.gateway(self.balancer_of(region), region);
        nanos(self.setup.network.to_gateway(region, gateway))
    }

    /// From a service in this region to a replica.
    pub(super) fn way(&self, from: usize, replica: u32) -> Ns {
        let to = self.replicas.get(replica as usize);
        let to = to.map_or(from, |replica| replica.region);
        nanos(self.setup.network.to_replica(from, to))
    }

    fn between(&self, a: u32, b: u32) -> Ns {
        let region = |number: u32| {
            let balancer = self.balancers.get(number as usize);
            balancer.map_or(0, |balancer| balancer.region)
        };
        nanos(self.setup.network.between(region(a), region(b)))
    }

    /// From a request's replica to the service that dispatched it.
    fn way_back(&self, journey: &Journey) -> Ns {
        let from = match journey.served {
            Some((balancer, _)) => self.gateway(Some(balancer), 0),
            None => self
                .requests
                .get(journey.number)
                .map_or(0, |record| record.region),
        };
        self.way(from, journey.replica)
    }

    /// From the service that dispatched a request to the one of its client's region.
    fn detour(&self, journey: &Journey) -> Ns {
        journey
            .served
            .map_or(0, |(balancer, _)| self.between(balancer, journey.home))
    }

    /// From the service that dispatched a request to its client.
    fn way_home(&self, journey: &Journey, record: usize) -> Ns {
        let region = self.requests.get(record).map_or(0, |record| record.region);
        self.detour(journey) + self.gateway_way(region)
    }

    /// The oracle chose a replica.
    pub(super) fn placed(&mut self, number: u32, replica: u32, expected_tokens: u32) {
        let Some(journey) = self.journeys.get_mut(number as usize) else {
            return;
        };
        journey.replica = replica;
        journey.expected_tokens = expected_tokens;
        let mut from = 0;
        let there = self.replicas.get_mut(replica as usize);
        if let (Some(record), Some(there)) = (self.requests.get_mut(journey.number), there) {
            from = record.region;
            record.dispatched = Some(Duration::from_nanos(self.now));
            record.replica = Some(replica as usize);
            record.forwarded = there.region != record.region;
            there.coming_tokens += u64::from(expected_tokens);
        }
        let at = self.now + self.way(from, replica);
        self.agenda.add(at, What::Reaches { journey: number });
    }

    /// There is nobody who could serve it.
    pub(super) fn nobody(&mut self, number: u32) {
        let Some(journey) = self.journeys.get(number as usize) else {
            return;
        };
        self.refused(journey.number, Some(RejectReason::NoReplica), self.now);
        self.follow(number);
        self.arrive(number);
    }

    /// How many prompt tokens a request in an engine has to compute, as the oracle saw it when it chose.
    pub(super) fn expected_tokens(&self, id: engine::RequestId) -> u32 {
        let number = usize::try_from(id.0).unwrap_or(usize::MAX);
        let journey = self.journeys.get(number);
        journey.map_or(0, |journey| journey.expected_tokens)
    }

    /// What the client of a journey asks, and from where.
    pub(super) fn asked(&self, number: u32) -> Option<(&crate::workload::Step, usize)> {
        let journey = self.journeys.get(number as usize)?;
        let record = self.requests.get(journey.number)?;
        let step = self.clients.step(journey.session, journey.step)?;
        Some((step, record.region))
    }
}

impl Journey {
    /// What the filter of a service would report: `first` is when the first byte passed it, `since` when the request did.
    fn finished(&self, id: RequestId, served: Served, first: Option<Ns>, since: Ns) -> Event {
        Event::Finished {
            id,
            served,
            end: self.refusal.unwrap_or(End::Answered),
            ttft_us: first.map(|first| first.saturating_sub(since) / 1_000),
            prompt_tokens: self.usage.map(|usage| usage.prompt_tokens),
            cached_tokens: self.usage.map(|usage| usage.cached_tokens),
            completion_tokens: self.usage.map(|usage| usage.completion_tokens),
        }
    }
}
