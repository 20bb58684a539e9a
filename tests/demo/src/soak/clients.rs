//! The clients: some hold conversations, some send requests that are wrong in one way.

use std::net::SocketAddr;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::exchange::{REQUEST_MAX, exchange, exchange_bytes, slow_body};
use super::kind::RequestKind;
use super::prompt::{Conversation, odd_body};
use super::record::{Records, RequestEnd, RequestRecord, RunClock};

/// Clients that hold conversations.
const TALKERS: u64 = 10;
/// Clients that send other requests.
const ODD_CLIENTS: u64 = 3;
/// Time from an answer to the next request, ms.
const THINK_MS: std::ops::RangeInclusive<u64> = 50..=400;
/// Pause after a failure: as long as clients are told to wait.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);
/// Failures of one turn after which a client begins a new conversation.
const FAILURES_MAX: usize = 4;
/// Time after which a client that wants to go away does so, ms.
const ABORT_MS_MAX: u64 = 1_000;
/// More than Envoy accepts in headers.
const GIANT_HEADER_BYTES: usize = 70_000;
const CHAT_PATH: &str = "/v1/chat/completions";

/// The running clients. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Clients {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    pub(super) records: Records,
}

/// A client.
#[derive(Debug)]
struct SoakClient {
    number: u64,
    random: Pcg64Mcg,
    http: reqwest::Client,
    envoys: Vec<SocketAddr>,
    clock: RunClock,
    records: Records,
    sent: u64,
}

impl Clients {
    /// Starts the clients of these Envoys.
    pub(super) fn start(seed: u64, envoys: &[SocketAddr], clock: RunClock) -> anyhow::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let mut clients = Self {
            stop,
            tasks: JoinSet::new(),
            records: Records::default(),
        };
        for number in 0..TALKERS + ODD_CLIENTS {
            let is_odd = number >= TALKERS;
            // Envoy closes the connections of requests that it does not understand.
            let idle_connections = if is_odd { 0 } else { usize::MAX };
            let http = reqwest::Client::builder().no_proxy();
            let mut client = SoakClient {
                number,
                random: Pcg64Mcg::seed_from_u64(seed ^ (number + 1).rotate_right(16)),
                http: http.pool_max_idle_per_host(idle_connections).build()?,
                envoys: envoys.to_vec(),
                clock,
                records: clients.records.clone(),
                sent: 0,
            };
            let stopped = stopped.clone();
            clients.tasks.spawn(async move {
                while !*stopped.borrow() {
                    if is_odd {
                        client.send_odd().await;
                    } else {
                        client.talk(&stopped).await;
                    }
                }
            });
        }
        Ok(clients)
    }

    /// Lets each client end its request, and returns all records.
    pub(super) async fn stop(mut self) -> anyhow::Result<Vec<RequestRecord>> {
        self.stop.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(REQUEST_MAX * 2, all).await?;
        Ok(std::mem::take(&mut *self.records.lock()))
    }
}

impl SoakClient {
    /// Holds a conversation.
    async fn talk(&mut self, stopped: &watch::Receiver<bool>) {
        let session = format!("soak-{}-{}", self.number, self.sent);
        let mut conversation = Conversation::new(&mut self.random, session);
        while conversation.turns_left > 0 {
            conversation.ask(&mut self.random);
            let mut failures = 0;
            while !self.turn(&mut conversation).await {
                failures += 1;
                if failures >= FAILURES_MAX || *stopped.borrow() {
                    return;
                }
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
            if *stopped.borrow() {
                return;
            }
            let think = self.random.random_range(THINK_MS);
            tokio::time::sleep(Duration::from_millis(think)).await;
        }
    }

    /// Requests an answer; returns whether it came.
    async fn turn(&mut self, conversation: &mut Conversation) -> bool {
        let is_streamed = self.random.random_bool(0.7);
        let kind = match is_streamed {
            true => RequestKind::Streamed,
            false => RequestKind::Whole,
        };
        let mut record = self.begin(kind);
        record.is_follow_up = conversation.answered > 0;
        let request = self.post(&record, CHAT_PATH);
        let request = request.header("x-session-id", &conversation.session);
        let request = request.json(&conversation.body(is_streamed));
        let (ending, text) = exchange(request, &record.id).await;
        let is_answered = matches!(ending, RequestEnd::Answered(_));
        self.end(record, ending);
        if is_answered {
            conversation.answer(&text);
        }
        is_answered
    }

    async fn send_odd(&mut self) {
        let kinds = RequestKind::odd();
        let index = self.random.random_range(0..kinds.len());
        let Some(kind) = kinds.get(index).copied() else {
            return;
        };
        let record = self.begin(kind);
        let body = odd_body(kind, &mut self.random);
        let request = self.post(&record, CHAT_PATH);
        let request = request.header("content-type", "application/json");
        let id = &record.id;
        let ending = match kind {
            RequestKind::NotHttp => self.send_bytes(record.envoy).await,
            RequestKind::UnknownPath => exchange(self.post(&record, "/metrics"), id).await.0,
            RequestKind::GiantHeader => {
                let padding = "x".repeat(GIANT_HEADER_BYTES);
                exchange(request.header("x-padding", padding).body(body), id)
                    .await
                    .0
            }
            RequestKind::SlowBody => exchange(request.body(slow_body(body)), id).await.0,
            RequestKind::Aborted => {
                let patience = Duration::from_millis(self.random.random_range(0..=ABORT_MS_MAX));
                let exchange = exchange(request.body(body), id);
                let ended = tokio::time::timeout(patience, exchange).await;
                ended.map_or(RequestEnd::Aborted, |(ending, _)| ending)
            }
            _ => exchange(request.body(body), id).await.0,
        };
        let is_refused = matches!(
            ending,
            RequestEnd::Refused { .. } | RequestEnd::Broken { .. }
        );
        self.end(record, ending);
        let think = self.random.random_range(THINK_MS);
        let pause = if is_refused {
            PAUSE_AFTER_FAILURE
        } else {
            Duration::ZERO
        };
        tokio::time::sleep(pause + Duration::from_millis(think)).await;
    }

    async fn send_bytes(&mut self, envoy: usize) -> RequestEnd {
        let mut bytes: Vec<u8> = (0..64).map(|_| self.random.random()).collect();
        bytes.extend(b"\r\n\r\n");
        match self.envoys.get(envoy) {
            Some(address) => exchange_bytes(*address, &bytes).await,
            None => RequestEnd::Wrong("no such Envoy".into()),
        }
    }

    fn post(&self, record: &RequestRecord, path: &str) -> reqwest::RequestBuilder {
        let address = self.envoys.get(record.envoy).copied();
        let address = address.map_or_else(String::new, |address| address.to_string());
        self.http.post(format!("http://{address}{path}"))
    }

    /// Draws an Envoy and names the request.
    fn begin(&mut self, kind: RequestKind) -> RequestRecord {
        self.sent += 1;
        let now = self.clock.now();
        RequestRecord {
            id: format!("soak-{}-{}", self.number, self.sent),
            kind,
            envoy: self.random.random_range(0..self.envoys.len().max(1)),
            sent: now,
            ended: now,
            is_follow_up: false,
            ending: RequestEnd::Unanswered,
        }
    }

    fn end(&self, record: RequestRecord, ending: RequestEnd) {
        let record = RequestRecord {
            ended: self.clock.now(),
            ending,
            ..record
        };
        self.records.lock().push(record);
    }
}
