//! From the client to the engine.

use std::sync::Arc;

use core::time::Duration;
use isotherm_engine::model as engine;
use isotherm_router::{
    Decision, End, Event, Forwarding, PeerId, RejectReason, Request, RequestId, Scope, SessionKey,
    Tier,
};

use super::super::agenda::What;
use super::super::{World, nanos};
use super::Journey;
use crate::chain;
use crate::record::RequestRecord;
use crate::setup::Balancing;

impl World<'_> {
    /// A client sends a step.
    pub(in crate::world) fn sends(&mut self, session: u32, step: u32) {
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
    pub(in crate::world) fn arrives(&mut self, number: u32, at: u32) {
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
            Scope::Forwarded
        } else if forwards {
            Scope::Regions {
                tried: journey.tried.iter().copied().collect(),
            }
        } else {
            Scope::Local
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
    pub(in crate::world) fn dispatched(
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
    pub(in crate::world) fn forwarded(
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
    pub(in crate::world) fn rejected(&mut self, balancer: u32, number: u32, reason: RejectReason) {
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
        let ended = self.heard_at_client(record);
        self.refused(record, Some(reason), ended);
        self.follow(number);
        self.come_home(number, End::Failed);
    }

    /// A request is at its replica.
    pub(in crate::world) fn reaches(&mut self, number: u32) {
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

    /// The oracle chose a replica.
    pub(in crate::world) fn placed(&mut self, number: u32, replica: u32, expected_tokens: u32) {
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
    pub(in crate::world) fn nobody(&mut self, number: u32) {
        let Some(journey) = self.journeys.get(number as usize) else {
            return;
        };
        let record = journey.number;
        let ended = self.heard_at_client(record);
        self.refused(record, Some(RejectReason::NoReplica), ended);
        self.follow(number);
        self.arrive(number);
    }

    /// When a client hears what its own gateway says now.
    fn heard_at_client(&self, record: usize) -> Duration {
        let region = self.requests.get(record).map_or(0, |record| record.region);
        Duration::from_nanos(self.now + self.gateway_way(region))
    }

    fn forwards(&self) -> bool {
        matches!(self.setup.balancing, Balancing::Router(_)) && self.balancers.len() > 1
    }
}
