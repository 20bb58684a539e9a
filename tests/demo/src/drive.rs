//! Plays conversations against a system, and records every request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::client::Client;
use crate::record::{RequestLog, RequestRecord};
use crate::workload::{Conversation, LoadModel, Workload, message};

/// Plays conversations for users of one region.
#[derive(Clone, Debug)]
pub struct Player {
    /// Client of the region.
    pub client: Client,
    /// Records of the run.
    pub log: RequestLog,
    /// Start of the run.
    pub start: Instant,
    /// Length of the run, after which no request starts; `None` plays every conversation to its end.
    pub length: Option<Duration>,
}

impl Player {
    /// Waits, at most until the end of the run. Returns whether the run still goes on.
    pub async fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let end = self.length.map(|length| self.start + length);
        sleep_until(end.map_or(until, |end| until.min(end)).into()).await;
        end.is_none_or(|end| until < end)
    }

    /// Plays a conversation; after a failed turn it continues with the next question.
    pub async fn converse(&self, conversation: Conversation) {
        let system = conversation.system.iter();
        let mut messages: Vec<_> = system
            .map(|text| message("system", text.render()))
            .collect();
        let mut is_follow_up = false;
        for turn in conversation.turns {
            if !self.pause(turn.think).await {
                return;
            }
            messages.push(message("user", turn.content.render()));
            let sent = self.start.elapsed();
            let request = self
                .client
                .send(&conversation.session, &messages, turn.answer);
            let response = request.await;
            let record = RequestRecord {
                region: self.client.region,
                served: response.as_ref().ok().and_then(|response| response.served),
                sent,
                ended: self.start.elapsed(),
                prompt_bytes: messages.iter().map(text_bytes).sum(),
                is_follow_up,
                outcome: match &response {
                    Ok(response) => Ok(response.outcome),
                    Err(error) => Err(format!("{error:#}")),
                },
            };
            self.log.read().push(record);
            match response {
                Ok(response) => {
                    is_follow_up = true;
                    messages.push(message("assistant", response.text));
                }
                Err(_) => drop(messages.pop()),
            }
        }
    }
}

/// Bytes of a message's text.
fn text_bytes(message: &Value) -> u64 {
    let text = message.get("content").and_then(Value::as_str);
    text.map_or(0, |text| text.len() as u64)
}

/// Plays a workload to its end, and returns its duration.
pub async fn run_workload(workload: &Workload, client: &Client, log: &RequestLog) -> Duration {
    let start = Instant::now();
    let player = Player {
        client: client.clone(),
        log: log.clone(),
        start,
        length: None,
    };
    let mut tasks = JoinSet::new();
    match workload.load_model {
        LoadModel::Open => {
            for conversation in workload.conversations.iter().cloned() {
                sleep_until((start + conversation.at).into()).await;
                let player = player.clone();
                tasks.spawn(async move { player.converse(conversation).await });
            }
        }
        LoadModel::Closed { users } => {
            let waiting: VecDeque<_> = workload.conversations.iter().cloned().collect();
            let waiting = Arc::new(Mutex::new(waiting));
            for _ in 0..users {
                let (waiting, player) = (Arc::clone(&waiting), player.clone());
                let next = move || {
                    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    waiting.pop_front()
                };
                tasks.spawn(async move {
                    while let Some(conversation) = next() {
                        tokio::time::sleep(conversation.at).await;
                        player.converse(conversation).await;
                    }
                });
            }
        }
    }
    while tasks.join_next().await.is_some() {}
    start.elapsed()
}
