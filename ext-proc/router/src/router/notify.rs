//! What the policy is told: who arrives, who waits, who does not wait any more.

use super::Router;
use crate::policy::{Policy, View};
use crate::queue::{QueueSeq, QueuedRequest};

impl Router {
    /// Tells the policy something, with the view that all available replicas are candidates.
    pub(super) fn tell(&mut self, what: impl FnOnce(&mut dyn Policy, &View<'_>)) {
        let view = View {
            replicas: &self.replicas,
            index: &self.index,
            candidates: self.replicas.available(),
            queue: &self.queue,
            answers: &self.answers,
            sessions: &self.sessions,
            service_s: self.service_s,
            ttft_slo_s: self.config.ttft_slo.as_secs_f64(),
            waited_s: 0.0,
            delayed_s: 0.0,
            now: self.now,
        };
        what(self.policy.as_mut(), &view);
    }

    /// A request waits from now on.
    pub(super) fn enqueue(&mut self, queued: QueuedRequest) {
        self.tell(|policy, view| policy.on_enqueue(&queued, view));
        self.queue.push(queued);
    }

    /// A request waits no more.
    pub(super) fn dequeue(&mut self, seq: QueueSeq) -> Option<QueuedRequest> {
        let queued = self.queue.remove(seq)?;
        self.policy.on_dequeue(seq);
        Some(queued)
    }

    /// A new policy learns of those who wait.
    pub(super) fn tell_who_waits(&mut self) {
        self.tell(|policy, view| {
            for queued in view.queue.all() {
                policy.on_enqueue(queued, view);
            }
        });
    }
}
