//! A region with several services: one of them writes the region's record, the others repeat it.
//!
//! Each of them is dialled by some peers, and what those say of the record would make each of them write a newer one, for
//! ever. Worse, two that write at the same time could give one version to two lists of heirs, and what is proved of such
//! lists rests on a version being one list. So the driver sees to it that one service leads; it hears the others' records
//! before it does.

use std::sync::Arc;

use super::message::{PoolReplicas, RegionRecord, SuccessorList};
use super::{Regions, records};

/// How this service writes its region's record.
#[derive(Debug)]
pub(super) struct RecordWriter {
    /// Whether it does.
    is_leader: bool,
    /// The replicas that it would write.
    pools: Option<Vec<PoolReplicas>>,
}

impl Default for RecordWriter {
    /// A service without siblings leads.
    fn default() -> Self {
        Self {
            is_leader: true,
            pools: None,
        }
    }
}

impl Regions {
    /// This region's record, as this service has it.
    #[must_use]
    pub fn own_record(&self) -> &Arc<RegionRecord> {
        &self.own
    }

    /// Whether this service writes its region's record.
    pub(super) fn is_record_leader(&self) -> bool {
        self.record_writer.is_leader
    }

    /// This service leads from now on, or does not.
    pub(super) fn set_record_leadership(&mut self, is_leader: bool) {
        self.record_writer.is_leader = is_leader;
        if is_leader && let Some(pools) = self.record_writer.pools.clone() {
            self.set_local_pools(pools);
        }
    }

    /// The replicas that this service would write; says whether it may.
    pub(super) fn propose_pools(&mut self, pools: &[PoolReplicas]) -> bool {
        self.record_writer.pools = Some(pools.to_vec());
        self.record_writer.is_leader
    }

    /// A sibling told what it has of this region's record.
    pub(super) fn on_sibling_record(&mut self, record: RegionRecord) {
        if record.region != self.own.region || !records::is_within_limits(&record) {
            self.counters.records_rejected += 1;
            return;
        }
        let (own, other) = (&*self.own, &record);
        let older = other.version < own.version
            || (other.version == own.version && other.pools == own.pools);
        let older_heirs =
            other.successors.version < own.successors.version || other.successors == own.successors;
        if older && older_heirs {
            return;
        }
        if self.is_record_leader() {
            // Somebody else has written. What comes next is newer than either, and its list of heirs follows none.
            let heirs = if older_heirs {
                own.successors.clone()
            } else {
                SuccessorList {
                    version: own.successors.version.max(other.successors.version) + 1,
                    order: own.successors.order.clone(),
                    previous: None,
                }
            };
            let version = if older {
                own.version
            } else {
                own.version.max(other.version) + 1
            };
            let pools = self.record_writer.pools.clone();
            self.store_own_record(RegionRecord {
                region: record.region,
                version,
                pools: pools.unwrap_or(record.pools),
                successors: heirs,
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
    use crate::{Event, Incarnation, RegionsConfig};
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

    fn tell(service: &mut Regions, event: Event) {
        service.handle(Time::ZERO, event);
    }

    /// Each hears the record of the other.
    fn meet(one: &mut Regions, other: &mut Regions) {
        let records = [
            RegionRecord::clone(one.own_record()),
            RegionRecord::clone(other.own_record()),
        ];
        let [first, second] = records.map(|record| Event::SiblingRecord { record });
        tell(one, second);
        tell(other, first);
    }

    #[test]
    fn one_writes_and_the_other_repeats() {
        let (mut leader, mut follower) = (service(1), service(2));
        tell(&mut follower, Event::RecordLeadership { is_leader: false });
        for replica in ["a:1", "a:2"] {
            let pools = pools(replica);
            tell(&mut leader, Event::LocalPools { pools });
        }
        let pools = pools("b:1");
        tell(&mut follower, Event::LocalPools { pools });
        meet(&mut leader, &mut follower);
        assert_eq!(leader.own_record().version, 2);
        assert_eq!(leader.own_record(), follower.own_record());

        // It takes over what was written last, with its own replicas.
        tell(&mut follower, Event::RecordLeadership { is_leader: true });
        assert_eq!(follower.own_record().version, 3);
        assert_eq!(&*follower.own_record().pools[0].replicas[0], "b:1");
        assert_eq!(
            follower.own_record().successors,
            leader.own_record().successors
        );
    }

    #[test]
    fn what_two_have_written_is_followed_by_something_newer_that_proves_nothing() {
        let (mut leader, mut follower) = (service(1), service(2));
        for (service, replica) in [(&mut leader, "a:1"), (&mut follower, "b:1")] {
            let pools = pools(replica);
            tell(service, Event::LocalPools { pools });
        }
        let mut heirs = leader.own_record().successors.clone();
        heirs.order.reverse();
        heirs.previous = Some(heirs.order.clone());
        let written = RegionRecord {
            successors: heirs,
            ..RegionRecord::clone(follower.own_record())
        };
        tell(&mut follower, Event::RecordLeadership { is_leader: false });
        tell(&mut follower, Event::SiblingRecord { record: written });
        assert_ne!(
            leader.own_record().successors,
            follower.own_record().successors
        );
        let before = leader.own_record().record_version();
        assert_eq!(before.successors, follower.own_record().successors.version);

        meet(&mut leader, &mut follower);
        let after = leader.own_record();
        assert!(after.version > before.replicas && after.successors.version > before.successors);
        assert_eq!(after.successors.previous, None);
        meet(&mut leader, &mut follower);
        assert_eq!(leader.own_record(), follower.own_record());
    }

    #[test]
    fn a_record_of_another_region_is_none_of_ours() {
        let mut service = service(1);
        let before = RegionRecord::clone(service.own_record());
        let record = RegionRecord {
            region: "eu".into(),
            version: 9,
            ..before.clone()
        };
        tell(&mut service, Event::SiblingRecord { record });
        assert_eq!(**service.own_record(), before);
    }
}
