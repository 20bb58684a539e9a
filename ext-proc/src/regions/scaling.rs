//! Exchange of demand and numbers of replicas: with siblings, whose sums add up, and with other regions, whose rows enter the
//! program.

use std::sync::Arc;

use tokio::sync::broadcast;

use super::{RegionsDriver, RegionsHandle};
use crate::peering::{Message, ScalingShare};

/// Shares that wait for the planner. It reads them within seconds; what it misses comes again with the next ones.
pub(super) const SHARES_MAX: usize = 1_024;

/// Share of another service.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedShare {
    /// Region of the service; `None` for a sibling.
    pub(crate) region: Option<Arc<str>>,
    /// The share.
    pub(crate) share: Arc<ScalingShare>,
}

/// Hands over what another service told.
pub(super) fn receive(driver: &RegionsDriver, region: Option<&str>, share: Arc<ScalingShare>) {
    let region = region.map(Arc::from);
    // Without a planner nothing reads it.
    let _ = driver.scaling.send(ReceivedShare { region, share });
}

impl RegionsHandle {
    /// Sends demand and numbers to every sibling and every peer. What cannot be sent counts as lost on the way.
    pub(crate) fn share_scaling(&self, share: ScalingShare) {
        let message = Message::Scaling(Arc::new(share));
        let core = self.0.lock();
        for link in &core.links.siblings {
            let _ = link.dialer.send(&message);
        }
        let peers: Vec<_> = core.links.peers.keys().copied().collect();
        for peer in peers {
            core.links.send_to_peer(peer, &message);
        }
    }

    /// Follows what other services tell.
    pub(crate) fn scaling_shares(&self) -> broadcast::Receiver<ReceivedShare> {
        self.0.scaling.subscribe()
    }

    /// Name of this region, and whether the service has siblings.
    pub(crate) fn scaling_identity(&self) -> (String, bool) {
        let core = self.0.lock();
        (
            core.config.name.clone(),
            !core.links.siblings.is_empty() || core.config.siblings_service.is_some(),
        )
    }
}
