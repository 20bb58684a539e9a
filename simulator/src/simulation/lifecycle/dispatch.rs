//! From the client to the engine.

use std::sync::Arc;

use core::time::Duration;
use isotherm_engine::model as engine;
use isotherm_router::{
    Decision, End, Event, ForwardDecision, RejectReason, Request, RequestId, Scope, SessionKey,
    TenantId,
};

use super::super::adapters::adapter_key;
use super::super::event_queue::{Ns, SimEvent};
use super::super::regions::peer;
use super::super::{Simulation, nanos, time};
use super::InFlightRequest;
use crate::chain;
use crate::record::RequestRecord;
use crate::setup::Arrangement;
use crate::workload::RequestClass;

impl Simulation<'_> {
    /// A client sends a step.
    pub(crate) fn send_step(&mut self, session: u32, step: u32) {
        self.open -= 1;
        if !self.clients.may_send(self.now) {
            let due = self.clients.over(session, step, self.now, false);
            self.schedule(due);
            return;
        }
        let clients = &self.clients;
        let Some((client, asks)) = clients.session(session).zip(clients.step(session, step)) else {
            return;
        };
        let region = client.region % self.setup.regions.len().max(1);
        let is_bypass = self.is_bypass(client.key);
        let service = self.service_of(region, client.key);
        let service = service.filter(|_| !is_bypass);
        let number = self.records.iter().len();
        let prompt_tokens = asks.prompt.tokens();
        let record = self.records.push(RequestRecord {
            session: session as usize,
            step: step as usize,
            region,
            sent: Duration::from_nanos(self.now),
            prompt_tokens,
            tier: client.class.tier,
            tenant: client.class.tenant,
            warmup: self.clients.is_warmup(number) || is_bypass,
            ..RequestRecord::default()
        });
        let fingerprint = service.map(|_| Arc::new(chain::fingerprint(&asks.prompt)));
        let flight = self.open_request(InFlightRequest {
            record,
            session,
            step,
            own_service: service.unwrap_or_default(),
            fingerprint: fingerprint.unwrap_or_default(),
            prompt_tokens,
            presumed_tokens: asks.prompt.presumed_tokens(),
            ..InFlightRequest::default()
        });
        let at = self.now + self.client_to_gateway(region);
        if is_bypass && let Some(replica) = self.next_in_turn(region) {
            self.dispatch_in_turn(flight, replica, at);
            return;
        }
        let service = service.unwrap_or_default();
        self.queue
            .add(at, SimEvent::ServiceArrival { flight, service });
    }

    /// A request is at a service.
    pub(crate) fn enter_service(&mut self, number: u32, at: u32) {
        if self.setup.arrangement == Arrangement::Oracle {
            self.choose_by_oracle(number);
            return;
        }
        let flight = &self.in_flight[number];
        let scope = if at != flight.own_service {
            Scope::Forwarded
        } else if self.can_forward() {
            Scope::Regions {
                tried: flight.tried.iter().copied().collect(),
            }
        } else {
            Scope::Local
        };
        let session = self.clients.session(flight.session);
        let class = session.map_or_else(RequestClass::default, |session| session.class);
        // A deadline is the client's, wherever the request waits.
        let deadline = class.deadline.and_then(|left| {
            let sent = self.records.iter().nth(flight.record as usize)?.sent;
            Some(time(nanos(sent + left)))
        });
        let request = Request {
            id: self.balancers[at].open_request(number),
            fingerprint: Arc::clone(&flight.fingerprint),
            session: session.map(|session| SessionKey(session.key)),
            tier: class.tier,
            ttft_slo: class.ttft_slo,
            deadline,
            prompt_tokens: flight.presumed_tokens,
            output_tokens_max: None,
            previous_response: None,
            subset: None,
            adapter: session.and_then(|session| session.adapter).map(adapter_key),
            scope,
            tenant: TenantId(class.tenant),
            tells_start: true,
            api: None,
            wants_stream: self.setup.telemetry.has_streams(),
        };
        self.send_event(at, Event::Arrived(request));
    }

    /// A router chose a replica.
    pub(crate) fn dispatched(
        &mut self,
        balancer: u32,
        number: u32,
        id: RequestId,
        decision: &Decision,
    ) {
        let now = self.now;
        let replica = decision.replica.0;
        let delay = self.service_to_replica(self.balancers[balancer].region, replica);
        let flight = &mut self.in_flight[number];
        flight.served = Some((balancer, id));
        flight.dispatched = now;
        flight.replica = replica;
        let record = &mut self.records[flight.record];
        record.dispatched = Some(Duration::from_nanos(now));
        record.replica = Some(replica as usize);
        record.queued += decision.queued_for;
        record.forwarded = balancer != flight.own_service;
        self.queue
            .add(now + delay, SimEvent::ReplicaArrival { flight: number });
    }

    /// A router sends a request to another region.
    pub(crate) fn forwarded(
        &mut self,
        balancer: u32,
        number: u32,
        id: RequestId,
        forwarding: &ForwardDecision,
    ) {
        let forward = (id, self.now);
        self.in_flight[number].forwards.push(forward);
        self.record(number).queued += forwarding.queued_for;
        self.send_between(number, balancer, u32::from(forwarding.peer.0));
    }

    /// Sends a request from a service to another.
    fn send_between(&mut self, flight: u32, from: u32, service: u32) {
        let at = self.now + self.between(from, service);
        self.queue
            .add(at, SimEvent::ServiceArrival { flight, service });
    }

    /// A router rejects a request: a forwarded request goes back to its own region, any other to its client.
    pub(crate) fn rejected(&mut self, balancer: u32, number: u32, reason: RejectReason) {
        let flight = &mut self.in_flight[number];
        let own_service = flight.own_service;
        if balancer != own_service {
            flight.tried.push(peer(balancer));
            self.send_between(number, balancer, own_service);
            return;
        }
        self.reject(number, reason);
        self.end_forwards(number, End::Failed);
    }

    /// A request is at its replica.
    pub(crate) fn enter_replica(&mut self, number: u32) {
        let flight = &self.in_flight[number];
        let Some(asks) = self.clients.step(flight.session, flight.step) else {
            return;
        };
        let session = self.clients.session(flight.session);
        let adapter = session.and_then(|session| session.adapter);
        let adapter = adapter.map(engine::AdapterId);
        let replica = flight.replica;
        let at = &mut self.replicas[replica];
        let expected = u64::from(flight.expected_tokens);
        at.expected_arrival_tokens = at.expected_arrival_tokens.saturating_sub(expected);
        let block_tokens = at.engine.config().block_tokens;
        let blocks = if at.setup.has_prefix_caching {
            chain::blocks(&asks.prompt, asks.answer(), block_tokens)
        } else {
            Arc::default()
        };
        let request = engine::Request {
            id: engine::RequestId(u64::from(number)),
            prompt_tokens: flight.prompt_tokens,
            output_tokens: asks.output_tokens,
            blocks,
            adapter,
            stream_interval_tokens: None,
        };
        at.engine.submit(Duration::from_nanos(self.now), request);
        self.drain_engine(replica);
    }

    /// The oracle chose a replica.
    pub(crate) fn dispatch_by_oracle(&mut self, number: u32, replica: u32, expected_tokens: u32) {
        let flight = &mut self.in_flight[number];
        flight.replica = replica;
        flight.expected_tokens = expected_tokens;
        let record = &mut self.records[flight.record];
        let from = record.region;
        let chosen = &mut self.replicas[replica];
        record.dispatched = Some(Duration::from_nanos(self.now));
        record.replica = Some(replica as usize);
        record.forwarded = chosen.region != from;
        chosen.expected_arrival_tokens += u64::from(expected_tokens);
        let at = self.now + self.service_to_replica(from, replica);
        self.queue
            .add(at, SimEvent::ReplicaArrival { flight: number });
    }

    /// Another router chose a replica.
    fn dispatch_in_turn(&mut self, number: u32, replica: u32, at: Ns) {
        self.in_flight[number].replica = replica;
        let record = self.record(number);
        record.dispatched = Some(Duration::from_nanos(at));
        record.replica = Some(replica as usize);
        let region = record.region;
        let at = at + self.service_to_replica(region, replica);
        self.queue
            .add(at, SimEvent::ReplicaArrival { flight: number });
    }

    /// Fails a request that no replica can serve.
    pub(crate) fn fail_unroutable(&mut self, number: u32) {
        self.reject(number, RejectReason::NoReplica);
        self.close_request(number);
    }

    /// Tells a client that its own gateway rejects its request.
    fn reject(&mut self, number: u32, reason: RejectReason) {
        let region = self.record(number).region;
        let ended = Duration::from_nanos(self.now + self.client_to_gateway(region));
        self.refused(number, Some(reason), ended);
        self.follow(number);
    }

    fn can_forward(&self) -> bool {
        matches!(self.setup.arrangement, Arrangement::Router(_)) && self.setup.regions.len() > 1
    }
}
