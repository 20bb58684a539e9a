//! This region's own record, and the peers of the configuration.

use core::time::Duration;
use std::sync::Arc;

use super::event::{Effect, RegionsConfig, ReleaseReason};
use super::message::{PoolReplicas, RegionName, RegionRecord, SuccessorList};
use super::peer::PeerRegion;
use super::{Regions, records};

/// Intervals between two successor lists while the last two differ.
const SETTLE_INTERVALS: u32 = 5;
/// Intervals between two successor lists otherwise.
const REORDER_INTERVALS: u32 = 150;

impl Regions {
    pub(super) fn set_local_pools(&mut self, pools: Vec<PoolReplicas>) {
        self.proposed_pools = Some(pools.clone());
        if !self.is_record_leader || self.own.pools == pools {
            return;
        }
        let record = RegionRecord {
            version: self.own.version + 1,
            pools,
            ..RegionRecord::clone(&self.own)
        };
        if records::is_within_limits(&record) {
            self.store_own_record(record);
        } else {
            self.counters.records_rejected += 1;
        }
    }

    /// Publishes the next successor list when it is due and safe.
    pub(super) fn publish_successors(&mut self) {
        if !self.is_record_leader {
            return;
        }
        let mut newest = self.own.record_version();
        for peer in self.peers.values() {
            let known = peer.services.newest_record_version();
            newest.replicas = newest.replicas.max(known.replicas);
            newest.successors = newest.successors.max(known.successors);
        }
        if newest.replicas > self.own.version {
            // An earlier incarnation published a newer record than the state file holds.
            let record = RegionRecord {
                version: newest.replicas + 1,
                ..RegionRecord::clone(&self.own)
            };
            self.store_own_record(record);
        }
        let next = if newest.successors > self.own.successors.version || newest.successors == 0 {
            let next = SuccessorList::default().next(self.round_trips());
            Some(SuccessorList {
                version: newest.successors + 1,
                previous: None,
                ..next
            })
        } else if self.can_publish() {
            Some(self.own.successors.next(self.round_trips()))
        } else {
            None
        };
        if let Some(successors) = next {
            self.successors_published_at = self.now;
            let record = RegionRecord {
                successors,
                ..RegionRecord::clone(&self.own)
            };
            self.store_own_record(record);
        }
    }

    /// Whether the next list is due, every other region has the newest one, and no other region has adopted replicas of this one.
    fn can_publish(&self) -> bool {
        let successors = &self.own.successors;
        let is_certain = successors.previous.as_ref() == Some(&successors.order);
        let pause = if is_certain {
            REORDER_INTERVALS
        } else {
            SETTLE_INTERVALS
        };
        self.now.since(self.successors_published_at) >= self.config.interval * pause
            && self
                .peers
                .values()
                .filter(|peer| !peer.is_declared_lost)
                .all(|peer| {
                    peer.is_answering()
                        && peer.services.have_successors(successors.version)
                        && !peer.services.has_adopted(&self.config.name)
                })
            && successors.needs_update(&self.round_trips())
    }

    fn round_trips(&self) -> Vec<(Option<Duration>, RegionName)> {
        let peers = self.peers.values();
        peers
            .map(|peer| (peer.heartbeats.round_trip, peer.name.clone()))
            .collect()
    }

    pub(super) fn store_own_record(&mut self, record: RegionRecord) {
        self.own = Arc::new(record);
        self.effects
            .push_back(Effect::StoreRecord(self.own.clone()));
    }

    /// Applies a configuration. A change of this region's name needs a restart.
    pub(super) fn reconfigure(&mut self, config: RegionsConfig) {
        let name = self.config.name.clone();
        self.config = RegionsConfig { name, ..config };
        let removed: Vec<_> = self
            .peers
            .iter()
            .filter(|(id, peer)| !self.config.peers.contains(&(**id, peer.name.clone())))
            .map(|(id, _)| *id)
            .collect();
        for id in removed {
            self.release(id, ReleaseReason::Configured);
            if let Some(peer) = self.peers.remove(&id) {
                self.names.remove(&peer.name);
                if peer.probe_offset.is_some() {
                    self.effects.push_back(Effect::StopProbing(id));
                }
                self.unconfigured_records.insert(peer.name, peer.record);
            }
        }
        self.add_configured_peers();
        self.update_claims();
    }

    /// Adds the peers of the configuration that are not known yet.
    pub(super) fn add_configured_peers(&mut self) {
        for (id, name) in self.config.peers.clone() {
            if name == self.config.name
                || self.peers.contains_key(&id)
                || self.names.contains_key(&name)
            {
                continue;
            }
            let record = self.unconfigured_records.remove(&name);
            self.names.insert(name.clone(), id);
            self.peers
                .insert(id, PeerRegion::new(name, record, self.seq, self.now));
        }
    }
}
