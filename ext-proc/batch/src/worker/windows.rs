//! The windows of a worker: what the gateway takes of a model and priority, and what it serves of an owner's lines.

use std::collections::BTreeMap;

use super::in_flight::{InFlight, Lane};
use crate::pace::{Feedback, Priority, SendWindow, SteadyMs};

/// The windows of a worker.
#[derive(Debug)]
pub(super) struct Windows {
    /// Windows by model and priority, which learn from refusals and from successes.
    gateway: BTreeMap<(String, Priority), SendWindow>,
    /// Windows by owner and model, which learn from failures and from successes.
    lanes: BTreeMap<Lane, SendWindow>,
    concurrency_max: usize,
}

impl Windows {
    pub(super) fn new(concurrency_max: usize) -> Self {
        Self {
            gateway: BTreeMap::new(),
            lanes: BTreeMap::new(),
            concurrency_max,
        }
    }

    /// Number of lines that a lane may send now, of which at most an owner's share in one turn. `owners` have lines for the
    /// model. An owner with less than its share in flight may send although the others fill the window.
    pub(super) fn free(
        &self,
        now: SteadyMs,
        (lane, priority): (&Lane, Priority),
        owners: usize,
        in_flight: &InFlight,
    ) -> usize {
        let new = SendWindow::new(self.concurrency_max);
        let gateway = self.gateway.get(&(lane.model.clone(), priority));
        let gateway = gateway.unwrap_or(&new);
        if gateway.is_paused(now) {
            return 0;
        }
        let share = (gateway.limit() / owners.max(1)).max(1);
        let missing = share.saturating_sub(in_flight.of_lane(lane, priority));
        let lane_free = self.lanes.get(lane).unwrap_or(&new).free(now);
        gateway.free(now).max(missing).min(share).min(lane_free)
    }

    /// Number of lines that the gateway takes at once with a priority, over all models with work.
    pub(super) fn limit(&self, priority: Priority) -> usize {
        let windows = self.gateway.iter().filter(|((_, of), _)| *of == priority);
        windows.map(|(_, window)| window.limit()).sum()
    }

    /// Counts a line that is being sent.
    pub(super) fn sent(&mut self, lane: &Lane, priority: Priority) {
        self.gateway_window(lane, priority).sent(1);
        self.lane_window(lane).sent(1);
    }

    /// Ends a line: its result is stored, or it waits for another attempt.
    pub(super) fn ended(&mut self, lane: &Lane, priority: Priority) {
        self.gateway_window(lane, priority).ended();
        self.lane_window(lane).ended();
    }

    /// Learns from the answer to a line. Returns whether the gateway has served any line for the model lately.
    pub(super) fn learn(
        &mut self,
        (lane, priority): (&Lane, Priority),
        (now, sent_at): (SteadyMs, SteadyMs),
        feedback: Option<Feedback>,
    ) -> bool {
        if let Some(feedback) = feedback {
            if feedback != Feedback::Failed {
                let window = self.gateway_window(lane, priority);
                window.learn(now, sent_at, feedback);
            }
            if !matches!(feedback, Feedback::Refused { .. }) {
                self.lane_window(lane).learn(now, sent_at, feedback);
            }
        }
        [Priority::Interactive, Priority::NonInteractive]
            .into_iter()
            .filter_map(|priority| self.gateway.get(&(lane.model.clone(), priority)))
            .any(|window| window.has_served_lately(now))
    }

    /// Forgets the windows of lanes that are not active and have no line in flight.
    pub(super) fn forget(&mut self, is_active: impl Fn(&Lane) -> bool) {
        self.lanes
            .retain(|lane, window| is_active(lane) || window.in_flight() > 0);
        let lanes = &self.lanes;
        self.gateway.retain(|(model, _), window| {
            window.in_flight() > 0 || lanes.keys().any(|lane| lane.model == *model)
        });
    }

    fn gateway_window(&mut self, lane: &Lane, priority: Priority) -> &mut SendWindow {
        let size_max = self.concurrency_max;
        let window = self.gateway.entry((lane.model.clone(), priority));
        window.or_insert_with(|| SendWindow::new(size_max))
    }

    fn lane_window(&mut self, lane: &Lane) -> &mut SendWindow {
        let size_max = self.concurrency_max;
        let window = self.lanes.entry(lane.clone());
        window.or_insert_with(|| SendWindow::new(size_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIORITY: Priority = Priority::NonInteractive;

    fn lane(owner: &str) -> Lane {
        Lane {
            owner: owner.to_owned(),
            model: "m".to_owned(),
        }
    }

    #[test]
    fn failures_of_one_owner_pause_no_other() {
        let (a, b) = (lane("a"), lane("b"));
        let mut windows = Windows::new(16);
        let in_flight = InFlight::default();
        for _ in 0..3 {
            let learned = windows.learn((&a, PRIORITY), (0, 0), Some(Feedback::Failed));
            assert!(!learned);
        }
        assert_eq!(windows.free(0, (&a, PRIORITY), 2, &in_flight), 0);
        assert!(windows.free(0, (&b, PRIORITY), 2, &in_flight) > 0);
        // The gateway serves b: then it is not broken, and a's failures are its lines' own.
        assert!(windows.learn((&b, PRIORITY), (1, 0), Some(Feedback::Served)));
        assert!(windows.learn((&a, PRIORITY), (2, 0), Some(Feedback::Failed)));
    }

    #[test]
    fn a_refusal_pauses_every_owner() {
        let (a, b) = (lane("a"), lane("b"));
        let mut windows = Windows::new(16);
        let retry_after_ms = 1_000;
        let refused = Some(Feedback::Refused { retry_after_ms });
        windows.learn((&a, PRIORITY), (0, 0), refused);
        for lane in [&a, &b] {
            assert_eq!(
                windows.free(999, (lane, PRIORITY), 2, &InFlight::default()),
                0
            );
        }
    }

    #[test]
    fn an_owner_gets_its_share_of_a_window_that_another_fills() {
        let (a, b) = (lane("a"), lane("b"));
        let mut windows = Windows::new(16);
        let mut in_flight = InFlight::default();
        // Lines of a that no engine ever answers.
        for _ in 0..windows.free(0, (&a, PRIORITY), 1, &in_flight) {
            windows.sent(&a, PRIORITY);
            in_flight.add("batch_a", &a, PRIORITY);
        }
        assert_eq!(windows.free(0, (&a, PRIORITY), 2, &in_flight), 0);
        let share = windows.free(0, (&b, PRIORITY), 2, &in_flight);
        assert_eq!(share * 2, in_flight.len());
    }
}
