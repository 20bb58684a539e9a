//! Runs a workload against a system.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::client::{ChatResponse, Client, RequestError, Usage};
use crate::stats::Times;
use crate::workload::{Conversation, LoadModel, Workload, message};

/// Failures that are kept to be shown; there may be thousands of one cause.
pub(crate) const FAILURES_SHOWN_MAX: usize = 5;

/// The measurements so far, shared with the progress display.
#[derive(Clone, Debug, Default)]
pub struct SharedMeasurements(Arc<Mutex<Measurements>>);

/// The measurements of a run.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    /// Requests with a complete answer.
    pub completed: usize,
    /// Requests without one.
    pub failed: usize,
    /// Why the first of them failed.
    pub failures: Vec<String>,
    /// Time to the first piece of text.
    pub ttft: Times,
    /// Time to the end of the answer.
    pub e2e: Times,
    /// Time in the service's queue.
    pub queued: Times,
    /// The sum over all answers.
    pub usage: Usage,
    /// From the first request to the end of the last answer.
    pub duration: Duration,
}

impl Measurements {
    /// The share of prompt tokens that engines found in their caches.
    #[must_use]
    pub fn cache_hit_ratio(&self) -> f64 {
        if self.usage.prompt == 0 {
            0.0
        } else {
            self.usage.cached as f64 / self.usage.prompt as f64
        }
    }
}

impl SharedMeasurements {
    /// A copy of what was measured so far.
    #[must_use]
    pub fn now(&self) -> Measurements {
        self.lock().clone()
    }

    fn count(&self, result: &Result<ChatResponse, RequestError>) {
        let mut measured = self.lock();
        match result {
            Ok(answered) => {
                measured.completed += 1;
                measured.ttft.record(answered.ttft);
                measured.e2e.record(answered.e2e);
                if let Some(queued) = answered.queued {
                    measured.queued.record(queued);
                }
                let usage = &mut measured.usage;
                usage.prompt += answered.usage.prompt;
                usage.cached += answered.usage.cached;
                usage.output += answered.usage.output;
            }
            Err(failure) => {
                measured.failed += 1;
                if measured.failures.len() < FAILURES_SHOWN_MAX {
                    measured.failures.push(failure.to_string());
                }
            }
        }
    }

    /// Nothing in here is left half done by a panic of another thread.
    fn lock(&self) -> MutexGuard<'_, Measurements> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plays all of it, and returns what was measured; `tally` has it on the way.
pub async fn run_workload(
    workload: &Workload,
    client: &Client,
    tally: &SharedMeasurements,
) -> Measurements {
    let start = Instant::now();
    let mut players = JoinSet::new();
    match workload.load_model {
        LoadModel::Open => {
            for conversation in workload.conversations.iter().cloned() {
                tokio::time::sleep_until((start + conversation.at).into()).await;
                players.spawn(converse(conversation, client.clone(), tally.clone()));
            }
        }
        LoadModel::Closed { users } => {
            let waiting: VecDeque<Conversation> = workload.conversations.iter().cloned().collect();
            let waiting = Arc::new(Mutex::new(waiting));
            for _ in 0..users {
                let (waiting, client, tally) =
                    (Arc::clone(&waiting), client.clone(), tally.clone());
                players.spawn(async move {
                    let next = || {
                        waiting
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .pop_front()
                    };
                    while let Some(conversation) = next() {
                        tokio::time::sleep(conversation.at).await;
                        converse(conversation, client.clone(), tally.clone()).await;
                    }
                });
            }
        }
    }
    while players.join_next().await.is_some() {}
    let mut measured = tally.now();
    measured.duration = start.elapsed();
    measured
}

/// Runs a conversation; after a failed turn it continues with the next question.
async fn converse(conversation: Conversation, client: Client, tally: SharedMeasurements) {
    let mut messages = conversation.opening();
    for turn in conversation.turns {
        tokio::time::sleep(turn.think).await;
        messages.push(message("user", turn.content.render()));
        let result = client
            .send(&conversation.session, &messages, turn.answer)
            .await;
        tally.count(&result);
        match result {
            Ok(answered) => messages.push(message("assistant", answered.text)),
            Err(_) => {
                messages.pop();
            }
        }
    }
}
