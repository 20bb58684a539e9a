//! What the policy is told: who arrives, who waits, who does not wait any more.

use super::Router;
use crate::policy::{Policy, View};
use crate::queue::{Place, Waiting};

impl Router {
    /// Tells the policy something, with the view that all available replicas are candidates.
    pub(super) fn tell(&mut self, what: impl FnOnce(&mut dyn Policy, &View<'_>)) {
        let view = View {
            fleet: &self.fleet,
            index: &self.index,
            candidates: self.fleet.available(),
            queue: &self.queue,
            answers: &self.answers,
            sessions: &self.sessions,
            service_s: self.service_s,
            ttft_slo_s: self.config.ttft_slo.as_secs_f64(),
            waited_s: 0.0,
            declined_s: 0.0,
            now: self.now,
        };
        what(self.policy.as_mut(), &view);
    }

    /// A request waits from now on.
    pub(super) fn enqueue(&mut self, waiting: Waiting) {
        self.tell(|policy, view| policy.waits(&waiting, view));
        self.queue.push(waiting);
    }

    /// A request waits no more.
    pub(super) fn dequeue(&mut self, place: Place) -> Option<Waiting> {
        let waiting = self.queue.remove(place)?;
        self.policy.gone(place);
        Some(waiting)
    }

    /// A new policy learns of those who wait.
    pub(super) fn tell_who_waits(&mut self) {
        self.tell(|policy, view| {
            for waiting in view.queue.all() {
                policy.waits(waiting, view);
            }
        });
    }
}
