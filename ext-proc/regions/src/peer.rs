//! One other region, with all that is known of it.

use core::time::Duration;
use std::sync::Arc;

use super::death_proof::DeathProof;
use super::event::LinkFailure;
use super::heartbeats::HeartbeatMonitor;
use super::message::{Incarnation, Liveness, RecordVersion, RegionName, RegionRecord};
use super::records;
use super::services::PeerServices;
use isotherm_router::{PeerId, Time};

/// Another region.
#[derive(Debug)]
pub(super) struct PeerRegion {
    pub(super) name: RegionName,
    /// Why the link is down, where that is known.
    pub(super) link_failure: Option<LinkFailure>,
    /// Whether the last attempt to dial has failed and no other was asked for yet.
    pub(super) has_dial_failed: bool,
    pub(super) heartbeats: HeartbeatMonitor,
    pub(super) services: PeerServices,
    pub(super) death_proof: DeathProof,
    /// Whether no answer that is young enough was heard: nothing is forwarded to it.
    pub(super) is_lost: bool,
    /// What it knows of the others, in order of identity, as of its last answer.
    pub(super) views: Vec<(PeerId, Liveness, RecordVersion)>,
    pub(super) record: Arc<RegionRecord>,
    pub(super) software_version: Option<Arc<str>>,
    pub(super) incarnation: Option<Incarnation>,
    /// Whether the operator says that it is lost.
    pub(super) is_declared_lost: bool,
    /// Since when it has been seen with its gateway, by whomever.
    pub(super) up_since: Option<Time>,
    /// Since when it has not.
    pub(super) down_since: Option<Time>,
    /// Where in its record the witnesses begin that are asked; none while nobody asks.
    pub(super) probe_offset: Option<usize>,
    /// What the witnesses said last: when they were asked, and whether any answered.
    pub(super) last_probe: Option<(Time, bool)>,
    /// Since when none of them has answered, and how often they were asked since.
    pub(super) failed_probes: Option<(Time, u32)>,
    pub(super) claim: Claim,
}

/// How this region stands to the replicas of another.
#[derive(Debug)]
pub(super) struct Claim {
    /// The first ping that says that this region would adopt them; none while it leaves them to others.
    pub(super) claimed_since_seq: Option<u64>,
    pub(super) is_adopted: bool,
    /// Whether it asks the others to leave them to it.
    pub(super) is_requested: bool,
    /// Since when a region that is neither heard nor dead has kept it from adopting.
    pub(super) blocked_since: Option<Time>,
    /// Whether it gave up on account of that.
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
            incarnation: None,
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

    /// It gave a sign of life.
    pub(super) fn on_contact(&mut self, now: Time) {
        self.death_proof.reset(now);
        self.is_declared_lost = false;
    }

    /// Whether it answers.
    pub(super) fn is_answering(&self) -> bool {
        !self.is_lost && self.heartbeats.as_of().is_some()
    }

    /// Whether it is known not to run, or to have not run at some moment since it was last heard.
    pub(super) fn is_dead(&self) -> bool {
        self.is_declared_lost || self.death_proof.is_proved()
    }

    /// Whether its replicas answer this region.
    pub(super) fn has_reachable_replicas(&self, now: Time, age_max: Duration) -> bool {
        matches!(self.last_probe, Some((sent, true)) if now.since(sent) <= age_max)
    }

    /// How this service itself sees it.
    pub(super) fn liveness(&self, now: Time, silence_max: Duration) -> Liveness {
        let speaks = self
            .services
            .last_heard()
            .is_some_and(|heard| now.since(heard) < silence_max);
        if self.is_answering() || speaks {
            Liveness::Alive {
                has_gateway: self.services.has_gateway(),
                round_trip: self.heartbeats.round_trip().unwrap_or_default(),
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

    /// What it says of another region.
    pub(super) fn view_of(&self, of: PeerId) -> (Liveness, RecordVersion) {
        let found = self.views.binary_search_by_key(&of, |(id, _, _)| *id);
        found
            .ok()
            .and_then(|index| self.views.get(index))
            .map_or_else(Default::default, |(_, sight, has)| (*sight, *has))
    }

    /// Which list of another region's heirs it said to have.
    pub(super) fn successor_version_of(&self, of: PeerId) -> u64 {
        self.view_of(of).1.successors
    }
}
