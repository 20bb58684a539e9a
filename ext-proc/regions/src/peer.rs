//! State of one other region.

use core::time::Duration;
use std::sync::Arc;

use super::death_proof::DeathProof;
use super::event::LinkFailure;
use super::heartbeats::HeartbeatMonitor;
use super::message::{Liveness, RecordVersion, RegionName, RegionRecord};
use super::records;
use super::services::PeerServices;
use isotherm_router::{PeerId, Time};

#[derive(Debug)]
pub(super) struct PeerRegion {
    pub(super) name: RegionName,
    pub(super) link_failure: Option<LinkFailure>,
    /// Whether the last dial failed and no redial was requested since.
    pub(super) has_dial_failed: bool,
    pub(super) heartbeats: HeartbeatMonitor,
    pub(super) services: PeerServices,
    pub(super) death_proof: DeathProof,
    /// Whether the last heartbeat is too old. No request is forwarded to a lost peer.
    pub(super) is_lost: bool,
    /// The peer's view of other regions in its last heartbeat, in order of id.
    pub(super) views: Vec<(PeerId, Liveness, RecordVersion)>,
    pub(super) record: Arc<RegionRecord>,
    pub(super) software_version: Option<Arc<str>>,
    pub(super) is_declared_lost: bool,
    /// Time since which this service or another region hears the region with a gateway.
    pub(super) up_since: Option<Time>,
    /// Time since which no service hears the region with a gateway.
    pub(super) down_since: Option<Time>,
    /// Offset of the probed replicas in the record; `None` while no replica is probed.
    pub(super) probe_offset: Option<usize>,
    /// Start of the last round of probes, and whether any replica answered.
    pub(super) last_probe: Option<(Time, bool)>,
    /// Time since which no replica has answered, and the rounds since.
    pub(super) failed_probes: Option<(Time, u32)>,
    pub(super) claim: Claim,
}

/// Claim of this region on the replicas of another.
#[derive(Debug)]
pub(super) struct Claim {
    /// First ping that advertises the claim; `None` while this region yields.
    pub(super) claimed_since_seq: Option<u64>,
    pub(super) is_adopted: bool,
    /// Whether this region requests the replicas from the others.
    pub(super) is_requested: bool,
    /// Time since which an unaccounted region blocks the adoption.
    pub(super) blocked_since: Option<Time>,
    /// Whether this region gave the claim up because of that.
    pub(super) has_given_up: bool,
}

impl PeerRegion {
    pub(super) fn new(
        name: RegionName,
        record: Option<Arc<RegionRecord>>,
        seq: u64,
        now: Time,
    ) -> Self {
        Self {
            record: record.unwrap_or_else(|| Arc::new(records::empty_record(name.clone()))),
            name,
            link_failure: None,
            has_dial_failed: false,
            heartbeats: HeartbeatMonitor::default(),
            services: PeerServices::default(),
            death_proof: DeathProof::new(now),
            is_lost: false,
            views: Vec::new(),
            software_version: None,
            is_declared_lost: false,
            up_since: None,
            down_since: Some(now),
            probe_offset: None,
            last_probe: None,
            failed_probes: None,
            claim: Claim {
                claimed_since_seq: Some(seq),
                is_adopted: false,
                is_requested: false,
                blocked_since: None,
                has_given_up: false,
            },
        }
    }

    /// Handles a sign of life.
    pub(super) fn on_contact(&mut self, now: Time) {
        self.death_proof.reset(now);
        self.is_declared_lost = false;
    }

    /// Whether the region replies to pings.
    pub(super) fn is_answering(&self) -> bool {
        !self.is_lost && self.heartbeats.as_of.is_some()
    }

    /// Whether the region's service is known not to have run at some moment since it was last heard.
    pub(super) fn is_dead(&self) -> bool {
        self.is_declared_lost || self.death_proof.is_proved
    }

    /// Whether the region's replicas answered a recent probe of this service.
    pub(super) fn has_reachable_replicas(&self, now: Time, age_max: Duration) -> bool {
        matches!(self.last_probe, Some((sent, true)) if now.since(sent) <= age_max)
    }

    /// Returns the liveness as this service itself sees it.
    pub(super) fn liveness(&self, now: Time, silence_max: Duration) -> Liveness {
        let is_heard = self
            .services
            .last_heard()
            .is_some_and(|heard| now.since(heard) < silence_max);
        if self.is_answering() || is_heard {
            Liveness::Alive {
                has_gateway: self.services.has_gateway(),
                round_trip: self.heartbeats.round_trip.unwrap_or_default(),
            }
        } else if self.link_failure == Some(LinkFailure::Refused) {
            Liveness::Alive {
                has_gateway: true,
                round_trip: Duration::ZERO,
            }
        } else {
            Liveness::Silent
        }
    }

    /// Returns the region's view of another region.
    pub(super) fn view_of(&self, of: PeerId) -> (Liveness, RecordVersion) {
        let found = self.views.binary_search_by_key(&of, |(id, _, _)| *id);
        found
            .ok()
            .and_then(|index| self.views.get(index))
            .map_or_else(Default::default, |(_, liveness, version)| {
                (*liveness, *version)
            })
    }

    /// Returns the version of another region's successor list that the region has.
    pub(super) fn successor_version_of(&self, of: PeerId) -> u64 {
        self.view_of(of).1.successors
    }
}
