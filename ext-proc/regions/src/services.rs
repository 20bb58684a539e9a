//! The services of one peer region and their advertisements (`docs/design/recovery.md`).
//!
//! A region may have several services, and a restarted service is another one. The most restrictive advertisement applies.

use core::time::Duration;
use std::collections::BTreeMap;

use super::message::{Advertisement, Incarnation, RecordVersion, RegionName};
use isotherm_router::Time;

/// Limit of services per region; the one that was heard longest ago is removed first.
const SERVICES_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct PeerServices(BTreeMap<Incarnation, PeerService>);

#[derive(Debug)]
struct PeerService {
    advertisement: Advertisement,
    last_heard: Time,
    record_version: RecordVersion,
    /// Version of the record that was sent last, and the time.
    last_sent: Option<(RecordVersion, Time)>,
}

impl PeerServices {
    /// Handles an advertisement. An older one than the last is ignored.
    pub(super) fn on_advertisement(
        &mut self,
        advertisement: &Advertisement,
        record_version: Option<RecordVersion>,
        now: Time,
    ) {
        if !self.0.contains_key(&advertisement.incarnation) && self.0.len() >= SERVICES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, service)| service.last_heard);
            if let Some(oldest) = oldest.map(|(incarnation, _)| *incarnation) {
                self.0.remove(&oldest);
            }
        }
        let service = self
            .0
            .entry(advertisement.incarnation)
            .or_insert_with(|| PeerService {
                advertisement: advertisement.clone(),
                last_heard: now,
                record_version: RecordVersion::default(),
                last_sent: None,
            });
        service.last_heard = now;
        if advertisement.version > service.advertisement.version {
            service.advertisement.clone_from(advertisement);
        }
        if let Some(version) = record_version {
            service.record_version = service.record_version.max(version);
        }
    }

    /// Whether a service needs this region's record; if so, the record counts as sent.
    pub(super) fn needs_record(
        &mut self,
        incarnation: Incarnation,
        own: RecordVersion,
        now: Time,
        resend_after: Duration,
    ) -> bool {
        let Some(service) = self.0.get_mut(&incarnation) else {
            return false;
        };
        let is_current = service.record_version.replicas >= own.replicas
            && service.record_version.successors >= own.successors;
        let is_pending = matches!(service.last_sent, Some((sent, at)) if sent == own && now.since(at) < resend_after);
        if is_current || is_pending {
            return false;
        }
        service.last_sent = Some((own, now));
        true
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes services that have been silent for longer than `silence_max` while another one was heard.
    pub(super) fn remove_silent(&mut self, silence_max: Duration) {
        if let Some(last) = self.last_heard() {
            self.0
                .retain(|_, service| last.since(service.last_heard) < silence_max);
        }
    }

    pub(super) fn last_heard(&self) -> Option<Time> {
        self.0.values().map(|service| service.last_heard).max()
    }

    /// Whether the service that was heard last reports a gateway.
    pub(super) fn has_gateway(&self) -> bool {
        let last = self.0.values().max_by_key(|service| service.last_heard);
        last.is_some_and(|service| service.advertisement.has_gateway)
    }

    /// Whether any service has adopted another region's replicas.
    pub(super) fn has_adopted(&self, region: &RegionName) -> bool {
        self.0
            .values()
            .any(|service| service.advertisement.adopted.contains(region))
    }

    /// Whether all services yield another region's replicas.
    pub(super) fn has_yielded(&self, region: &RegionName) -> bool {
        !self.0.is_empty()
            && self
                .0
                .values()
                .all(|service| service.advertisement.yielded.contains(region))
    }

    /// Whether any service requests another region's replicas.
    pub(super) fn has_requested(&self, region: &RegionName) -> bool {
        self.0
            .values()
            .any(|service| service.advertisement.requested.contains(region))
    }

    pub(super) fn have_successors(&self, version: u64) -> bool {
        !self.0.is_empty()
            && self
                .0
                .values()
                .all(|service| service.record_version.successors == version)
    }

    pub(super) fn newest_record_version(&self) -> RecordVersion {
        let mut newest = RecordVersion::default();
        for service in self.0.values() {
            newest.replicas = newest.replicas.max(service.record_version.replicas);
            newest.successors = newest.successors.max(service.record_version.successors);
        }
        newest
    }
}
