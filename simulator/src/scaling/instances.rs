//! The instances of a region: several models share its GPUs.
//!
//! Instances are equal virtual machines (P§7.1), each with the weights of a model. An instance serves its model, drains,
//! starts, or is lent out as spot. A model that grows takes, in this order (P§6.4): its own draining instances; spot instances with its own
//! weights (1 min in the median, 5 at most); spot instances of another model of its group (10 min). An instance that drains or starts serves no other model and costs its own. P§n: section n of SageServe.

use super::ledger::Ledger;
use crate::workload::rng::SeededRng;

/// Time from a decision to an instance that serves, s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartTimes {
    /// A spot instance with the model's own weights.
    pub own_s: f64,
    /// Longest time of such an instance; equal to `own_s`: every instance takes that long.
    pub own_max_s: f64,
    /// A spot instance with another model's weights.
    pub other_s: f64,
    /// Time in which an instance finishes what it has.
    pub drain_s: f64,
}

impl StartTimes {
    /// Times of the paper's text.
    pub const TEXT: Self = Self {
        own_s: 60.0,
        own_max_s: 300.0,
        other_s: 600.0,
        drain_s: 30.0,
    };
    /// Times of the paper's published code.
    pub const CODE: Self = Self {
        own_s: 65.0,
        own_max_s: 65.0,
        other_s: 155.0,
        drain_s: 30.0,
    };

    fn own(&self, rng: &mut SeededRng) -> f64 {
        if self.own_max_s <= self.own_s {
            return self.own_s;
        }
        // Median own_s, and about one in a hundred at the bound.
        let sigma = (self.own_max_s / self.own_s).ln() / 2.326;
        (self.own_s * (sigma * rng.normal()).exp()).clamp(self.own_s / 3.0, self.own_max_s)
    }
}

/// State of an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Serving,
    Starting { ready_s: f64, is_own: bool },
    Draining { until_s: f64 },
    Spot,
}

#[derive(Clone, Copy, Debug)]
struct Instance {
    /// Deployment whose weights the instance has.
    deployment: usize,
    /// Identity, new with each start.
    serial: u64,
    state: State,
}

/// State of an instance, as a scaler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The instance serves.
    Serving,
    /// The instance starts.
    Starting,
    /// The instance finishes what it has.
    Draining,
}

/// Number of instances of a deployment by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances that serve.
    pub ready: usize,
    /// Instances that start.
    pub starting: usize,
    /// Instances that finish what they have.
    pub draining: usize,
}

impl Counts {
    /// Instances that serve, now or soon.
    pub fn current(&self) -> usize {
        self.ready + self.starting
    }
}

/// Change of an instance, by its index in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The instance serves a deployment.
    Serves {
        /// Index of the instance.
        instance: usize,
        /// Index of the deployment.
        deployment: usize,
    },
    /// The instance finishes what it has.
    Drains {
        /// Index of the instance.
        instance: usize,
        /// Index of the deployment.
        deployment: usize,
    },
}

/// The instances of a region.
#[derive(Clone, Debug)]
pub struct Region {
    instances: Vec<Instance>,
    times: StartTimes,
    /// Group of each deployment: only deployments of one group take each other's instances.
    groups: Vec<usize>,
    rng: SeededRng,
    /// Identity of the next instance that starts.
    next_serial: u64,
    /// Costs of each deployment.
    pub ledgers: Vec<Ledger>,
    /// Changes since the list was last emptied; none unless [`Region::recorded`] asks for it.
    transitions: Option<Vec<Transition>>,
}

impl Region {
    /// A region in which each deployment, with its group, serves with this many instances.
    pub fn new(deployments: &[(usize, usize)], times: StartTimes, seed: u64) -> Self {
        let instances = deployments
            .iter()
            .enumerate()
            .flat_map(|(deployment, (_, count))| core::iter::repeat_n(deployment, *count));
        let instances = (0..).zip(instances).map(|(serial, deployment)| Instance {
            deployment,
            serial,
            state: State::Serving,
        });
        let instances: Vec<Instance> = instances.collect();
        Self {
            next_serial: instances.len() as u64,
            instances,
            times,
            groups: deployments.iter().map(|(group, _)| *group).collect(),
            rng: SeededRng::new(seed),
            ledgers: vec![Ledger::default(); deployments.len()],
            transitions: None,
        }
    }

    /// Region that records the changes of its instances.
    pub fn recorded(mut self) -> Self {
        self.transitions = Some(Vec::new());
        self
    }

    /// Changes since the last call.
    pub fn take_transitions(&mut self) -> Vec<Transition> {
        self.transitions
            .as_mut()
            .map(core::mem::take)
            .unwrap_or_default()
    }

    fn note(&mut self, transition: Transition) {
        if let Some(transitions) = &mut self.transitions {
            transitions.push(transition);
        }
    }

    /// Instances of a deployment.
    pub fn counts(&self, deployment: usize) -> Counts {
        let mut counts = Counts::default();
        for instance in self
            .instances
            .iter()
            .filter(|one| one.deployment == deployment)
        {
            match instance.state {
                State::Serving => counts.ready += 1,
                State::Starting { .. } => counts.starting += 1,
                State::Draining { .. } => counts.draining += 1,
                State::Spot => {}
            }
        }
        counts
    }

    /// Instances of a deployment that are not spot, with their identities.
    pub fn phases(&self, deployment: usize) -> impl Iterator<Item = (u64, Phase)> {
        let own = self
            .instances
            .iter()
            .filter(move |one| one.deployment == deployment);
        own.filter_map(|instance| {
            let phase = match instance.state {
                State::Serving => Phase::Serving,
                State::Starting { .. } => Phase::Starting,
                State::Draining { .. } => Phase::Draining,
                State::Spot => return None,
            };
            Some((instance.serial, phase))
        })
    }

    /// Instances that are lent out as spot, of every deployment.
    pub fn spot(&self) -> usize {
        let spot = self.instances.iter().filter(|one| one.state == State::Spot);
        spot.count()
    }

    /// Lets time pass up to `now_s`; the last `step_s` of it are charged.
    pub fn advance(&mut self, now_s: f64, step_s: f64) {
        let transitions = &mut self.transitions;
        for (index, instance) in self.instances.iter_mut().enumerate() {
            let Some(ledger) = self.ledgers.get_mut(instance.deployment) else {
                continue;
            };
            match instance.state {
                State::Serving => ledger.serving_s += step_s,
                State::Starting { ready_s, is_own } => {
                    ledger.charge_start(step_s, is_own);
                    if ready_s <= now_s {
                        instance.state = State::Serving;
                        if let Some(transitions) = transitions {
                            transitions.push(Transition::Serves {
                                instance: index,
                                deployment: instance.deployment,
                            });
                        }
                    }
                }
                State::Draining { until_s } => {
                    ledger.draining_s += step_s;
                    if until_s <= now_s {
                        instance.state = State::Spot;
                    }
                }
                State::Spot => ledger.spot_s += step_s,
            }
        }
    }

    /// Starts or drains instances until as many as desired serve or start; returns how many that are. Fewer, when no instance is
    /// left to take.
    pub fn scale(&mut self, now_s: f64, deployment: usize, desired: usize) -> usize {
        let mut current = self.counts(deployment).current();
        while current < desired && self.start_instance(now_s, deployment) {
            current += 1;
        }
        while current > desired && self.stop_instance(now_s, deployment) {
            current -= 1;
        }
        current
    }

    fn start_instance(&mut self, now_s: f64, deployment: usize) -> bool {
        let ready_s = if let Some(instance) =
            self.position(deployment, |state| matches!(state, State::Draining { .. }))
        {
            self.set(instance, deployment, State::Serving);
            self.note(Transition::Serves {
                instance,
                deployment,
            });
            now_s
        } else {
            let Some((instance, is_own)) = self.spot_for(deployment) else {
                return false;
            };
            let takes_s = if is_own {
                self.times.own(&mut self.rng)
            } else {
                self.times.other_s
            };
            let ready_s = now_s + takes_s;
            self.set(instance, deployment, State::Starting { ready_s, is_own });
            ready_s
        };
        if let Some(ledger) = self.ledgers.get_mut(deployment) {
            ledger.record_start(ready_s);
        }
        true
    }

    /// The instance that started last goes first: it has no request yet.
    fn stop_instance(&mut self, now_s: f64, deployment: usize) -> bool {
        let starting = self
            .instances
            .iter()
            .enumerate()
            .filter_map(|(index, one)| match one.state {
                State::Starting { ready_s, .. } if one.deployment == deployment => {
                    Some((ready_s, index))
                }
                _ => None,
            });
        let latest = starting.max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, instance)) = latest {
            self.set(instance, deployment, State::Spot);
        } else {
            let Some(instance) = self.position(deployment, |state| state == State::Serving) else {
                return false;
            };
            let until_s = now_s + self.times.drain_s;
            self.set(instance, deployment, State::Draining { until_s });
            self.note(Transition::Drains {
                instance,
                deployment,
            });
        }
        if let Some(ledger) = self.ledgers.get_mut(deployment) {
            ledger.record_stop(now_s);
        }
        true
    }

    /// The last instance of a deployment in a state.
    fn position(&self, deployment: usize, is_wanted: impl Fn(State) -> bool) -> Option<usize> {
        let instances = self.instances.iter();
        let mut instances =
            instances.map(|one| one.deployment == deployment && is_wanted(one.state));
        instances.rposition(|is_it| is_it)
    }

    /// A spot instance that a deployment may take, and whether it has the deployment's weights.
    fn spot_for(&self, deployment: usize) -> Option<(usize, bool)> {
        if let Some(own) = self.position(deployment, |state| state == State::Spot) {
            return Some((own, true));
        }
        let group = self.groups.get(deployment);
        let other = self
            .instances
            .iter()
            .position(|one| one.state == State::Spot && self.groups.get(one.deployment) == group);
        other.map(|index| (index, false))
    }

    fn set(&mut self, instance: usize, deployment: usize, state: State) {
        let serial = self.next_serial;
        if let Some(instance) = self.instances.get_mut(instance) {
            instance.deployment = deployment;
            instance.state = state;
            if matches!(state, State::Starting { .. }) {
                instance.serial = serial;
                self.next_serial += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: StartTimes = StartTimes {
        own_max_s: 60.0,
        ..StartTimes::TEXT
    };

    fn pass(region: &mut Region, from_s: f64, to_s: f64) {
        let mut now_s = from_s;
        while now_s < to_s {
            now_s += 15.0;
            region.advance(now_s, 15.0);
        }
    }

    #[test]
    fn own_spot_instances_come_first_and_other_models_take_ten_minutes() {
        let mut region = Region::new(&[(0, 4), (0, 4)], TIMES, 1);
        region.scale(0.0, 0, 2);
        region.scale(0.0, 1, 2);
        pass(&mut region, 0.0, 60.0);
        assert_eq!((region.counts(0).ready, region.spot()), (2, 4));
        assert_eq!(
            region.scale(60.0, 0, 5),
            5,
            "two of its own, one of the other's"
        );
        pass(&mut region, 60.0, 120.0);
        assert_eq!(region.counts(0).ready, 4);
        pass(&mut region, 120.0, 645.0);
        assert_eq!(
            region.counts(0).ready,
            4,
            "the other model's needs ten minutes"
        );
        pass(&mut region, 645.0, 660.0);
        assert_eq!(region.counts(0).ready, 5);
        assert_eq!(region.scale(660.0, 0, 9), 6, "no more instances are left");
        let ledger = &region.ledgers[0];
        assert!((ledger.starting_own_s - 120.0).abs() < 1e-9, "{ledger:?}");
        assert!((ledger.starting_other_s - 600.0).abs() < 1e-9, "{ledger:?}");
    }

    #[test]
    fn groups_share_nothing() {
        let mut region = Region::new(&[(0, 2), (1, 4)], TIMES, 1);
        region.scale(0.0, 1, 2);
        pass(&mut region, 0.0, 60.0);
        assert_eq!(
            region.scale(60.0, 0, 3),
            2,
            "spot instances of another group"
        );
    }

    #[test]
    fn a_draining_instance_comes_back_at_once_and_a_quick_return_is_counted() {
        let mut region = Region::new(&[(0, 4)], TIMES, 1);
        region.scale(0.0, 0, 3);
        assert_eq!(region.counts(0).draining, 1);
        region.scale(1.0, 0, 4);
        assert_eq!(
            region.counts(0),
            Counts {
                ready: 4,
                ..Counts::default()
            }
        );
        region.scale(100.0, 0, 3);
        assert_eq!(region.ledgers[0].reversals, 1, "up at 1 s, down at 100 s");
        region.scale(1_000.0, 0, 2);
        assert_eq!(region.ledgers[0].reversals, 1);
    }

    #[test]
    fn start_times_have_their_median_and_bound() {
        let mut rng = SeededRng::new(1);
        let mut times: Vec<f64> = (0..1_001).map(|_| StartTimes::TEXT.own(&mut rng)).collect();
        times.sort_by(f64::total_cmp);
        assert!((50.0..70.0).contains(&times[500]), "{}", times[500]);
        assert!(times[1_000] <= 300.0);
    }
}
