//! One request from its client and back.
//!
//! Client to the gateway of its region, the router's queue, the replica; or another region in between, which may send it
//! back. The response takes the same way. Times at the client are written down when they are known, which is when the
//! engine brings them forth: nothing happens on the way back that could change them.
//!
//! - `out`: from the client to the engine
//! - `back`: from the engine to the client, and what routers are told on the way
//! - `ways`: how long each part takes

mod back;
mod out;
mod ways;

use std::sync::Arc;

use isotherm_engine::model as engine;
use isotherm_fingerprint::Fingerprint;
use isotherm_router::{End, PeerId, RequestId};

use super::World;
use super::agenda::Ns;
use crate::workload::Step;

/// A request that has been sent and not answered.
#[derive(Clone, Debug, Default)]
pub(in crate::world) struct Journey {
    /// Its record.
    pub(in crate::world) number: usize,
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
    pub(in crate::world) replica: u32,
    /// Prompt tokens that the oracle expects its replica to compute.
    expected_tokens: u32,
    /// When its first token left the engine.
    first: Option<Ns>,
    /// What the engine counted at its end; none when it refused.
    usage: Option<engine::Usage>,
    refusal: Option<End>,
}

impl World<'_> {
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

    /// How many prompt tokens a request in an engine has to compute, as the oracle saw it when it chose.
    pub(in crate::world) fn expected_tokens(&self, id: engine::RequestId) -> u32 {
        let number = usize::try_from(id.0).unwrap_or(usize::MAX);
        let journey = self.journeys.get(number);
        journey.map_or(0, |journey| journey.expected_tokens)
    }

    /// What the client of a journey asks, and from where.
    pub(in crate::world) fn asked(&self, number: u32) -> Option<(&Step, usize)> {
        let journey = self.journeys.get(number as usize)?;
        let record = self.requests.get(journey.number)?;
        let step = self.clients.step(journey.session, journey.step)?;
        Some((step, record.region))
    }
}
