//! From the engine to the client, and what routers are told on the way.

use core::time::Duration;
use isotherm_engine::model as engine;
use isotherm_router::{End, Event, RejectReason, RequestId, ServedBy};

use super::super::event_queue::{Ns, SimEvent};
use super::super::{Simulation, nanos};
use super::InFlightRequest;

impl Simulation<'_> {
    /// Something happened to a request in its engine.
    pub(in crate::simulation) fn handle_engine_event(&mut self, event: &engine::Event) {
        let Ok(number) = u32::try_from(event.id.0) else {
            return;
        };
        let at = nanos(event.at);
        let Some(flight) = self.in_flight.get(number as usize) else {
            return;
        };
        let record = flight.number;
        let to_service = self.replica_to_service(flight);
        let to_client = to_service + self.service_to_client(flight, record);
        let there = Duration::from_nanos(at + to_client);
        let Some(flight) = self.in_flight.get_mut(number as usize) else {
            return;
        };
        match event.kind {
            engine::EventKind::FirstToken { cached_tokens } => {
                flight.first = Some(at);
                if let Some(record) = self.records.get_mut(record) {
                    record.first_token = Some(there);
                    record.cached_tokens = cached_tokens;
                }
                return;
            }
            engine::EventKind::Tokens { .. } => return,
            engine::EventKind::Finished(usage) => {
                flight.usage = Some(usage);
                if let Some(record) = self.records.get_mut(record) {
                    record.ended = Some(there);
                    record.output_tokens = usage.completion_tokens;
                }
            }
            engine::EventKind::Rejected(rejection) => {
                flight.refusal = Some(match rejection {
                    engine::Rejection::QueueFull { .. } => End::Failed,
                    engine::Rejection::Empty
                    | engine::Rejection::TooLong { .. }
                    | engine::Rejection::Duplicate => End::Refused,
                });
                self.refused(record, None, there);
            }
        }
        self.follow(number);
        self.queue
            .add(at + to_service, SimEvent::ResponseEnd { flight: number });
    }

    /// The end of a response passes the service that dispatched it.
    pub(in crate::simulation) fn end_response(&mut self, number: u32) {
        let Some(flight) = self.in_flight.get(number as usize) else {
            return;
        };
        let Some((balancer, id)) = flight.served else {
            // The oracle keeps no books.
            self.close_request(number);
            return;
        };
        let first = flight
            .first
            .map(|first| first + self.replica_to_service(flight));
        let event = flight.finished(id, ServedBy::Unreported, first, flight.dispatched);
        let own_service = flight.own_service;
        self.close(balancer, id);
        self.send_event(balancer, event);
        if balancer == own_service {
            self.end_forwards(number, End::Answered);
        } else {
            let at = self.now + self.between(balancer, own_service);
            self.queue
                .add(at, SimEvent::ForwardedResponseEnd { flight: number });
        }
    }

    /// The end of a response passes the service that forwarded the request.
    pub(in crate::simulation) fn end_forwarded_response(&mut self, number: u32) {
        self.end_forwards(number, End::Answered);
    }

    /// Ends the request ids under which the request left its own region and came back as a forwarded request.
    pub(super) fn end_forwards(&mut self, number: u32, end: End) {
        let Some(flight) = self.in_flight.get_mut(number as usize) else {
            return;
        };
        let forwards = core::mem::take(&mut flight.forwards);
        let own_service = flight.own_service;
        let away = flight
            .served
            .is_some_and(|(balancer, _)| balancer != flight.own_service);
        let last = forwards.len().checked_sub(1).filter(|_| away);
        for (index, (id, when)) in forwards.into_iter().enumerate() {
            let Some(flight) = self.in_flight.get(number as usize) else {
                break;
            };
            let event = if Some(index) == last {
                let back = self.replica_to_service(flight) + self.detour(flight);
                let first = flight.first.map(|first| first + back);
                flight.finished(id, ServedBy::Unreported, first, when)
            } else {
                Event::Finished {
                    id,
                    served_by: ServedBy::UnknownHost,
                    end,
                    ttft_us: None,
                    prompt_tokens: None,
                    cached_tokens: None,
                    completion_tokens: None,
                }
            };
            self.close(own_service, id);
            self.send_event(own_service, event);
        }
        self.close_request(number);
    }

    /// Writes down that a client was refused, by a router or, without a reason, by an engine; `ended` is when it hears of it.
    pub(super) fn refused(&mut self, record: usize, reason: Option<RejectReason>, ended: Duration) {
        if let Some(record) = self.records.get_mut(record) {
            record.refused = reason;
            record.engine_refused = reason.is_none();
            record.ended = Some(ended);
        }
    }

    /// The client's answer is on its way: what waits for it is sent when the client has had it for its think time.
    pub(super) fn follow(&mut self, number: u32) {
        let Some(flight) = self.in_flight.get(number as usize) else {
            return;
        };
        let (session, step) = (flight.session, flight.step);
        let Some(record) = self.records.get(flight.number) else {
            return;
        };
        let ended = record.ended.map_or(self.now, nanos);
        let answered = record.is_answered();
        let due = self.clients.over(session, step, ended, answered);
        self.schedule(due);
    }
}

impl InFlightRequest {
    /// Outcome that the filter would report: the first byte passed the service at `first`, the request at `since`.
    fn finished(&self, id: RequestId, served_by: ServedBy, first: Option<Ns>, since: Ns) -> Event {
        Event::Finished {
            id,
            served_by,
            end: self.refusal.unwrap_or(End::Answered),
            ttft_us: first.map(|first| first.saturating_sub(since) / 1_000),
            prompt_tokens: self.usage.map(|usage| usage.prompt_tokens),
            cached_tokens: self.usage.map(|usage| usage.cached_tokens),
            completion_tokens: self.usage.map(|usage| usage.completion_tokens),
        }
    }
}
