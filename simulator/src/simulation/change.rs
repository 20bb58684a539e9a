//! Replicas that come, drain, go, or change their speed.

use core::time::Duration;

use isotherm_router::{Event, ReplicaId};

use super::Simulation;
use super::replica::State;
use crate::setup::Action;

impl Simulation<'_> {
    pub(super) fn change_fleet(&mut self, number: u32) {
        let changes = &self.setup.changes;
        let Some(change) = changes.get(number as usize) else {
            return;
        };
        match change.what {
            Action::Join { .. } => {
                let joins =
                    |change: &&crate::setup::Change| matches!(change.what, Action::Join { .. });
                let all = changes.iter().filter(joins).count();
                let before = changes.iter().take(number as usize).filter(joins).count();
                // Replicas that join come after the initial replicas, in the order of the list.
                let replica = self.replicas.len() - all + before;
                self.join(u32::try_from(replica).unwrap_or(u32::MAX));
            }
            Action::Drain { replica } => self.drain(replica),
            Action::Leave { replica } => self.leave(replica),
            Action::Speed { replica, speed } => self.set_speed(replica, speed),
        }
    }

    fn drain(&mut self, replica: usize) {
        if self.set_state(replica, &[State::Member], State::Draining) {
            self.send_replica_event(replica, |replica| Event::Draining { replica });
        }
    }

    fn leave(&mut self, replica: usize) {
        if self.set_state(replica, &[State::Member, State::Draining], State::Removed) {
            self.send_replica_event(replica, |replica| Event::Removed { replica });
        }
    }

    fn set_speed(&mut self, number: usize, speed: f64) {
        let Some(replica) = self.replicas.get_mut(number) else {
            return;
        };
        replica.setup.speed = speed;
        let timing = replica.setup.engine().timing;
        replica
            .engine
            .set_timing(Duration::from_nanos(self.now), timing);
        if let Ok(number) = u32::try_from(number) {
            self.drain_engine(number);
        }
    }

    fn set_state(&mut self, replica: usize, from: &[State], to: State) -> bool {
        let Some(replica) = self.replicas.get_mut(replica) else {
            return false;
        };
        let changes = from.contains(&replica.state);
        if changes {
            replica.state = to;
        }
        changes
    }

    fn send_replica_event(&mut self, number: usize, event: impl FnOnce(ReplicaId) -> Event) {
        let region = self.replicas.get(number).map(|replica| replica.region);
        let balancer = region.and_then(|region| self.balancer_of(region));
        if let (Some(balancer), Ok(number)) = (balancer, u32::try_from(number)) {
            self.send_event(balancer, event(ReplicaId(number)));
        }
    }
}
