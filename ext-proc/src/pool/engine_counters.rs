//! Counters of engines, from probes to the routing core, and the estimates that the core makes of them.

use isotherm_router::{EngineCounters, Event, PoolEstimates, ReplicaId, Time};

use super::Pool;
use crate::sans_io::Driver;

impl Pool {
    /// Reports the counters of a replica's engine, by a probe that was sent at `sent`. A replica that has left is ignored.
    /// Returns whether the counters are those of several processes, which tell nothing.
    pub(crate) fn counters_reported(
        &self,
        replica: ReplicaId,
        counters: EngineCounters,
        sent: Time,
    ) -> bool {
        self.drive(|state, now| {
            if state.membership.addr_of(replica).is_some() {
                self.page_reports.on_counters(replica, &counters);
                let event = Event::CountersReported {
                    replica,
                    counters,
                    sent,
                };
                state.router.handle(now, event);
            }
            state.router.has_several_processes(replica, now)
        })
    }

    /// Estimates of the pool's engines, with their sources.
    pub fn estimates(&self) -> PoolEstimates {
        self.state.lock().router.estimates()
    }
}
