//! Between the services of one region: each tells the others what it placed where, so that their indexes agree and none of
//! them thinks that a replica or a peer is free because it was another one that filled it.
//!
//! Only the new part of a chain is told, with the last block in front of it. Placements are advice: one that is lost costs
//! a cache hit at most, and a request of the same conversation that comes here itself brings its whole chain. So what nobody
//! takes in time is dropped, oldest first, and counted. What turns out wrong later (a request that failed) is not told: each
//! service corrects its own index by how its own requests end.

use isotherm_fingerprint::BlockHash;

use super::Router;
use crate::{Placement, Target};

/// The most placements that wait to be told.
const OUTBOX_MAX: usize = 4_096;

impl Router {
    /// The oldest placement that siblings have not been told of; call until there is none. There are some only where the
    /// configuration says so ([`crate::RegionRules::share`]).
    pub fn poll_placement(&mut self) -> Option<Placement> {
        let placement = self.outbox.pop_front()?;
        self.counters.shared_sent += 1;
        Some(placement)
    }

    /// A request was placed that its target was known to have the first `depth` blocks of.
    pub(super) fn share(&mut self, target: Target, blocks: &[BlockHash], depth: usize) {
        if !self.config.region.share {
            return;
        }
        let (known, new) = blocks.split_at_checked(depth).unwrap_or((&[], blocks));
        if self.outbox.len() >= OUTBOX_MAX {
            self.outbox.pop_front();
            self.counters.shared_dropped += 1;
        }
        self.outbox.push_back(Placement {
            target,
            parent: known.last().copied(),
            blocks: new.into(),
        });
    }

    /// A sibling has placed a request.
    pub(super) fn shared(&mut self, placement: &Placement) {
        let Placement {
            target,
            parent,
            blocks,
        } = placement;
        self.counters.shared_received += 1;
        let attached = match target {
            Target::Replica(id) => self.replicas.slot_of(*id).is_some_and(|slot| {
                self.replicas.pushed_by_sibling(slot, self.now);
                self.index.attach(slot, *parent, blocks)
            }),
            Target::Peer(id) => self.peers.shared(*id, *parent, blocks, self.now),
        };
        if !attached {
            self.counters.shared_unattached += 1;
        }
    }
}
