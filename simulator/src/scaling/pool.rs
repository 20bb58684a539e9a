//! The instances of a deployment in a region as one aggregated server: the model for runs of weeks.
//!
//! In a step, what arrived and what waits is served up to the capacity of the ready instances. The load of the step gives the
//! utilisation and the times of the requests ([`Profile::at`]); what is left waits, first come first served, and its wait is added
//! to the times of the step that serves it. Non-interactive requests come after interactive ones. What the
//! model leaves out: that answers outlast a step, and that an instance that starts is empty at first.

use std::collections::VecDeque;
use std::sync::Arc;

use super::latencies::Latencies;
use super::profile::{Level, Profile};

/// Requests that arrived together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cohort {
    pub(super) arrived_s: f64,
    pub(super) requests: f64,
}

/// A deployment's instances in a region.
#[derive(Clone, Debug)]
pub struct Pool {
    profile: Arc<Profile>,
    interactive: VecDeque<Cohort>,
    batch: f64,
    /// Level of load of the last step.
    pub level: Level,
    /// Times to the first token of interactive requests.
    pub ttft: Latencies,
    /// Times to the end of interactive answers.
    pub e2e: Latencies,
}

/// Requests of a step, by tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestCounts {
    /// Interactive requests.
    pub interactive: f64,
    /// Non-interactive requests.
    pub batch: f64,
}

impl Pool {
    /// An empty pool.
    pub fn new(profile: Arc<Profile>) -> Self {
        Self {
            profile,
            interactive: VecDeque::new(),
            batch: 0.0,
            level: Level::default(),
            ttft: Latencies::default(),
            e2e: Latencies::default(),
        }
    }

    /// The instance that the pool consists of.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Interactive requests that wait.
    pub fn waiting(&self) -> f64 {
        self.interactive.iter().map(|cohort| cohort.requests).sum()
    }

    /// Effective memory utilisation: the mean of the ready instances, full while requests wait.
    pub fn utilisation(&self) -> f64 {
        self.level.utilisation
    }

    /// Requests that the instances take in a step beyond the interactive ones, until their utilisation is `utilisation`.
    pub fn room(&self, instances: usize, step_s: f64, arriving: f64, utilisation: f64) -> f64 {
        let limit = self.profile.load_at(utilisation) * self.capacity(instances, step_s);
        (limit - arriving - self.waiting() - self.batch).max(0.0)
    }

    /// Plays a step that ends at `now_s`: requests arrive in it, in units of the profile.
    pub fn step(
        &mut self,
        (now_s, step_s): (f64, f64),
        instances: usize,
        arriving: RequestCounts,
    ) -> RequestCounts {
        let middle_s = now_s - step_s / 2.0;
        if arriving.interactive > 0.0 {
            self.interactive.push_back(Cohort {
                arrived_s: middle_s,
                requests: arriving.interactive,
            });
        }
        self.batch += arriving.batch;
        let capacity = self.capacity(instances, step_s);
        let wanted = self.waiting() + self.batch;
        let load = if capacity > 0.0 {
            wanted / capacity
        } else {
            f64::INFINITY
        };
        self.level = if instances == 0 && wanted <= 0.0 {
            Level::default()
        } else {
            self.profile.at(load)
        };
        if load >= 1.0 {
            // What waits would fill the memory, whatever the highest measured level was.
            self.level.utilisation = self.level.utilisation.max(1.0);
        }
        let mut left = capacity;
        let interactive = self.serve_interactive(middle_s, &mut left);
        let batch = self.batch.min(left);
        self.batch -= batch;
        RequestCounts { interactive, batch }
    }

    /// Counts what still waits as never served.
    pub fn finish(&mut self) {
        for cohort in self.interactive.drain(..) {
            self.ttft.add(f64::INFINITY, cohort.requests);
            self.e2e.add(f64::INFINITY, cohort.requests);
        }
    }

    fn serve_interactive(&mut self, now_s: f64, left: &mut f64) -> f64 {
        let mut served = 0.0;
        while let Some(cohort) = self.interactive.front_mut() {
            let requests = cohort.requests.min(*left);
            if requests > 0.0 {
                let waited_s = (now_s - cohort.arrived_s).max(0.0);
                let weight = requests / self.level.ttft_s.len() as f64;
                for ttft_s in self.level.ttft_s {
                    self.ttft.add(ttft_s + waited_s, weight);
                }
                for e2e_s in self.level.e2e_s {
                    self.e2e.add(e2e_s + waited_s, weight);
                }
            }
            served += requests;
            *left -= requests;
            cohort.requests -= requests;
            if cohort.requests > 1e-9 {
                break;
            }
            self.interactive.pop_front();
        }
        served
    }

    fn capacity(&self, instances: usize, step_s: f64) -> f64 {
        self.profile.capacity_per_s * instances as f64 * step_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::profile::tests::profile;

    fn arriving(interactive: f64, batch: f64) -> RequestCounts {
        RequestCounts { interactive, batch }
    }

    #[test]
    fn what_exceeds_the_capacity_waits_and_its_wait_counts() {
        let mut pool = Pool::new(Arc::new(profile()));
        // Two instances serve 300 requests in 15 s.
        let served = pool.step((15.0, 15.0), 2, arriving(450.0, 10.0));
        assert_eq!(
            served,
            arriving(300.0, 0.0),
            "interactive requests come first"
        );
        assert_eq!(pool.utilisation(), 1.0);
        let served = pool.step((30.0, 15.0), 2, arriving(0.0, 0.0));
        assert_eq!(served, arriving(150.0, 10.0));
        assert_eq!((pool.waiting(), pool.ttft.count()), (0.0, 450.0));
        assert!(
            pool.ttft.quantile(0.9) > 15.0,
            "{}",
            pool.ttft.quantile(0.9)
        );
        assert!(pool.ttft.quantile(0.5) < 2.0);
    }

    #[test]
    fn requests_that_are_never_served_have_no_end() {
        let mut pool = Pool::new(Arc::new(profile()));
        pool.step((15.0, 15.0), 0, arriving(10.0, 0.0));
        pool.finish();
        assert_eq!(pool.ttft.quantile(0.5), f64::INFINITY);
    }

    #[test]
    fn room_ends_at_the_utilisation() {
        let mut pool = Pool::new(Arc::new(profile()));
        // Load 0.5 has a utilisation of 0.45.
        assert!((pool.room(2, 15.0, 0.0, 0.45) - 150.0).abs() < 1e-6);
        assert!((pool.room(2, 15.0, 100.0, 0.45) - 50.0).abs() < 1e-6);
        pool.step((15.0, 15.0), 2, arriving(150.0, 0.0));
        assert!((pool.utilisation() - 0.45).abs() < 1e-6);
    }
}
