//! Operations between regions and between siblings.

use isotherm_router::{
    End, Event, ForwardDecision, Placement, Request, RequestId, Scope, ServedBy, Target,
};

use super::super::prompt;
use super::Naive;
use super::ops::Reach;
use super::peers::{self, Since};
use super::tiers::RequestTags;

impl Naive {
    pub(super) fn returns(&mut self, which: usize) {
        if let Some((peer, request)) = self.peers.to_refuse(which)
            && let Scope::Regions { tried } = &request.scope
        {
            let mut tried: Vec<u16> = tried.iter().map(|peer| peer.0).collect();
            tried.push(peer.0);
            let session = request.session.unwrap().0;
            let blocks = self.peers.blocks_of(&request);
            let standing = RequestTags::of(&request, self.now);
            self.arrive(&blocks, session, None, &Reach::Regions(tried), &standing);
        }
    }

    pub(super) fn finish_away(
        &mut self,
        which: usize,
        end: End,
        elsewhere: bool,
        cached: Option<u32>,
    ) {
        let Some((id, away)) = self.peers.take_away(which) else {
            return;
        };
        if elsewhere || away.refused {
            self.peers.ended_elsewhere(&away, self.now);
        }
        self.event(Event::Finished {
            id,
            served_by: if elsewhere {
                ServedBy::UnknownHost
            } else {
                ServedBy::Unreported
            },
            end,
            ttft_us: None,
            prompt_tokens: cached.map(|_| 640),
            cached_tokens: cached.map(|percent| 640 * percent / 100),
            completion_tokens: None,
        });
    }

    pub(super) fn shared(&mut self, to_peer: bool, which: usize, blocks: &[u64], known: usize) {
        let prompt = prompt(blocks);
        let blocks = prompt.blocks();
        let known = known.min(blocks.len());
        let target = if to_peer {
            let peer = self.peers.id(u16::try_from(which % 4).unwrap());
            self.peers.sibling_forwarded(peer, blocks, self.now);
            Target::Peer(peer)
        } else {
            let Some(id) = self.replica(which) else {
                return;
            };
            let replica = self.replicas.get_mut(&id).unwrap();
            replica.sent.extend(blocks.iter().map(|block| block.hash));
            replica.siblings.push(self.now);
            Target::Replica(id)
        };
        self.event(Event::Shared(Placement {
            target,
            parent: blocks[..known].last().copied(),
            blocks: blocks[known..].into(),
            uncached_tokens: known.is_multiple_of(2).then_some(64),
        }));
    }

    /// A request leaves for a peer; returns whether it was held.
    pub(super) fn forwarded(&mut self, id: RequestId, forwarding: &ForwardDecision) -> bool {
        let peer = forwarding.peer;
        let may_go = |request: &Request| peers::may_leave_for(request, peer);
        let (request, since, older) = self.take_waiting(id, |_, older| may_go(older));
        let is_alike = |(_, older): &(RequestId, Since)| older.held == since.held;
        let older: Vec<_> = older.into_iter().filter(is_alike).collect();
        assert!(
            older.is_empty() || self.tells_times,
            "{older:?} came before {id:?}"
        );
        assert_eq!(forwarding.queued_for, self.now.since(since.arrived));
        assert!(may_go(&request), "{request:?} to {peer:?}");
        let rules = self.config.region;
        self.peers
            .forwarded(request, since, forwarding, self.now, &rules);
        since.held
    }
}
