//! One other region, with all that is known of it.

use core::time::Duration;
use std::sync::Arc;

use super::event::Broken;
use super::message::{Held, Incarnation, Record, RegionName, Sight};
use super::proof::Proof;
use super::pulse::Pulse;
use super::records;
use super::voices::Voices;
use crate::{PeerId, Time};

/// Another region.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: RegionName,
    /// Why the link is down, where that is known.
    pub(super) broken: Option<Broken>,
    /// Whether the last attempt to dial has failed and no other was asked for yet.
    pub(super) attempt_failed: bool,
    pub(super) pulse: Pulse,
    pub(super) voices: Voices,
    pub(super) proof: Proof,
    /// Whether no answer that is young enough was heard: nothing is forwarded to it.
    pub(super) lost: bool,
    /// What it knows of the others, in order of identity, as of its last answer.
    pub(super) views: Vec<(PeerId, Sight, Held)>,
    pub(super) record: Arc<Record>,
    pub(super) version: Option<Arc<str>>,
    pub(super) incarnation: Option<Incarnation>,
    /// Whether the operator says that it is lost.
    pub(super) declared: bool,
    /// Since when it has been seen with its gateway, by whomever.
    pub(super) well_since: Option<Time>,
    /// Since when it has not.
    pub(super) down_since: Option<Time>,
    /// Where in its record the witnesses begin that are asked; none while nobody asks.
    pub(super) watched: Option<usize>,
    /// What the witnesses said last: when they were asked, and whether any answered.
    pub(super) witness: Option<(Time, bool)>,
    /// Since when none of them has answered, and how often they were asked since.
    pub(super) witness_silent: Option<(Time, u32)>,
    pub(super) claim: Claim,
}

/// How this region stands to the replicas of another.
#[derive(Debug)]
pub(super) struct Claim {
    /// The first ping that says that this region would adopt them; none while it leaves them to others.
    pub(super) stands_since: Option<u64>,
    pub(super) holds: bool,
    /// Whether it asks the others to leave them to it.
    pub(super) asks: bool,
    /// Since when a region that is neither heard nor dead has kept it from adopting.
    pub(super) stuck_since: Option<Time>,
    /// Whether it gave up on account of that.
    pub(super) gave_up: bool,
}

impl Peer {
    pub(super) fn new(name: RegionName, record: Option<Arc<Record>>, seq: u64, now: Time) -> Self {
        Self {
            record: record.unwrap_or_else(|| Arc::new(records::empty(name.clone()))),
            name,
            broken: None,
            attempt_failed: false,
            pulse: Pulse::default(),
            voices: Voices::default(),
            proof: Proof::new(now),
            lost: false,
            views: Vec::new(),
            version: None,
            incarnation: None,
            declared: false,
            well_since: None,
            down_since: Some(now),
            watched: None,
            witness: None,
            witness_silent: None,
            claim: Claim {
                stands_since: Some(seq),
                holds: false,
                asks: false,
                stuck_since: None,
                gave_up: false,
            },
        }
    }

    /// It gave a sign of life.
    pub(super) fn contact(&mut self, now: Time) {
        self.proof.contact(now);
        self.declared = false;
    }

    /// Whether it answers.
    pub(super) fn answers(&self) -> bool {
        !self.lost && self.pulse.as_of().is_some()
    }

    /// Whether it is known not to run, or to have not run at some moment since it was last heard.
    pub(super) fn dead(&self) -> bool {
        self.declared || self.proof.proved()
    }

    /// Whether its replicas answer this region.
    pub(super) fn reachable(&self, now: Time, age_max: Duration) -> bool {
        matches!(self.witness, Some((sent, true)) if now.since(sent) <= age_max)
    }

    /// How this service itself sees it.
    pub(super) fn sight(&self, now: Time, silence_max: Duration) -> Sight {
        let speaks = self
            .voices
            .last_heard()
            .is_some_and(|heard| now.since(heard) < silence_max);
        if self.answers() || speaks {
            Sight::Alive {
                gateway: self.voices.gateway(),
                round_trip: self.pulse.round_trip().unwrap_or_default(),
            }
        } else if self.broken == Some(Broken::Refused) {
            Sight::Alive {
                gateway: true,
                round_trip: Duration::ZERO,
            }
        } else {
            Sight::Silent
        }
    }

    /// What it says of another region.
    pub(super) fn view(&self, of: PeerId) -> (Sight, Held) {
        let found = self.views.binary_search_by_key(&of, |(id, _, _)| *id);
        found
            .ok()
            .and_then(|index| self.views.get(index))
            .map_or_else(Default::default, |(_, sight, has)| (*sight, *has))
    }

    /// Which list of another region's heirs it said to have.
    pub(super) fn view_of_heirs(&self, of: PeerId) -> u64 {
        self.view(of).1.heirs
    }
}
