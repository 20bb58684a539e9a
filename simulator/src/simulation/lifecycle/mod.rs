//! The lifecycle of a request, from its client and back.
//!
//! Client to the gateway of its region, the router's queue, the replica; or another region in between, which may send it
//! back. The response takes the same way. Times at the client are written down when they are known, which is when the
//! engine brings them forth: nothing happens on the way back that could change them.
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
use crate::workload::Step;

/// A request between its sending and the end of its response.
#[derive(Clone, Debug, Default)]
pub(in crate::simulation) struct InFlightRequest {
    /// Index of the request's record.
    pub(in crate::simulation) number: usize,
    session: u32,
    step: u32,
    /// Service of the client's region.
    own_service: u32,
    fingerprint: Arc<Fingerprint>,
    prompt_tokens: u32,
    /// Regions that have sent the request back.
    tried: Vec<PeerId>,
    /// Request ids under which the request left its own region, and when.
    forwards: Vec<(RequestId, Ns)>,
    /// Service that dispatched the request, and its request id there.
    served: Option<(u32, RequestId)>,
    dispatched: Ns,
    /// Replica that serves the request.
    pub(in crate::simulation) replica: u32,
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
        if let Some(number) = self.vacant.pop()
            && let Some(place) = self.in_flight.get_mut(number as usize)
        {
            *place = flight;
            return number;
        }
        self.in_flight.push(flight);
        u32::try_from(self.in_flight.len() - 1).unwrap_or(u32::MAX)
    }

    /// Frees the entry of a request that is no longer in flight.
    fn close_request(&mut self, number: u32) {
        self.open -= 1;
        if let Some(flight) = self.in_flight.get_mut(number as usize) {
            *flight = InFlightRequest::default();
        }
        self.vacant.push(number);
    }

    /// Prompt tokens that a request in an engine has to compute, as the oracle saw it at its choice.
    pub(in crate::simulation) fn expected_tokens(&self, id: engine::RequestId) -> u32 {
        let number = usize::try_from(id.0).unwrap_or(usize::MAX);
        let flight = self.in_flight.get(number);
        flight.map_or(0, |flight| flight.expected_tokens)
    }

    /// Step and region of a request.
    pub(in crate::simulation) fn step_of(&self, number: u32) -> Option<(&Step, usize)> {
        let flight = self.in_flight.get(number as usize)?;
        let record = self.records.get(flight.number)?;
        let step = self.clients.step(flight.session, flight.step)?;
        Some((step, record.region))
    }
}
