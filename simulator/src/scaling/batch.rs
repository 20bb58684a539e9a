//! The manager of non-interactive requests (P§6.2): it holds them until an endpoint has room, or their deadline comes close.
//!
//! An endpoint signals when its utilisation is below a threshold: below the first one request may go there, below the second
//! two. Here an endpoint signals at every end of a request and once a second. Requests older than the promotion age count as
//! interactive.

use std::collections::VecDeque;

use super::pool::Cohort;

/// Rules of the manager.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchRules {
    /// Utilisations below which a signal releases one request, and two.
    pub release_below: [f64; 2],
    /// Age from which a request counts as interactive, s.
    pub promoted_s: f64,
    /// Age at which a request has missed its deadline, s.
    pub deadline_s: f64,
}

impl Default for BatchRules {
    fn default() -> Self {
        Self {
            release_below: [0.60, 0.50],
            promoted_s: 10.0 * 3_600.0,
            deadline_s: 24.0 * 3_600.0,
        }
    }
}

/// The requests that wait for one model in one region.
#[derive(Clone, Debug, Default)]
pub struct BatchQueue {
    held: VecDeque<Cohort>,
    /// Requests that were released for room.
    pub released: f64,
    /// Requests that were promoted.
    pub promoted: f64,
    /// Requests that missed their deadline.
    pub missed: f64,
    /// Requests that arrived.
    pub arrived: f64,
    /// Sum of the times from arrival to release or promotion, s.
    pub held_s: f64,
}

impl BatchQueue {
    /// Requests that wait.
    pub fn held(&self) -> f64 {
        self.held.iter().map(|cohort| cohort.requests).sum()
    }

    /// Takes requests.
    pub fn push(&mut self, now_s: f64, requests: f64) {
        if requests > 0.0 {
            self.arrived += requests;
            self.held.push_back(Cohort {
                arrived_s: now_s,
                requests,
            });
        }
    }

    /// Removes the requests whose age promotes them.
    pub fn promote(&mut self, now_s: f64, rules: &BatchRules) -> f64 {
        let mut promoted = 0.0;
        while let Some(cohort) = self.held.front() {
            let age_s = now_s - cohort.arrived_s;
            if age_s < rules.promoted_s {
                break;
            }
            promoted += cohort.requests;
            self.held_s += cohort.requests * age_s;
            if age_s > rules.deadline_s {
                self.missed += cohort.requests;
            }
            self.held.pop_front();
        }
        self.promoted += promoted;
        promoted
    }

    /// Removes requests for which an endpoint of this utilisation has room, at so many signals.
    pub fn release(
        &mut self,
        now_s: f64,
        rules: &BatchRules,
        utilisation: f64,
        signals: f64,
        room: f64,
    ) -> f64 {
        let [one, two] = rules.release_below;
        let credit = match utilisation {
            _ if utilisation < two => 2.0,
            _ if utilisation < one => 1.0,
            _ => 0.0,
        };
        let mut left = (signals * credit).min(room);
        let mut released = 0.0;
        while let Some(cohort) = self.held.front_mut() {
            let requests = cohort.requests.min(left);
            released += requests;
            left -= requests;
            cohort.requests -= requests;
            self.held_s += requests * (now_s - cohort.arrived_s);
            if cohort.requests > 1e-9 {
                break;
            }
            self.held.pop_front();
        }
        self.released += released;
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: BatchRules = BatchRules {
        release_below: [0.60, 0.50],
        promoted_s: 100.0,
        deadline_s: 1_000.0,
    };

    #[test]
    fn credit_follows_the_utilisation_and_room_bounds_it() {
        let mut queue = BatchQueue::default();
        queue.push(0.0, 100.0);
        assert_eq!(queue.release(1.0, &RULES, 0.60, 10.0, 50.0), 0.0);
        assert_eq!(queue.release(1.0, &RULES, 0.55, 10.0, 50.0), 10.0);
        assert_eq!(queue.release(1.0, &RULES, 0.45, 10.0, 50.0), 20.0);
        assert_eq!(queue.release(1.0, &RULES, 0.1, 100.0, 5.0), 5.0);
        assert_eq!((queue.held(), queue.released), (65.0, 35.0));
    }

    #[test]
    fn old_requests_are_promoted_and_late_ones_have_missed_their_deadline() {
        let mut queue = BatchQueue::default();
        queue.push(0.0, 3.0);
        queue.push(50.0, 4.0);
        assert_eq!(queue.promote(99.0, &RULES), 0.0);
        assert_eq!(queue.promote(100.0, &RULES), 3.0);
        assert_eq!(queue.missed, 0.0);
        assert_eq!(queue.promote(1_051.0, &RULES), 4.0);
        assert_eq!((queue.missed, queue.held()), (4.0, 0.0));
    }
}
