//! The load over time: once a second, more seldom in long runs, so that samples stay few.

use core::time::Duration;

use super::Simulation;
use super::event_queue::{Ns, SimEvent};
use super::replica::State;
use super::time;
use crate::record::{ReplicaSample, Sample};

/// Initial interval between samples.
pub(super) const EVERY_NS: Ns = 1_000_000_000;
/// Number of samples above which every other sample is dropped and the interval doubles.
const SAMPLES_MAX: usize = 8_192;

impl Simulation<'_> {
    pub(super) fn sample(&mut self) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let at = Duration::from_nanos(self.now);
        let queued: usize = self
            .balancers
            .iter()
            .map(|balancer| balancer.router.stats(time(self.now)).queue_length)
            .sum();
        let mut sample = Sample {
            at,
            queued: count(queued),
            replicas: Vec::new(),
        };
        for number in self.replicas.numbers() {
            let replica = &mut self.replicas[number];
            if !matches!(replica.state, State::Member | State::Draining) {
                continue;
            }
            replica.engine.handle_timeout(at);
            let stats = replica.engine.stats();
            let waiting = stats.waiting + stats.arrived;
            sample.replicas.push(ReplicaSample {
                replica: number,
                outstanding: count(stats.running + waiting),
                waiting: count(waiting),
                pending_prefill_tokens: replica.engine.backlog_tokens(),
                blocks_held: stats.blocks_held,
            });
            self.drain_engine(number);
        }
        self.samples.push(sample);
        if self.samples.len() > SAMPLES_MAX {
            self.samples = core::mem::take(&mut self.samples)
                .into_iter()
                .step_by(2)
                .collect();
            self.sample_every *= 2;
        }
        self.queue
            .add(self.now + self.sample_every, SimEvent::LoadSample);
    }
}
