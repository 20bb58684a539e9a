//! Replicas that come, drain, go, change their speed, or restart.

use core::time::Duration;

use isotherm_router::{Event, ReplicaId};

use super::Simulation;
use super::replica::State;
use crate::setup::Action;

impl Simulation<'_> {
    pub(super) fn change_fleet(&mut self, number: u32) {
        let changes = self.setup.changes.iter();
        let Some(change) = changes.clone().nth(number as usize) else {
            return;
        };
        match change.what {
            Action::Join { .. } => {
                // Replicas that join come after the initial replicas, in the order of the list.
                let later = changes.skip(number as usize);
                let joins = later.filter(|change| matches!(change.what, Action::Join { .. }));
                let replica = self.replicas.iter().len() - joins.count();
                self.join(u32::try_from(replica).unwrap_or(u32::MAX));
            }
            Action::Drain { replica } => {
                self.leave(replica, &[State::Member], State::Draining, |replica| {
                    Event::Draining(replica)
                });
            }
            Action::Leave { replica } => {
                let from = [State::Member, State::Draining];
                self.leave(replica, &from, State::Removed, Event::Removed);
            }
            Action::Speed { replica, speed } => self.set_speed(replica, speed),
            Action::Restart { replica } => self.restart(replica),
        }
    }

    /// The number of a replica that a change names, if there is one.
    fn number_of(&self, replica: usize) -> Option<u32> {
        let number = u32::try_from(replica).ok()?;
        self.replicas.numbers().contains(&number).then_some(number)
    }

    fn set_speed(&mut self, replica: usize, speed: f64) {
        if let Some(number) = self.number_of(replica) {
            let replica = &mut self.replicas[number];
            replica.setup.speed = speed;
            let timing = replica.setup.engine().timing;
            replica
                .engine
                .set_timing(Duration::from_nanos(self.now), timing);
            self.drain_engine(number);
        }
    }

    fn restart(&mut self, replica: usize) {
        if let Some(number) = self.number_of(replica) {
            let now = Duration::from_nanos(self.now);
            let replica = &mut self.replicas[number];
            replica.engine.handle_timeout(now);
            replica.earlier = replica.totals();
            replica.engine.restart(now);
            self.drain_engine(number);
        }
    }

    /// Changes the state of a replica that is in one of these states, and tells its router.
    pub(super) fn leave(
        &mut self,
        replica: usize,
        from: &[State],
        to: State,
        event: impl Fn(ReplicaId) -> Event,
    ) {
        let Some(number) = self.number_of(replica) else {
            return;
        };
        let replica = &mut self.replicas[number];
        if !from.contains(&replica.state) {
            return;
        }
        replica.state = to;
        let region = replica.region;
        for balancer in self.balancers_of(region) {
            self.send_event(balancer, event(ReplicaId(number)));
        }
    }
}
