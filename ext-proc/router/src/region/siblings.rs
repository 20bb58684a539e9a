//! A region with several services: one of them writes the region's record, the others repeat it.
//!
//! Each of them is dialled by some peers, and what those say of the record would make each of them write a newer one, for
//! ever. Worse, two that write at the same time could give one version to two lists of heirs, and what is proved of such
//! lists rests on a version being one list. So the driver sees to it that one service leads; it hears the others' records
//! before it does.

use std::sync::Arc;

use super::message::{Heirs, Members, Record};
use super::{Regions, records};

/// How this service writes its region's record.
#[derive(Debug)]
pub(super) struct Writing {
    /// Whether it does.
    leads: bool,
    /// The replicas that it would write.
    members: Option<Vec<Members>>,
}

impl Default for Writing {
    /// A service without siblings leads.
    fn default() -> Self {
        Self {
            leads: true,
            members: None,
        }
    }
}

impl Regions {
    /// This region's record, as this service has it.
    #[must_use]
    pub fn own_record(&self) -> &Arc<Record> {
        &self.own
    }

    /// Whether this service writes its region's record.
    pub(super) fn leads(&self) -> bool {
        self.writing.leads
    }

    /// This service leads from now on, or does not.
    pub(super) fn set_leads(&mut self, leads: bool) {
        self.writing.leads = leads;
        if leads && let Some(pools) = self.writing.members.clone() {
            self.members(pools);
        }
    }

    /// The replicas that this service would write; says whether it may.
    pub(super) fn may_write(&mut self, pools: &[Members]) -> bool {
        self.writing.members = Some(pools.to_vec());
        self.writing.leads
    }

    /// A sibling told what it has of this region's record.
    pub(super) fn sibling_record(&mut self, record: Record) {
        if record.region != self.own.region || !records::fits(&record) {
            self.counters.records_refused += 1;
            return;
        }
        let (own, other) = (&*self.own, &record);
        let older = other.version < own.version
            || (other.version == own.version && other.pools == own.pools);
        let older_heirs = other.heirs.version < own.heirs.version || other.heirs == own.heirs;
        if older && older_heirs {
            return;
        }
        if self.leads() {
            // Somebody else has written. What comes next is newer than either, and its list of heirs follows none.
            let heirs = if older_heirs {
                own.heirs.clone()
            } else {
                Heirs {
                    version: own.heirs.version.max(other.heirs.version) + 1,
                    order: own.heirs.order.clone(),
                    prior: None,
                }
            };
            let version = if older {
                own.version
            } else {
                own.version.max(other.version) + 1
            };
            let pools = self.writing.members.clone();
            self.store(Record {
                region: record.region,
                version,
                pools: pools.unwrap_or(record.pools),
                heirs,
            });
        } else if record.version >= own.version && record.heirs.version >= own.heirs.version {
            self.store(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::region::{Event, Incarnation, RegionsConfig};
    use crate::{PeerId, Time};

    fn service(incarnation: u64) -> Regions {
        let config = RegionsConfig {
            name: "us".into(),
            interval: Duration::from_millis(200),
            adopt: true,
            give_back_after: Duration::from_secs(10),
            version: "test".into(),
            peers: vec![(PeerId(0), "eu".into()), (PeerId(1), "asia".into())],
        };
        Regions::new(config, Incarnation(incarnation), [], Time::ZERO)
    }

    fn pools(replica: &str) -> Vec<Members> {
        vec![Members {
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
            Record::clone(one.own_record()),
            Record::clone(other.own_record()),
        ];
        let [first, second] = records.map(|record| Event::SiblingRecord { record });
        tell(one, second);
        tell(other, first);
    }

    #[test]
    fn one_writes_and_the_other_repeats() {
        let (mut leader, mut follower) = (service(1), service(2));
        tell(&mut follower, Event::Leads { leads: false });
        for replica in ["a:1", "a:2"] {
            let pools = pools(replica);
            tell(&mut leader, Event::Members { pools });
        }
        let pools = pools("b:1");
        tell(&mut follower, Event::Members { pools });
        meet(&mut leader, &mut follower);
        assert_eq!(leader.own_record().version, 2);
        assert_eq!(leader.own_record(), follower.own_record());

        // It takes over what was written last, with its own replicas.
        tell(&mut follower, Event::Leads { leads: true });
        assert_eq!(follower.own_record().version, 3);
        assert_eq!(&*follower.own_record().pools[0].replicas[0], "b:1");
        assert_eq!(follower.own_record().heirs, leader.own_record().heirs);
    }

    #[test]
    fn what_two_have_written_is_followed_by_something_newer_that_proves_nothing() {
        let (mut leader, mut follower) = (service(1), service(2));
        for (service, replica) in [(&mut leader, "a:1"), (&mut follower, "b:1")] {
            let pools = pools(replica);
            tell(service, Event::Members { pools });
        }
        let mut heirs = leader.own_record().heirs.clone();
        heirs.order.reverse();
        heirs.prior = Some(heirs.order.clone());
        let written = Record {
            heirs,
            ..Record::clone(follower.own_record())
        };
        tell(&mut follower, Event::Leads { leads: false });
        tell(&mut follower, Event::SiblingRecord { record: written });
        assert_ne!(leader.own_record().heirs, follower.own_record().heirs);
        let before = leader.own_record().held();
        assert_eq!(before.heirs, follower.own_record().heirs.version);

        meet(&mut leader, &mut follower);
        let after = leader.own_record();
        assert!(after.version > before.replicas && after.heirs.version > before.heirs);
        assert_eq!(after.heirs.prior, None);
        meet(&mut leader, &mut follower);
        assert_eq!(leader.own_record(), follower.own_record());
    }

    #[test]
    fn a_record_of_another_region_is_none_of_ours() {
        let mut service = service(1);
        let before = Record::clone(service.own_record());
        let record = Record {
            region: "eu".into(),
            version: 9,
            ..before.clone()
        };
        tell(&mut service, Event::SiblingRecord { record });
        assert_eq!(**service.own_record(), before);
    }
}
