//! Exchange of demand and numbers of replicas: with siblings, whose sums add up, and with other regions, whose rows enter the
//! program.

use std::sync::Arc;

use tokio::sync::broadcast;

use super::{RegionsDriver, RegionsHandle};
use crate::peering::{Message, ScalingShare, encode};

/// Limit of shares that wait for the planner, which reads them within seconds. Later shares repeat what the planner misses.
pub(super) const SHARES_MAX: usize = 1_024;

/// Share of another service.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedShare {
    /// Region of the service; `None` for a sibling.
    pub(crate) region: Option<Arc<str>>,
    /// The share.
    pub(crate) share: Arc<ScalingShare>,
}

/// Passes a share of another service to the planner.
pub(super) fn receive(driver: &RegionsDriver, region: Option<&str>, share: Arc<ScalingShare>) {
    let region = region.map(Arc::from);
    // Without a planner the channel has no receiver.
    let _ = driver.scaling.send(ReceivedShare { region, share });
}

impl RegionsHandle {
    /// Sends a share to every sibling and every peer. A share that cannot be sent counts as lost on the way.
    pub(crate) fn share_scaling(&self, share: ScalingShare) {
        match encode(&Message::Scaling(Arc::new(share))) {
            Ok(message) => self.0.lock().links.send_to_all(&message),
            Err(error) => tracing::debug!(%error, "share not sent"),
        }
    }

    /// Returns a receiver of the shares of other services.
    pub(crate) fn scaling_shares(&self) -> broadcast::Receiver<ReceivedShare> {
        self.0.scaling.subscribe()
    }

    /// Name of this region, and whether the service has siblings.
    pub(crate) fn scaling_identity(&self) -> (String, bool) {
        let core = self.0.lock();
        (
            core.config.name.clone(),
            core.links.siblings().next().is_some() || core.config.siblings_service.is_some(),
        )
    }
}
