//! Batch clients: workers that always have a request for the gate, and try again later when it turns one away.

use std::time::Instant;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::setup::TierSetup;
use crate::client::{Client, Refusal};
use crate::record::{RequestLog, RequestRecord};
use crate::workload::{Content, OutputLength, message};

/// Workers for each replica: more than a gate releases.
const WORKERS: usize = 24;
/// Lengths of a request, in tokens.
const PROMPT_TOKENS: u32 = 400;
const ANSWER_TOKENS: u32 = 120;
/// Delay before another attempt where the response names none, by the engines' clock.
const RETRY_S: f64 = 1.0;

/// A worker's share of a run.
#[derive(Clone)]
pub(super) struct BatchWorker {
    pub(super) client: Client,
    pub(super) log: RequestLog,
    pub(super) start: Instant,
    pub(super) setup: TierSetup,
}

/// Starts every worker. They work until the set is dropped.
pub(super) fn start(worker: &BatchWorker) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for number in 0..WORKERS * worker.setup.replicas {
        let worker = worker.clone();
        tasks.spawn(async move { worker.work(number).await });
    }
    tasks
}

impl BatchWorker {
    async fn work(self, worker: usize) {
        let seed = self.setup.seed.wrapping_mul(1 << 32);
        for number in 0_u64.. {
            let id = seed ^ (worker as u64) << 20 ^ number ^ 1 << 63;
            let prompt = Content(vec![(id, PROMPT_TOKENS)]).render();
            let record = self.send(worker, &prompt).await;
            self.log.read().push(record);
        }
    }

    /// Sends a request until it has a response that is no refusal for lack of capacity.
    async fn send(&self, worker: usize, prompt: &str) -> RequestRecord {
        let messages = [message("user", prompt.to_owned())];
        let session = format!("batch-{worker}");
        let answer = OutputLength::Exactly(ANSWER_TOKENS);
        loop {
            let sent = self.start.elapsed();
            let response = self.client.send(&session, &messages, answer).await;
            if let Err(error) = &response
                && let Some(refusal) = error.downcast_ref::<Refusal>()
                && refusal.is_for_lack_of_capacity()
            {
                let after = refusal
                    .retry_after
                    .map_or(RETRY_S, |time| time.as_secs_f64());
                sleep(self.setup.time(after)).await;
                continue;
            }
            return RequestRecord {
                region: self.client.region,
                served: None,
                sent,
                ended: self.start.elapsed(),
                prompt_bytes: prompt.len() as u64,
                is_follow_up: false,
                outcome: match &response {
                    Ok(response) => Ok(response.outcome),
                    Err(error) => Err(format!("{error:#}")),
                },
            };
        }
    }
}
