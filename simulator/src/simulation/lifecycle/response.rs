//! From the engine to the client, and what routers are told on the way.

use core::time::Duration;
use isotherm_engine::model as engine;
use isotherm_router::{End, Event, RejectReason, RequestId, ServedBy};

use super::super::event_queue::{Ns, SimEvent};
use super::super::{Simulation, nanos};
use super::InFlightRequest;
use crate::telemetry::Measurement;

impl Simulation<'_> {
    /// Something happened to a request in its engine.
    pub(crate) fn handle_engine_event(&mut self, event: &engine::Event) {
        let Ok(number) = u32::try_from(event.id.0) else {
            return;
        };
        let at = nanos(event.at);
        let flight = &self.in_flight[number];
        let to_service = self.replica_to_service(flight);
        let at_client = Duration::from_nanos(at + to_service + self.service_to_client(flight));
        let flight = &mut self.in_flight[number];
        let record = &mut self.records[flight.record];
        match event.kind {
            engine::EventKind::FirstToken { cached_tokens } => {
                flight.first = Some(at);
                record.first_token = Some(at_client);
                record.cached_tokens = cached_tokens;
                if self.setup.telemetry.has_streams() {
                    let response_begin = SimEvent::ResponseBegin { flight: number };
                    self.queue.add(at + to_service, response_begin);
                }
                return;
            }
            engine::EventKind::Tokens { .. } => return,
            engine::EventKind::Finished(usage) => {
                flight.usage = Some(usage);
                record.ended = Some(at_client);
                record.output_tokens = usage.completion_tokens;
            }
            engine::EventKind::Rejected(rejection) => {
                flight.refusal = Some(match rejection {
                    engine::Rejection::QueueFull { .. } => End::Failed,
                    engine::Rejection::Empty
                    | engine::Rejection::TooLong { .. }
                    | engine::Rejection::Duplicate => End::Refused,
                });
                self.refused(number, None, at_client);
            }
        }
        self.follow(number);
        let response_end = SimEvent::ResponseEnd { flight: number };
        self.queue.add(at + to_service, response_end);
    }

    /// The first token of a response passes the service that dispatched it.
    pub(crate) fn begin_response(&mut self, number: u32) {
        if let Some((balancer, id)) = self.in_flight[number].served {
            self.send_event(balancer, Event::Began(id));
        }
    }

    /// The end of a response passes the service that dispatched it.
    pub(crate) fn end_response(&mut self, number: u32) {
        let flight = &self.in_flight[number];
        let Some((balancer, id)) = flight.served else {
            // The oracle has no router to tell.
            self.close_request(number);
            return;
        };
        let back = self.replica_to_service(flight);
        let event = self.outcome(flight, id, back, flight.dispatched);
        let own_service = flight.own_service;
        self.close(balancer, id);
        self.send_event(balancer, event);
        if balancer == own_service {
            self.end_forwards(number, End::Answered);
        } else {
            let at = self.now + self.between(balancer, own_service);
            let response_end = SimEvent::ForwardedResponseEnd { flight: number };
            self.queue.add(at, response_end);
        }
    }

    /// Ends the request ids under which the request left its own region and came back as a forwarded request.
    pub(crate) fn end_forwards(&mut self, number: u32, end: End) {
        let flight = &mut self.in_flight[number];
        let mut forwards = core::mem::take(&mut flight.forwards);
        let own_service = flight.own_service;
        let is_away = flight
            .served
            .is_some_and(|(balancer, _)| balancer != own_service);
        let last = forwards.pop_if(|_| is_away);
        let returned = forwards.into_iter().map(|(id, _)| {
            let event = Event::Finished {
                id,
                served_by: ServedBy::UnknownHost,
                end,
                ttft_us: None,
                prompt_tokens: None,
                cached_tokens: None,
                completion_tokens: None,
            };
            (id, event)
        });
        let flight = &self.in_flight[number];
        let answered = last.map(|(id, sent)| {
            let back = self.replica_to_service(flight) + self.detour(flight);
            (id, self.outcome(flight, id, back, sent))
        });
        for (id, event) in returned.chain(answered).collect::<Vec<_>>() {
            self.close(own_service, id);
            self.send_event(own_service, event);
        }
        self.close_request(number);
    }

    /// Records that a client was refused, by a router or, without a reason, by an engine; `ended` is when it hears of it.
    pub(super) fn refused(&mut self, number: u32, reason: Option<RejectReason>, ended: Duration) {
        let record = self.record(number);
        record.refused = reason;
        record.engine_refused = reason.is_none();
        record.ended = Some(ended);
    }

    /// Schedules the steps that wait for a request whose response is on its way to the client.
    pub(super) fn follow(&mut self, number: u32) {
        let record = self.record(number);
        let (ended, is_answered) = (record.ended, record.is_answered());
        let at = ended.map_or(self.now, nanos);
        let flight = &self.in_flight[number];
        let due = self
            .clients
            .over(flight.session, flight.step, at, is_answered);
        self.schedule(due);
    }

    /// Outcome that the filter would report: the service saw the request at `since`, and each token `back` after the engine.
    fn outcome(&self, flight: &InFlightRequest, id: RequestId, back: Ns, since: Ns) -> Event {
        let session = self.clients.session(flight.session);
        let key = session.map_or(0, |session| session.key);
        let measured = flight.measured(back, since);
        let seen = self.setup.telemetry.visible(measured, key);
        Event::Finished {
            id,
            served_by: ServedBy::Unreported,
            end: flight.refusal.unwrap_or(End::Answered),
            ttft_us: seen.ttft_us,
            prompt_tokens: seen.prompt_tokens,
            cached_tokens: seen.cached_tokens,
            completion_tokens: seen.completion_tokens,
        }
    }
}

impl InFlightRequest {
    fn measured(&self, back: Ns, since: Ns) -> Measurement {
        let ttft = self.first.map(|first| (first + back).saturating_sub(since));
        Measurement {
            ttft_us: ttft.map(|ttft| ttft / 1_000),
            prompt_tokens: self.usage.map(|usage| usage.prompt_tokens),
            cached_tokens: self.usage.map(|usage| usage.cached_tokens),
            completion_tokens: self.usage.map(|usage| usage.completion_tokens),
        }
    }
}
