//! From the engine to the client, and what routers are told on the way.

use core::time::Duration;
use isotherm_engine::model as engine;
use isotherm_router::{End, Event, RejectReason, RequestId, ServedBy};

use super::super::agenda::{Ns, What};
use super::super::{World, nanos};
use super::Journey;

impl World<'_> {
    /// Something happened to a request in its engine.
    pub(in crate::world) fn heard(&mut self, event: &engine::Event) {
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
                self.refused(record, None, there);
            }
        }
        self.follow(number);
        self.agenda
            .add(at + to_service, What::Ends { journey: number });
    }

    /// The end of a response passes the service that dispatched it.
    pub(in crate::world) fn ends(&mut self, number: u32) {
        let Some(journey) = self.journeys.get(number as usize) else {
            return;
        };
        let Some((balancer, id)) = journey.served else {
            // The oracle keeps no books.
            self.arrive(number);
            return;
        };
        let first = journey.first.map(|first| first + self.way_back(journey));
        let event = journey.finished(id, ServedBy::Unreported, first, journey.dispatched);
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
    pub(in crate::world) fn returns(&mut self, number: u32) {
        self.come_home(number, End::Answered);
    }

    /// A request is over: its identities at home that left end now, those that came back as somebody else's.
    pub(super) fn come_home(&mut self, number: u32, end: End) {
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
                journey.finished(id, ServedBy::Unreported, first, when)
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
            self.close(home, id);
            self.tell(home, event);
        }
        self.arrive(number);
    }

    /// Writes down that a client was refused, by a router or, without a reason, by an engine; `ended` is when it hears of it.
    pub(super) fn refused(&mut self, record: usize, reason: Option<RejectReason>, ended: Duration) {
        if let Some(record) = self.requests.get_mut(record) {
            record.refused = reason;
            record.engine_refused = reason.is_none();
            record.ended = Some(ended);
        }
    }

    /// The client's answer is on its way: what waits for it is sent when the client has had it for its think time.
    pub(super) fn follow(&mut self, number: u32) {
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
}

impl Journey {
    /// What the filter of a service would report: `first` is when the first byte passed it, `since` when the request did.
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
