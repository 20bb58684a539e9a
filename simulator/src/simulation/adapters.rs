//! Adapters in a simulation: the names that a router knows them by, and what replicas tell of them.

use isotherm_engine::model::AdapterUse;
use isotherm_router::{AdapterKey, AdapterReport, Event, ReplicaId};

use super::event_queue::Ns;
use super::{Simulation, time};
use crate::prompt::mix;

/// Keeps the names of adapters apart from other hashes.
const ADAPTER: u64 = 0x6164_6170_7465_7201;

/// Name of an adapter for a router.
pub(super) const fn adapter_key(adapter: u32) -> AdapterKey {
    AdapterKey(mix(ADAPTER, adapter as u64))
}

impl Simulation<'_> {
    /// Tells a router the adapters that a replica can serve: all of the workload's.
    pub(super) fn list_adapters(&mut self, balancer: u32, replica: u32) {
        if !self.adapters.is_empty() {
            let adapters = self.adapters.iter().copied().map(adapter_key).collect();
            let replica = ReplicaId(replica);
            self.send_event(balancer, Event::AdaptersListed { replica, adapters });
        }
    }

    /// Tells a router the adapters of a replica's requests, as a probe found them.
    pub(super) fn report_adapters(
        &mut self,
        balancer: u32,
        replica: u32,
        reported: &AdapterUse,
        sent: Ns,
    ) {
        if self.adapters.is_empty() || !self.setup.telemetry.reports_adapters() {
            return;
        }
        let keys = |adapters: &[isotherm_engine::model::AdapterId]| -> Vec<AdapterKey> {
            adapters
                .iter()
                .map(|adapter| adapter_key(adapter.0))
                .collect()
        };
        let slots = self.replicas[replica].engine.config().adapters.slots;
        let report = AdapterReport {
            slots: Some(slots),
            running: keys(&reported.running),
            waiting: keys(&reported.waiting),
        };
        let event = Event::AdaptersReported {
            replica: ReplicaId(replica),
            report,
            sent: time(sent),
        };
        self.send_event(balancer, event);
    }
}
