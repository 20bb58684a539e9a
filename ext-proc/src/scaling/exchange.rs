//! Siblings and peers: demand adds up within a region, one service leads, and regions exchange their rows.
//!
//! The service that started first leads: a restarted one follows until it knows what the others know. Its siblings publish its
//! numbers, since probes at different moments would give each of them another one. A leader that is silent for five rounds is
//! replaced by the next; the numbers go on from where they were.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_planner::{DemandSample, PeerSample, Planner, Sample};
use isotherm_router::Time;

use crate::peering::{PoolShare, ScalingShare};
use crate::regions::ReceivedShare;

/// Silence after which a sibling counts as gone.
pub(super) const SIBLING_SILENCE_MAX: Duration = Duration::from_secs(5);
/// The most siblings that are followed.
const SIBLINGS_MAX: usize = 64;
const MINUTE_NANOS: u64 = 60_000_000_000;

/// Order of services: the one that started first, then the one with the lower number.
type Rank = (u64, u64);

/// Siblings, as heard.
#[derive(Debug)]
pub(super) struct Siblings {
    own: Rank,
    heard: BTreeMap<Rank, Time>,
}

impl Siblings {
    pub(super) fn new(own: Rank) -> Self {
        Self {
            own,
            heard: BTreeMap::new(),
        }
    }

    /// Name of this service as a reporter of demand.
    pub(super) fn own_reporter(&self) -> String {
        reporter(self.own)
    }

    pub(super) fn own_rank(&self) -> Rank {
        self.own
    }

    /// Whether this service leads.
    pub(super) fn is_leading(&mut self, now: Time) -> bool {
        self.heard
            .retain(|_, heard| now.since(*heard) <= SIBLING_SILENCE_MAX);
        self.leader() == self.own
    }

    fn leader(&self) -> Rank {
        self.heard
            .keys()
            .next()
            .map_or(self.own, |first| (*first).min(self.own))
    }

    /// Whether any sibling is heard.
    pub(super) fn has_heard(&self) -> bool {
        !self.heard.is_empty()
    }

    /// Hands the planner what another service told.
    pub(super) fn receive(&mut self, now: Time, planner: &mut Planner, received: &ReceivedShare) {
        let share = &*received.share;
        if let Some(region) = &received.region {
            let rows = share.pools.iter().filter(|pool| pool.row.capacity > 0.0);
            let sample = PeerSample {
                region: region.to_string(),
                rows: rows
                    .map(|pool| (pool.model.to_string(), pool.row))
                    .collect(),
            };
            return planner.handle(now, Sample::Peer(sample));
        }
        let rank = (share.started_unix_ns, share.incarnation);
        if rank == self.own || (self.heard.len() >= SIBLINGS_MAX && !self.heard.contains_key(&rank))
        {
            return;
        }
        self.heard.insert(rank, now);
        let is_leader = rank == self.leader();
        for pool in &share.pools {
            if pool.minute > 0 {
                let sample = demand_sample(pool, reporter(rank));
                planner.handle(now, Sample::Demand(pool.model.to_string(), sample));
            }
            if is_leader {
                planner.handle(
                    now,
                    Sample::Adopted(pool.model.to_string(), pool.plan.clone()),
                );
            }
        }
    }
}

fn reporter((started, incarnation): Rank) -> String {
    format!("{started:x}-{incarnation:x}")
}

/// A share as a sample of demand.
pub(super) fn demand_sample(pool: &PoolShare, reporter: String) -> DemandSample {
    DemandSample {
        minute: Time::from_nanos(pool.minute.saturating_mul(MINUTE_NANOS)),
        reporter,
        interactive: pool.interactive,
        batch: pool.batch,
        waiting_s: pool.waiting_s,
    }
}

/// Number of the minute that contains a time.
pub(super) fn minute_of(time: Time) -> u64 {
    time.as_nanos() / MINUTE_NANOS
}

/// Share of this service.
pub(super) fn share((started_unix_ns, incarnation): Rank, pools: Vec<PoolShare>) -> ScalingShare {
    ScalingShare {
        started_unix_ns,
        incarnation,
        pools,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn heard(started: u64) -> ReceivedShare {
        ReceivedShare {
            region: None,
            share: Arc::new(share((started, 1), Vec::new())),
        }
    }

    #[test]
    fn the_service_that_started_first_leads_until_it_is_silent() {
        let mut siblings = Siblings::new((20, 1));
        let mut planner = Planner::default();
        let now = Time::from_nanos(1_000_000_000_000);
        assert!(siblings.is_leading(now) && !siblings.has_heard());
        siblings.receive(now, &mut planner, &heard(30));
        assert!(siblings.is_leading(now), "a younger sibling follows");
        siblings.receive(now, &mut planner, &heard(10));
        assert!(!siblings.is_leading(now));
        assert!(siblings.is_leading(now.after(SIBLING_SILENCE_MAX + Duration::from_secs(1))));
    }
}
