//! Where the services of one peer region stand.
//!
//! A region may have several services, and a service that starts again is another one. Each that is heard, by its pings
//! or its answers, is a *voice*. The region holds what any of its voices holds, and yields what all of them yield: of
//! several stories the one that forbids most is believed.

use core::time::Duration;
use std::collections::BTreeMap;

use super::message::{Held, Incarnation, RegionName, Stance};
use crate::Time;

/// Voices of one region; the one that was heard longest ago makes room.
const VOICES_MAX: usize = 8;

/// The services of one peer region.
#[derive(Debug, Default)]
pub(super) struct Voices(BTreeMap<Incarnation, Voice>);

/// One service of a peer region.
#[derive(Debug)]
struct Voice {
    stance: Stance,
    heard: Time,
    /// What it has of this region's record.
    has: Held,
    /// What it was sent of it last, and when.
    sent: Option<(Held, Time)>,
}

impl Voices {
    /// One of them spoke. What is older than what it said before is not believed.
    pub(super) fn hear(&mut self, stance: &Stance, has: Option<Held>, now: Time) {
        if !self.0.contains_key(&stance.incarnation) && self.0.len() >= VOICES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, voice)| voice.heard);
            if let Some(oldest) = oldest.map(|(life, _)| *life) {
                self.0.remove(&oldest);
            }
        }
        let voice = self.0.entry(stance.incarnation).or_insert_with(|| Voice {
            stance: stance.clone(),
            heard: now,
            has: Held::default(),
            sent: None,
        });
        voice.heard = now;
        if stance.number > voice.stance.number {
            voice.stance.clone_from(stance);
        }
        if let Some(has) = has {
            voice.has = voice.has.max(has);
        }
    }

    /// Whether this one wants a record again that it does not seem to have; it is taken to be sent then.
    pub(super) fn wants(
        &mut self,
        life: Incarnation,
        own: Held,
        now: Time,
        again_after: Duration,
    ) -> bool {
        let Some(voice) = self.0.get_mut(&life) else {
            return false;
        };
        let has_it = voice.has.replicas >= own.replicas && voice.has.heirs >= own.heirs;
        let on_its_way =
            matches!(voice.sent, Some((held, at)) if held == own && now.since(at) < again_after);
        if has_it || on_its_way {
            return false;
        }
        voice.sent = Some((own, now));
        true
    }

    /// They are dead.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets those that are silent for longer than `silence_max` while another of the region is heard: they would be
    /// heard too.
    pub(super) fn expire(&mut self, silence_max: Duration) {
        if let Some(last) = self.last_heard() {
            self.0
                .retain(|_, voice| last.since(voice.heard) < silence_max);
        }
    }

    /// When the region was last heard.
    pub(super) fn last_heard(&self) -> Option<Time> {
        self.0.values().map(|voice| voice.heard).max()
    }

    /// Whether it says that its gateway is connected.
    pub(super) fn gateway(&self) -> bool {
        let last = self.0.values().max_by_key(|voice| voice.heard);
        last.is_some_and(|voice| voice.stance.gateway)
    }

    /// Whether it holds another region's replicas.
    pub(super) fn holds(&self, region: &RegionName) -> bool {
        self.0
            .values()
            .any(|voice| voice.stance.holds.contains(region))
    }

    /// Whether it leaves another region to others.
    pub(super) fn yields(&self, region: &RegionName) -> bool {
        !self.0.is_empty()
            && self
                .0
                .values()
                .all(|voice| voice.stance.yields.contains(region))
    }

    /// Whether it asks others to leave another region to it.
    pub(super) fn asks(&self, region: &RegionName) -> bool {
        self.0
            .values()
            .any(|voice| voice.stance.asks.contains(region))
    }

    /// Whether all of them have this list of heirs.
    pub(super) fn have_heirs(&self, version: u64) -> bool {
        !self.0.is_empty() && self.0.values().all(|voice| voice.has.heirs == version)
    }

    /// The newest versions that any of them has of this region's record.
    pub(super) fn newest(&self) -> Held {
        let mut newest = Held::default();
        for voice in self.0.values() {
            newest.replicas = newest.replicas.max(voice.has.replicas);
            newest.heirs = newest.heirs.max(voice.has.heirs);
        }
        newest
    }
}
