//! This region's own record, and the peers that the configuration names.

use core::time::Duration;
use std::sync::Arc;

use super::event::{Effect, RegionsConfig, Released};
use super::message::{Heirs, Members, Record, RegionName};
use super::peer::Peer;
use super::{Regions, records};

/// Intervals between two lists of heirs while the last one is not certain yet.
const SETTLE_INTERVALS: u32 = 5;
/// Intervals between two lists of heirs otherwise.
const REORDER_INTERVALS: u32 = 150;

impl Regions {
    /// This region's replicas are these now.
    pub(super) fn members(&mut self, pools: Vec<Members>) {
        if !self.may_write(&pools) || self.own.pools == pools {
            return;
        }
        let record = Record {
            version: self.own.version + 1,
            pools,
            ..Record::clone(&self.own)
        };
        if records::fits(&record) {
            self.store(record);
        } else {
            self.counters.records_refused += 1;
        }
    }

    /// Publishes a list of heirs when it is time to, and when it is safe to.
    pub(super) fn publish(&mut self) {
        if !self.leads() {
            return;
        }
        let mut newest = self.own.held();
        for peer in self.peers.values() {
            let known = peer.voices.newest();
            newest.replicas = newest.replicas.max(known.replicas);
            newest.heirs = newest.heirs.max(known.heirs);
        }
        if newest.replicas > self.own.version {
            // An earlier life told them more than is remembered here.
            let record = Record {
                version: newest.replicas + 1,
                ..Record::clone(&self.own)
            };
            self.store(record);
        }
        let next = if newest.heirs > self.own.heirs.version || newest.heirs == 0 {
            let next = Heirs::default().next(self.round_trips());
            Some(Heirs {
                version: newest.heirs + 1,
                prior: None,
                ..next
            })
        } else if self.may_publish() {
            Some(self.own.heirs.next(self.round_trips()))
        } else {
            None
        };
        if let Some(heirs) = next {
            self.published = self.now;
            let record = Record {
                heirs,
                ..Record::clone(&self.own)
            };
            self.store(record);
        }
    }

    /// Whether a next list is wanted, and everybody has this one and holds nothing of this region.
    fn may_publish(&self) -> bool {
        let heirs = &self.own.heirs;
        let certain = heirs.prior.as_ref() == Some(&heirs.order);
        let pause = if certain {
            REORDER_INTERVALS
        } else {
            SETTLE_INTERVALS
        };
        self.now.since(self.published) >= self.config.interval * pause
            && self
                .peers
                .values()
                .filter(|peer| !peer.declared)
                .all(|peer| {
                    peer.answers()
                        && peer.voices.have_heirs(heirs.version)
                        && !peer.voices.holds(&self.config.name)
                })
            && heirs.wants(&self.round_trips())
    }

    fn round_trips(&self) -> Vec<(Option<Duration>, RegionName)> {
        let peers = self.peers.values();
        peers
            .map(|peer| (peer.pulse.round_trip(), peer.name.clone()))
            .collect()
    }

    pub(super) fn store(&mut self, record: Record) {
        self.own = Arc::new(record);
        self.effects.push_back(Effect::Store {
            record: self.own.clone(),
        });
    }

    /// The configuration changed. A region cannot change its name without starting again.
    pub(super) fn reconfigured(&mut self, config: RegionsConfig) {
        let name = self.config.name.clone();
        self.config = RegionsConfig { name, ..config };
        let gone: Vec<_> = self
            .peers
            .iter()
            .filter(|(id, peer)| !self.config.peers.contains(&(**id, peer.name.clone())))
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.release(id, Released::Configured);
            if let Some(peer) = self.peers.remove(&id) {
                self.names.remove(&peer.name);
                if peer.watched.is_some() {
                    self.effects.push_back(Effect::Unwatch { peer: id });
                }
                self.strangers.insert(peer.name, peer.record);
            }
        }
        self.admit_peers();
        self.settle();
    }

    /// Takes in the peers that the configuration names and that are not known yet.
    pub(super) fn admit_peers(&mut self) {
        for (id, name) in self.config.peers.clone() {
            if name == self.config.name
                || self.peers.contains_key(&id)
                || self.names.contains_key(&name)
            {
                continue;
            }
            let record = self.strangers.remove(&name);
            self.names.insert(name.clone(), id);
            self.peers
                .insert(id, Peer::new(name, record, self.seq, self.now));
        }
    }
}
