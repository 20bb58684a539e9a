//! `round_robin`: the available replicas in turn, the baseline that most load balancers ship.

use isotherm_router::{Policy, PolicyEvent, Reason, ReplicaIndex, Request, Selection, View};

/// Replicas in turn.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: ReplicaIndex,
}

impl Policy for RoundRobin {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        let replica = view.candidates().next_round(self.next)?;
        Some(Selection::to(replica, Reason::Turn, None))
    }

    fn select_fallback(
        &self,
        _request: &Request,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        let mut from = self.next;
        for _ in 0..=failed.len() {
            let replica = view.candidates().next_round(from)?;
            if !failed.contains(&replica) {
                return Some(replica);
            }
            from = ReplicaIndex(replica.0.wrapping_add(1));
        }
        None
    }

    /// How soon the replica's turn comes.
    fn score(&self, _request: &Request, replica: ReplicaIndex, _view: &View<'_>) -> f64 {
        let all = ReplicaIndex::COUNT;
        let steps = (replica.index() + all - self.next.index() % all) % all;
        -(u32::try_from(steps).map_or(f64::INFINITY, f64::from))
    }

    fn on_event(&mut self, event: PolicyEvent<'_>) {
        if let PolicyEvent::Dispatch(replica) = event {
            self.next = ReplicaIndex(replica.0.wrapping_add(1));
        }
    }
}
