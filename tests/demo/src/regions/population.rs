//! The clients of all regions, at work for a fixed time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::client_counts::ClientCounts;
use super::deployment::RegionEndpoint;
use super::document_chat::{ClientId, DocumentChat};
use super::record::{Outcome, RequestRecord, Window};
use crate::drive::FAILURES_SHOWN_MAX;
use crate::workload::{Conversation, message};

/// ClientId asks, what, and for how long. Times are measured ones.
#[derive(Clone, Debug)]
pub struct ClientPopulation {
    /// Clients of each region over time.
    pub counts: ClientCounts,
    /// Conversations of the clients.
    pub chat: DocumentChat,
    /// Factor by which everything runs faster than real time.
    pub speed: f64,
    /// Time in which clients start requests.
    pub length: Duration,
    /// Part of that time that fills the caches.
    pub warm_up: Duration,
}

impl ClientPopulation {
    /// The part that counts.
    #[must_use]
    pub fn window(&self) -> Window {
        Window {
            from: self.warm_up,
            to: self.length,
        }
    }
}

/// The requests so far, shared with the progress display.
#[derive(Clone, Debug, Default)]
pub struct RequestLog(Arc<Mutex<LogEntries>>);

/// The contents of a [`RequestLog`].
#[derive(Clone, Debug, Default)]
pub struct LogEntries {
    /// Every request that has ended.
    pub records: Vec<RequestRecord>,
    /// Why the first of those without an answer have none.
    pub failures: Vec<String>,
}

impl RequestLog {
    /// Looks into it. Nothing in it is left half done by a panic of another thread.
    pub fn read(&self) -> MutexGuard<'_, LogEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, record: RequestRecord, failure: Option<String>) {
        let mut entries = self.read();
        entries.records.push(record);
        if let Some(failure) = failure
            && entries.failures.len() < FAILURES_SHOWN_MAX
        {
            entries.failures.push(failure);
        }
    }
}

/// Lets all clients work, and returns when the last answer has ended.
pub async fn run_workload(
    population: &ClientPopulation,
    endpoints: &[RegionEndpoint],
    log: &RequestLog,
) {
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for (region, endpoint) in endpoints.iter().enumerate() {
        for client in 0..population.counts.most(region) {
            let life = ClientTask {
                population: population.clone(),
                endpoint: endpoint.clone(),
                region,
                client,
                start,
                log: log.clone(),
            };
            clients.spawn(life.live());
        }
    }
    while clients.join_next().await.is_some() {}
}

/// The task of a client.
struct ClientTask {
    population: ClientPopulation,
    endpoint: RegionEndpoint,
    region: usize,
    client: usize,
    start: Instant,
    log: RequestLog,
}

impl ClientTask {
    async fn live(self) {
        let mut number = 0;
        let length = self.population.length.as_secs_f64();
        loop {
            let now = self.start.elapsed().as_secs_f64() / length;
            let Some(next) = self.population.counts.next(self.region, self.client, now) else {
                return;
            };
            sleep_until((self.start + self.population.length.mul_f64(next)).into()).await;
            let who = ClientId {
                name: &self.endpoint.region,
                region: u32::try_from(self.region).unwrap_or(u32::MAX),
                client: u32::try_from(self.client).unwrap_or(u32::MAX),
            };
            let conversation =
                self.population
                    .chat
                    .conversation(who, number, self.population.speed);
            number += 1;
            if !self.pause(conversation.at).await {
                return;
            }
            self.converse(conversation).await;
        }
    }

    /// Waits; says whether the run still goes on then.
    async fn pause(&self, time: Duration) -> bool {
        let end = self.start + self.population.length;
        let until = Instant::now() + time;
        sleep_until(until.min(end).into()).await;
        until < end
    }

    /// Runs a conversation; after a failed turn it continues with the next question.
    async fn converse(&self, conversation: Conversation) {
        let mut messages = conversation.opening();
        let mut last_served = None;
        for turn in conversation.turns {
            if !self.pause(turn.think).await {
                return;
            }
            messages.push(message("user", turn.content.render()));
            let sent = self.start.elapsed();
            let asked = self
                .endpoint
                .client
                .send(&conversation.session, &messages, turn.answer);
            let result = asked.await;
            let mut record = RequestRecord {
                region: self.region,
                served: None,
                sent,
                ended: self.start.elapsed(),
                follow_up: last_served.is_some(),
                after_forwarded: last_served.is_some_and(|served| served != self.region),
                outcome: None,
            };
            match result {
                Ok(answered) => {
                    record.served = answered
                        .decision
                        .as_deref()
                        .and_then(|decision| self.endpoint.serving_region(decision));
                    record.outcome = Some(Outcome {
                        ttft: answered.ttft,
                        usage: answered.usage,
                    });
                    last_served = Some(record.served.unwrap_or(self.region));
                    messages.push(message("assistant", answered.text));
                    self.log.add(record, None);
                }
                Err(failure) => {
                    messages.pop();
                    self.log.add(record, Some(failure.to_string()));
                }
            }
        }
    }
}
