//! From the client to the engine.

use std::sync::Arc;

use core::time::Duration;
use isotherm_engine::model as engine;
use isotherm_router::{
    Decision, End, Event, ForwardDecision, PeerId, RejectReason, Request, RequestId, Scope,
    SessionKey, Tier,
};

use super::super::event_queue::SimEvent;
use super::super::{Simulation, nanos};
use super::InFlightRequest;
use crate::chain;
use crate::record::RequestRecord;
use crate::setup::Arrangement;

impl Simulation<'_> {
    /// A client sends a step.
    pub(in crate::simulation) fn send_step(&mut self, session: u32, step: u32) {
        self.open -= 1;
        if !self.clients.may_send(self.now) {
            let due = self.clients.over(session, step, self.now, false);
            self.schedule(due);
            return;
        }
        let (Some(client), Some(asks)) = (
            self.clients.session(session),
            self.clients.step(session, step),
        ) else {
            return;
        };
        let region = client.region % self.setup.regions.len().max(1);
        let number = self.records.len();
        self.records.push(RequestRecord {
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
        let own_service = self.balancer_of(region);
        let flight = self.open_request(InFlightRequest {
            number,
            session,
            step,
            own_service: own_service.unwrap_or_default(),
            fingerprint: match own_service {
                Some(_) => Arc::new(chain::fingerprint(&asks.prompt)),
                None => Arc::default(),
            },
            prompt_tokens: asks.prompt.tokens(),
            ..InFlightRequest::default()
        });
        let gateway = self.gateway(own_service, region);
        let at = self.now + nanos(self.setup.network.to_gateway(region, gateway));
        let own_service = own_service.unwrap_or_default();
        self.queue.add(
            at,
            SimEvent::ServiceArrival {
                flight,
                service: own_service,
            },
        );
    }

    /// A request is at a service.
    pub(in crate::simulation) fn enter_service(&mut self, number: u32, at: u32) {
        if self.setup.arrangement == Arrangement::Oracle {
            self.choose_by_oracle(number);
            return;
        }
        let forwards = self.can_forward();
        let (Some(flight), Some(balancer)) = (
            self.in_flight.get(number as usize),
            self.balancers.get_mut(at as usize),
        ) else {
            return;
        };
        let key = self.clients.session(flight.session);
        let scope = if at != flight.own_service {
            Scope::Forwarded
        } else if forwards {
            Scope::Regions {
                tried: flight.tried.iter().copied().collect(),
            }
        } else {
            Scope::Local
        };
        let request = Request {
            id: balancer.open_request(number),
            fingerprint: Arc::clone(&flight.fingerprint),
            session: key.map(|session| SessionKey(session.key)),
            tier: Tier::default(),
            prompt_tokens: flight.prompt_tokens,
            output_tokens_max: None,
            subset: None,
            scope,
        };
        self.send_event(at, Event::Arrived(request));
    }

    /// A router chose a replica.
    pub(in crate::simulation) fn dispatched(
        &mut self,
        balancer: u32,
        number: u32,
        id: RequestId,
        decision: &Decision,
    ) {
        let now = self.now;
        let replica = decision.replica.0;
        let from = self.balancers.get(balancer as usize);
        let way = self.service_to_replica(from.map_or(0, |from| from.region), replica);
        let Some(flight) = self.in_flight.get_mut(number as usize) else {
            return;
        };
        flight.served = Some((balancer, id));
        flight.dispatched = now;
        flight.replica = replica;
        if let Some(record) = self.records.get_mut(flight.number) {
            record.dispatched = Some(Duration::from_nanos(now));
            record.replica = Some(replica as usize);
            record.queued += decision.queued_for;
            record.forwarded = balancer != flight.own_service;
        }
        self.queue
            .add(now + way, SimEvent::ReplicaArrival { flight: number });
    }

    /// A router sends a request to another region.
    pub(in crate::simulation) fn forwarded(
        &mut self,
        balancer: u32,
        number: u32,
        id: RequestId,
        forwarding: &ForwardDecision,
    ) {
        let at = u32::from(forwarding.peer.0);
        let way = self.between(balancer, at);
        let Some(flight) = self.in_flight.get_mut(number as usize) else {
            return;
        };
        flight.forwards.push((id, self.now));
        if let Some(record) = self.records.get_mut(flight.number) {
            record.queued += forwarding.queued_for;
        }
        let arrives = SimEvent::ServiceArrival {
            flight: number,
            service: at,
        };
        self.queue.add(self.now + way, arrives);
    }

    /// A router rejects a request: a forwarded request goes back to its own region, any other to its client.
    pub(in crate::simulation) fn rejected(
        &mut self,
        balancer: u32,
        number: u32,
        reason: RejectReason,
    ) {
        let Some(flight) = self.in_flight.get_mut(number as usize) else {
            return;
        };
        let own_service = flight.own_service;
        if balancer != own_service {
            flight.tried.extend(u16::try_from(balancer).map(PeerId));
            let way = self.between(balancer, own_service);
            let arrives = SimEvent::ServiceArrival {
                flight: number,
                service: own_service,
            };
            self.queue.add(self.now + way, arrives);
            return;
        }
        let record = flight.number;
        let ended = self.reply_time(record);
        self.refused(record, Some(reason), ended);
        self.follow(number);
        self.end_forwards(number, End::Failed);
    }

    /// A request is at its replica.
    pub(in crate::simulation) fn enter_replica(&mut self, number: u32) {
        let Some(flight) = self.in_flight.get_mut(number as usize) else {
            return;
        };
        let replica = flight.replica;
        let expected = u64::from(flight.expected_tokens);
        let (Some(asks), Some(at)) = (
            self.clients.step(flight.session, flight.step),
            self.replicas.get_mut(replica as usize),
        ) else {
            return;
        };
        at.expected_arrival_tokens = at.expected_arrival_tokens.saturating_sub(expected);
        let blocks = chain::blocks(&asks.prompt, asks.answer(), at.engine.config().block_tokens);
        let request = engine::Request {
            id: engine::RequestId(u64::from(number)),
            prompt_tokens: flight.prompt_tokens,
            output_tokens: asks.output_tokens,
            blocks,
            stream_interval_tokens: None,
        };
        at.engine.submit(Duration::from_nanos(self.now), request);
        self.drain_engine(replica);
    }

    /// The oracle chose a replica.
    pub(in crate::simulation) fn dispatch_by_oracle(
        &mut self,
        number: u32,
        replica: u32,
        expected_tokens: u32,
    ) {
        let Some(flight) = self.in_flight.get_mut(number as usize) else {
            return;
        };
        flight.replica = replica;
        flight.expected_tokens = expected_tokens;
        let mut from = 0;
        let there = self.replicas.get_mut(replica as usize);
        if let (Some(record), Some(there)) = (self.records.get_mut(flight.number), there) {
            from = record.region;
            record.dispatched = Some(Duration::from_nanos(self.now));
            record.replica = Some(replica as usize);
            record.forwarded = there.region != record.region;
            there.expected_arrival_tokens += u64::from(expected_tokens);
        }
        let at = self.now + self.service_to_replica(from, replica);
        self.queue
            .add(at, SimEvent::ReplicaArrival { flight: number });
    }

    /// Fails a request that no replica can serve.
    pub(in crate::simulation) fn fail_unroutable(&mut self, number: u32) {
        let Some(flight) = self.in_flight.get(number as usize) else {
            return;
        };
        let record = flight.number;
        let ended = self.reply_time(record);
        self.refused(record, Some(RejectReason::NoReplica), ended);
        self.follow(number);
        self.close_request(number);
    }

    /// When a client hears what its own gateway says now.
    fn reply_time(&self, record: usize) -> Duration {
        let region = self.records.get(record).map_or(0, |record| record.region);
        Duration::from_nanos(self.now + self.client_to_gateway(region))
    }

    fn can_forward(&self) -> bool {
        matches!(self.setup.arrangement, Arrangement::Router(_)) && self.balancers.len() > 1
    }
}
