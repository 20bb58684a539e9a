//! The writer of a region's record among several services: one leads and writes, the others copy.
//!
//! Two services that write would answer each other's records with newer ones for ever. They could also publish two
//! successor lists of one version, and the adoption rule relies on one list per version. The driver selects the leader,
//! which hears the others' records before it leads.

use std::sync::Arc;

use super::message::{RegionRecord, SuccessorList};
use super::{Regions, records};

impl Regions {
    /// Returns this service's copy of its region's record.
    pub fn own_record(&self) -> &Arc<RegionRecord> {
        &self.own
    }

    pub(super) fn set_record_leadership(&mut self, is_leader: bool) {
        self.is_record_leader = is_leader;
        if is_leader && let Some(pools) = self.proposed_pools.clone() {
            self.set_local_pools(pools);
        }
    }

    /// Handles a sibling's copy of this region's record.
    pub(super) fn on_sibling_record(&mut self, record: RegionRecord) {
        if record.region != self.own.region || !records::is_within_limits(&record) {
            self.counters.records_rejected += 1;
            return;
        }
        let (own, other) = (&*self.own, &record);
        let has_no_newer_pools = other.version < own.version
            || (other.version == own.version && other.pools == own.pools);
        let has_no_newer_list =
            other.successors.version < own.successors.version || other.successors == own.successors;
        if has_no_newer_pools && has_no_newer_list {
            return;
        }
        if self.is_record_leader {
            // Another service has written. The next record is newer than either, and its successor list has no predecessor.
            let successors = if has_no_newer_list {
                own.successors.clone()
            } else {
                SuccessorList {
                    version: own.successors.version.max(other.successors.version) + 1,
                    order: own.successors.order.clone(),
                    previous: None,
                }
            };
            let version = if has_no_newer_pools {
                own.version
            } else {
                own.version.max(other.version) + 1
            };
            let pools = self.proposed_pools.clone();
            self.store_own_record(RegionRecord {
                region: record.region,
                version,
                pools: pools.unwrap_or(record.pools),
                successors,
            });
        } else if record.version >= own.version
            && record.successors.version >= own.successors.version
        {
            self.store_own_record(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::{Event, Incarnation, PoolReplicas, RegionsConfig};
    use isotherm_router::{PeerId, Time};

    fn service(incarnation: u64) -> Regions {
        let config = RegionsConfig {
            name: "us".into(),
            interval: Duration::from_millis(200),
            adopt: true,
            return_after: Duration::from_secs(10),
            version: "test".into(),
            peers: vec![(PeerId(0), "eu".into()), (PeerId(1), "asia".into())],
        };
        Regions::new(config, Incarnation(incarnation), [], Time::ZERO)
    }

    fn pools(replica: &str) -> Vec<PoolReplicas> {
        vec![PoolReplicas {
            model: "m".into(),
            replicas: vec![replica.into()],
        }]
    }

    fn handle(service: &mut Regions, event: Event) {
        service.handle(Time::ZERO, event);
    }

    /// Exchanges the records of two services.
    fn exchange(one: &mut Regions, other: &mut Regions) {
        let records = [
            RegionRecord::clone(one.own_record()),
            RegionRecord::clone(other.own_record()),
        ];
        let [first, second] = records.map(Event::SiblingRecord);
        handle(one, second);
        handle(other, first);
    }

    #[test]
    fn the_leader_writes_and_the_follower_copies() {
        let (mut leader, mut follower) = (service(1), service(2));
        handle(&mut follower, Event::RecordLeadership(false));
        for replica in ["a:1", "a:2"] {
            let pools = pools(replica);
            handle(&mut leader, Event::LocalPools(pools));
        }
        let pools = pools("b:1");
        handle(&mut follower, Event::LocalPools(pools));
        exchange(&mut leader, &mut follower);
        assert_eq!(leader.own_record().version, 2);
        assert_eq!(leader.own_record(), follower.own_record());

        // The new leader continues the last record with its own replicas.
        handle(&mut follower, Event::RecordLeadership(true));
        assert_eq!(follower.own_record().version, 3);
        assert_eq!(&*follower.own_record().pools[0].replicas[0], "b:1");
        assert_eq!(
            follower.own_record().successors,
            leader.own_record().successors
        );
    }

    #[test]
    fn two_written_records_are_followed_by_a_newer_one_without_a_previous_list() {
        let (mut leader, mut follower) = (service(1), service(2));
        for (service, replica) in [(&mut leader, "a:1"), (&mut follower, "b:1")] {
            let pools = pools(replica);
            handle(service, Event::LocalPools(pools));
        }
        let mut successors = leader.own_record().successors.clone();
        successors.order.reverse();
        successors.previous = Some(successors.order.clone());
        let written = RegionRecord {
            successors,
            ..RegionRecord::clone(follower.own_record())
        };
        handle(&mut follower, Event::RecordLeadership(false));
        handle(&mut follower, Event::SiblingRecord(written));
        assert_ne!(
            leader.own_record().successors,
            follower.own_record().successors
        );
        let before = leader.own_record().record_version();
        assert_eq!(before.successors, follower.own_record().successors.version);

        exchange(&mut leader, &mut follower);
        let after = leader.own_record();
        assert!(after.version > before.replicas && after.successors.version > before.successors);
        assert_eq!(after.successors.previous, None);
        exchange(&mut leader, &mut follower);
        assert_eq!(leader.own_record(), follower.own_record());
    }

    #[test]
    fn a_record_of_another_region_is_rejected() {
        let mut service = service(1);
        let before = RegionRecord::clone(service.own_record());
        let record = RegionRecord {
            region: "eu".into(),
            version: 9,
            ..before.clone()
        };
        handle(&mut service, Event::SiblingRecord(record));
        assert_eq!(**service.own_record(), before);
    }
}
