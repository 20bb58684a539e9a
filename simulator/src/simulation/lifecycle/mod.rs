//! The lifecycle of a request, from its client and back.
//!
//! A request goes from its client to the gateway of its region, to the router's queue, and to the replica; or to another
//! region in between, which may send it back. The response takes the same way. The engine's event fixes the times at the
//! client: nothing on the way back changes them.
//!
//! - `dispatch`: from the client to the engine
//! - `response`: from the engine to the client, and what routers are told on the way
//! - `delays`: how long each leg takes

mod delays;
mod dispatch;
mod response;

use std::sync::Arc;

use isotherm_engine::model as engine;
use isotherm_fingerprint::Fingerprint;
use isotherm_router::{End, PeerId, RequestId};

use super::Simulation;
use super::event_queue::Ns;
use crate::record::RequestRecord;
use crate::workload::Step;

/// A request between its sending and the end of its response.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlightRequest {
    /// Number of the request's record.
    record: u32,
    session: u32,
    step: u32,
    /// Service of the client's region.
    own_service: u32,
    fingerprint: Arc<Fingerprint>,
    prompt_tokens: u32,
    /// Prompt length in tokens as the filter presumes it.
    presumed_tokens: u32,
    /// Regions that have sent the request back.
    tried: Vec<PeerId>,
    /// Request ids under which the request left its own region, and when.
    forwards: Vec<(RequestId, Ns)>,
    /// Service that dispatched the request, and its request id there.
    served: Option<(u32, RequestId)>,
    dispatched: Ns,
    /// Replica that serves the request.
    replica: u32,
    /// Prompt tokens that the oracle expects the replica to compute.
    expected_tokens: u32,
    /// When the first token left the engine.
    first: Option<Ns>,
    /// Tokens that the engine counted; `None` when it rejected the request.
    usage: Option<engine::Usage>,
    refusal: Option<End>,
}

impl Simulation<'_> {
    fn open_request(&mut self, flight: InFlightRequest) -> u32 {
        self.open += 1;
        let Some(number) = self.vacant.pop() else {
            return self.in_flight.push(flight);
        };
        self.in_flight[number] = flight;
        number
    }

    /// Frees the entry of a request that is no longer in flight.
    fn close_request(&mut self, number: u32) {
        self.open -= 1;
        self.in_flight[number] = InFlightRequest::default();
        self.vacant.push(number);
    }

    /// The record of a request in flight.
    fn record(&mut self, number: u32) -> &mut RequestRecord {
        &mut self.records[self.in_flight[number].record]
    }

    /// Prompt tokens that a request in an engine has to compute, as the oracle saw it at its choice.
    pub(crate) fn expected_tokens(&self, id: engine::RequestId) -> u32 {
        u32::try_from(id.0).map_or(0, |number| self.in_flight[number].expected_tokens)
    }

    /// Step and region of a request.
    pub(crate) fn step_of(&self, number: u32) -> Option<(&Step, usize)> {
        let flight = &self.in_flight[number];
        let step = self.clients.step(flight.session, flight.step)?;
        Some((step, self.records[flight.record].region))
    }
}
