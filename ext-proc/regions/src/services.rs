//! Where the services of one peer region stand.
//!
//! A region may have several services, and a service that starts again is another one. Each that is heard, by its pings
//! or its answers, is a *voice*. The region holds what any of its voices holds, and yields what all of them yield: of
//! several stories the one that forbids most is believed.

use core::time::Duration;
use std::collections::BTreeMap;

use super::message::{Advertisement, Incarnation, RecordVersion, RegionName};
use isotherm_router::Time;

/// Voices of one region; the one that was heard longest ago makes room.
const VOICES_MAX: usize = 8;

/// The services of one peer region.
#[derive(Debug, Default)]
pub(super) struct PeerServices(BTreeMap<Incarnation, PeerService>);

/// One service of a peer region.
#[derive(Debug)]
struct PeerService {
    advertisement: Advertisement,
    last_heard: Time,
    /// What it has of this region's record.
    record_version: RecordVersion,
    /// What it was sent of it last, and when.
    last_sent: Option<(RecordVersion, Time)>,
}

impl PeerServices {
    /// One of them spoke. What is older than what it said before is not believed.
    pub(super) fn on_advertisement(
        &mut self,
        stance: &Advertisement,
        has: Option<RecordVersion>,
        now: Time,
    ) {
        if !self.0.contains_key(&stance.incarnation) && self.0.len() >= VOICES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, voice)| voice.last_heard);
            if let Some(oldest) = oldest.map(|(life, _)| *life) {
                self.0.remove(&oldest);
            }
        }
        let voice = self
            .0
            .entry(stance.incarnation)
            .or_insert_with(|| PeerService {
                advertisement: stance.clone(),
                last_heard: now,
                record_version: RecordVersion::default(),
                last_sent: None,
            });
        voice.last_heard = now;
        if stance.version > voice.advertisement.version {
            voice.advertisement.clone_from(stance);
        }
        if let Some(has) = has {
            voice.record_version = voice.record_version.max(has);
        }
    }

    /// Whether this one wants a record again that it does not seem to have; it is taken to be sent then.
    pub(super) fn needs_record(
        &mut self,
        life: Incarnation,
        own: RecordVersion,
        now: Time,
        again_after: Duration,
    ) -> bool {
        let Some(voice) = self.0.get_mut(&life) else {
            return false;
        };
        let has_it = voice.record_version.replicas >= own.replicas
            && voice.record_version.successors >= own.successors;
        let on_its_way = matches!(voice.last_sent, Some((held, at)) if held == own && now.since(at) < again_after);
        if has_it || on_its_way {
            return false;
        }
        voice.last_sent = Some((own, now));
        true
    }

    /// They are dead.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets those that are silent for longer than `silence_max` while another of the region is heard: they would be
    /// heard too.
    pub(super) fn remove_silent(&mut self, silence_max: Duration) {
        if let Some(last) = self.last_heard() {
            self.0
                .retain(|_, voice| last.since(voice.last_heard) < silence_max);
        }
    }

    /// When the region was last heard.
    pub(super) fn last_heard(&self) -> Option<Time> {
        self.0.values().map(|voice| voice.last_heard).max()
    }

    /// Whether it says that its gateway is connected.
    pub(super) fn has_gateway(&self) -> bool {
        let last = self.0.values().max_by_key(|voice| voice.last_heard);
        last.is_some_and(|voice| voice.advertisement.has_gateway)
    }

    /// Whether it holds another region's replicas.
    pub(super) fn has_adopted(&self, region: &RegionName) -> bool {
        self.0
            .values()
            .any(|voice| voice.advertisement.adopted.contains(region))
    }

    /// Whether it leaves another region to others.
    pub(super) fn has_yielded(&self, region: &RegionName) -> bool {
        !self.0.is_empty()
            && self
                .0
                .values()
                .all(|voice| voice.advertisement.yielded.contains(region))
    }

    /// Whether it asks others to leave another region to it.
    pub(super) fn has_requested(&self, region: &RegionName) -> bool {
        self.0
            .values()
            .any(|voice| voice.advertisement.requested.contains(region))
    }

    /// Whether all of them have this list of heirs.
    pub(super) fn have_successors(&self, version: u64) -> bool {
        !self.0.is_empty()
            && self
                .0
                .values()
                .all(|voice| voice.record_version.successors == version)
    }

    /// The newest versions that any of them has of this region's record.
    pub(super) fn newest_record_version(&self) -> RecordVersion {
        let mut newest = RecordVersion::default();
        for voice in self.0.values() {
            newest.replicas = newest.replicas.max(voice.record_version.replicas);
            newest.successors = newest.successors.max(voice.record_version.successors);
        }
        newest
    }
}
