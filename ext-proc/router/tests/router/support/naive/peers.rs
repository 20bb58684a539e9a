//! A naive model of peer regions: what must hold for one to be forwarded a request, whatever else does.

use std::collections::{BTreeMap, BTreeSet};

use isotherm_fingerprint::BlockHash;
use isotherm_router::{
    ForwardDecision, ForwardingRule, PeerAvailability, PeerId, PeerReport, PeerStatus, RegionRules,
    Request, RequestId, Scope, Time,
};

use super::super::prompt;

/// Whether requests may stay for a warm cache, or leave for one, where responses tell how long they took.
pub fn weighs_times(rules: &RegionRules, tells_times: bool) -> bool {
    tells_times && rules.forwarding == ForwardingRule::Cost
}

/// Whether this request may go to that region at all.
pub fn may_leave_for(request: &Request, peer: PeerId) -> bool {
    match &request.scope {
        Scope::Regions { tried } => request.subset.is_none() && !tried.contains(&peer),
        Scope::Local | Scope::Forwarded => false,
    }
}

#[derive(Debug, Default)]
struct Peer {
    heard: Option<(PeerReport, Time)>,
    lost: bool,
    /// When something came back that its report had promised room for, and when anything did last.
    refuted: Option<Time>,
    returned: Option<Time>,
    /// When it was forwarded a request, by us or a sibling.
    pushes: Vec<Time>,
    /// Of the pushes, our batch requests.
    batch_pushes: Vec<Time>,
    /// The hashes of all prefixes that it was ever sent.
    sent: BTreeSet<u64>,
}

/// Since when a request is on its way, and its place in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Since {
    pub place: u64,
    pub arrived: Time,
    /// From when on its waits count.
    pub entered: Time,
    /// Whether the gate holds it.
    pub held: bool,
}

/// A request at a peer.
#[derive(Clone, Debug)]
pub struct ForwardedCopy {
    peer: PeerId,
    at: Time,
    pub since: Since,
    request: Request,
    /// Whether the request returned and has not ended yet.
    pub refused: bool,
}

/// All peers.
#[derive(Debug, Default)]
pub struct Peers {
    peers: BTreeMap<PeerId, Peer>,
    away: BTreeMap<RequestId, ForwardedCopy>,
    /// Removals of each region of the operations.
    removals: BTreeMap<u16, u16>,
}

/// Number of the regions of the operations.
const REGIONS: u16 = 4;

impl Peers {
    /// The present id of a region of the operations. A region that was removed returns under another one.
    pub fn id(&self, region: u16) -> PeerId {
        let removals = self.removals.get(&region).copied();
        PeerId(region + REGIONS * removals.unwrap_or_default())
    }

    pub fn add(&mut self, id: PeerId) {
        self.peers.entry(id).or_default();
    }

    pub fn remove(&mut self, region: u16) -> PeerId {
        let id = self.id(region);
        self.peers.remove(&id);
        *self.removals.entry(region).or_default() += 1;
        id
    }

    pub fn lose(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.lost = true;
        }
    }

    pub fn says(&mut self, id: PeerId, report: PeerReport, as_of: Time) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if peer.heard.is_some_and(|(_, last)| as_of < last) {
            return;
        }
        peer.heard = Some((report, as_of));
        peer.lost = false;
        peer.refuted = peer.refuted.filter(|at| as_of <= *at);
    }

    pub fn came_back(&mut self, id: PeerId, now: Time) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.returned = Some(now);
            peer.refuted = peer.refuted.or(Some(now));
        }
    }

    pub fn ended_elsewhere(&mut self, away: &ForwardedCopy, now: Time) {
        if let Some(peer) = self.peers.get_mut(&away.peer)
            && peer.returned.is_none_or(|at| at < away.at)
        {
            peer.refuted = peer.refuted.or(Some(now));
        }
    }

    pub fn sibling_forwarded(&mut self, id: PeerId, blocks: &[BlockHash], now: Time) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.pushes.push(now);
            peer.sent.extend(blocks.iter().map(|block| block.hash));
        }
    }

    pub fn away(&self) -> usize {
        self.away.len()
    }

    /// Takes one that is away, or came back and has not ended.
    pub fn take_away(&mut self, which: usize) -> Option<(RequestId, ForwardedCopy)> {
        let id = *self.away.keys().nth(which % self.away.len().max(1))?;
        let away = self.away.remove(&id)?;
        Some((id, away))
    }

    /// Returns a forwarded request for its peer to reject.
    pub fn to_refuse(&self, which: usize) -> Option<(PeerId, Request)> {
        let there = || self.away.values().filter(|away| !away.refused);
        let away = there().nth(which % there().count().max(1))?;
        Some((away.peer, away.request.clone()))
    }

    /// A request came back from a peer: since when it had been on its way, when one like it left from here.
    pub fn takes_back(&mut self, from: PeerId, request: &Request) -> Option<Since> {
        let alike = |away: &&mut ForwardedCopy| {
            let same = away.request.fingerprint == request.fingerprint;
            !away.refused && away.peer == from && same && away.request.session == request.session
        };
        let away = self.away.values_mut().find(alike)?;
        away.refused = true;
        Some(away.since)
    }

    /// Blocks that give the prompt of a request: the models' requests have few.
    pub fn blocks_of(&self, request: &Request) -> Vec<u64> {
        let mut blocks = Vec::new();
        for hashed in request.fingerprint.blocks() {
            let next = (0..3).find(|block| {
                let longer: Vec<u64> = blocks.iter().copied().chain([*block]).collect();
                prompt(&longer).blocks().last() == Some(hashed)
            });
            blocks.push(next.expect("a prompt of the model"));
        }
        blocks
    }

    pub fn forwarded(
        &mut self,
        request: Request,
        since: Since,
        forwarding: &ForwardDecision,
        now: Time,
        rules: &RegionRules,
    ) {
        let peer = self.peers.get_mut(&forwarding.peer).expect("a peer");
        assert!(peer.may_be_forwarded(now, rules), "{forwarding:?} {peer:?}");
        let blocks = request.fingerprint.blocks();
        assert!(
            blocks
                .iter()
                .take_while(|block| block.end_bytes <= forwarding.matched_bytes)
                .all(|block| peer.sent.contains(&block.hash)),
            "a match with what it was never sent"
        );
        assert!(forwarding.matched_bytes <= request.fingerprint.total_bytes());
        if since.held {
            let (report, as_of) = peer.heard.unwrap();
            let sent = peer.batch_pushes.iter().filter(|at| **at >= as_of);
            assert!(sent.count() < report.batch_credit as usize, "{peer:?}");
            peer.batch_pushes.push(now);
        }
        peer.pushes.push(now);
        peer.sent.extend(blocks.iter().map(|block| block.hash));
        let away = ForwardedCopy {
            peer: forwarding.peer,
            at: now,
            since,
            request,
            refused: false,
        };
        self.away.insert(away.request.id, away);
    }

    pub fn check(&self, statuses: &[PeerStatus], now: Time, rules: &RegionRules) {
        assert_eq!(statuses.len(), self.peers.len());
        for status in statuses {
            let peer = &self.peers[&status.id];
            let available = status.availability == PeerAvailability::Available;
            assert!(
                !available || peer.may_be_forwarded(now, rules),
                "{status:?}"
            );
            if let Some((_, as_of)) = peer.heard {
                assert_eq!(status.as_of, Some(as_of));
                let since = peer.pushes.iter().filter(|at| **at >= as_of).count();
                assert!(status.forwarded_since as usize >= since, "{status:?}");
            }
        }
    }
}

impl Peer {
    /// Checks the bounds that must hold.
    fn may_be_forwarded(&self, now: Time, rules: &RegionRules) -> bool {
        let Some((report, as_of)) = self.heard else {
            return false;
        };
        let since = self.pushes.iter().filter(|at| **at >= as_of).count();
        let beyond = u32::try_from(since)
            .unwrap()
            .saturating_sub(report.free_capacity);
        !self.lost
            && now < as_of.after(rules.stale_after)
            && self.refuted.is_none()
            && report.available > 0
            && (report.queue - report.batch_queue).saturating_add(beyond) <= rules.queue_max
    }
}
