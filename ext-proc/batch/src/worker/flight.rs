//! The lines in flight: at the gateway, or with a result that is not stored yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::Rng as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::WorkerConfig;
use super::counters::{AttemptEnd, WorkerCounters};
use super::in_flight::{InFlight, Lane};
use super::plan::{Plan, WantedLines};
use crate::gateway::{Answer, Disposition, Gateway, LineRequest};
use crate::id::request_id;
use crate::limits::Limits;
use crate::line::RequestLine;
use crate::output::{MissingResponse, error_line, response_line};
use crate::pace::{Feedback, Priority, SteadyMs, UnixMs};
use crate::store::{BatchRow, ClaimedLine, LineKey, LineUpdate, ResultKind, Store, StoreResult};

/// Largest part of a pause that jitter adds.
const JITTER: f64 = 0.25;

/// Least time to the deadline that a request tells which is not promoted, in milliseconds: twice the time at which a gate makes it
/// interactive.
const HELD_LEFT_MS_MIN: i64 = 20 * 60_000;

/// News of an attempt about its line, with the number of the attempt.
pub(super) type AttemptUpdate = (u64, (LineKey, LineUpdate));

/// A line at the gateway.
#[derive(Debug)]
struct Flight {
    /// Number of the attempt among all attempts of the worker.
    attempt: u64,
    lane: Lane,
    priority: Priority,
    custom_id: String,
    failures: u32,
    outages: u32,
    sent_at: SteadyMs,
    /// Whether the attempt may still bring a result: its answer is awaited, or its result is being stored.
    is_promising: bool,
}

/// The lines in flight of a worker.
#[derive(Debug)]
pub(super) struct Flights {
    worker: String,
    gateway: Gateway,
    limits: Limits,
    lease: Duration,
    lines: BTreeMap<LineKey, Flight>,
    in_flight: InFlight,
    attempts: u64,
    sending: JoinSet<(u64, LineKey, Answer)>,
    updates: mpsc::Sender<AttemptUpdate>,
    recorded: mpsc::Receiver<(u64, LineKey)>,
    counters: Arc<WorkerCounters>,
}

impl Flights {
    pub(super) fn new(
        worker: String,
        config: &WorkerConfig,
        updates: mpsc::Sender<AttemptUpdate>,
        recorded: mpsc::Receiver<(u64, LineKey)>,
    ) -> Self {
        Self {
            worker,
            gateway: config.gateway.clone(),
            limits: config.limits.clone(),
            lease: config.lease,
            lines: BTreeMap::new(),
            in_flight: InFlight::default(),
            attempts: 0,
            sending: JoinSet::new(),
            updates,
            recorded,
            counters: Arc::clone(&config.counters),
        }
    }

    pub(super) fn worker(&self) -> &str {
        &self.worker
    }

    /// Numbers of the lines.
    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Sends a line that was claimed.
    pub(super) fn start(
        &mut self,
        store: &Store,
        plan: &mut Plan,
        wanted: &WantedLines,
        line: ClaimedLine,
    ) {
        let key = (wanted.batch.clone(), line.number);
        // The lease ended while the database was away, and the claim has renewed it.
        if self
            .lines
            .get(&key)
            .is_some_and(|flight| flight.is_promising)
        {
            return;
        }
        let Some(batch) = plan.batch(&wanted.batch) else {
            return; // not possible: the plan asked for the line; its lease ends
        };
        let (lane, now) = (Lane::of(batch), store.moment());
        let request = line_request(batch, &line, wanted.priority, now.unix);
        self.attempts += 1;
        let attempt = self.attempts;
        let flight = Flight {
            attempt,
            priority: wanted.priority,
            custom_id: line.custom_id,
            failures: line.failures,
            outages: line.outages,
            sent_at: now.steady,
            is_promising: true,
            lane,
        };
        plan.sent(&flight.lane, flight.priority);
        self.counters
            .count_sent(flight.priority, line.is_taken_over);
        match request {
            Ok(request) => {
                let gateway = self.gateway.clone();
                let id = key.clone();
                self.sending
                    .spawn(async move { (attempt, id, gateway.send(request).await) });
            }
            Err(error) => {
                let reason = MissingResponse::Unreadable(error);
                let text = error_line(&key.0, key.1, &flight.custom_id, &reason);
                let kind = ResultKind::Error;
                self.update(attempt, key.clone(), LineUpdate::Result { kind, text });
            }
        }
        // The line's last update is stored, since the line could be claimed; the recorder's word comes too late.
        self.in_flight.add(&key.0, &flight.lane, flight.priority);
        if let Some(earlier) = self.lines.insert(key, flight) {
            self.end(plan, &wanted.batch, &earlier);
        }
    }

    /// Waits for the next answer or the next stored result, and handles it.
    pub(super) async fn next_event(&mut self, plan: &mut Plan, store: &Store) {
        if self.lines.is_empty() {
            return std::future::pending().await;
        }
        tokio::select! {
            Some(answered) = self.sending.join_next() => {
                if let Ok((attempt, key, answer)) = answered {
                    let now = store.moment().steady;
                    self.handle_answer(plan, now, (attempt, key), answer);
                }
            }
            Some((attempt, key)) = self.recorded.recv() => {
                let is_current = |flight: &Flight| flight.attempt == attempt;
                if self.lines.get(&key).is_some_and(is_current)
                    && let Some(flight) = self.lines.remove(&key)
                {
                    self.end(plan, &key.0, &flight);
                }
            }
        }
    }

    /// Gives back the places of a line.
    fn end(&mut self, plan: &mut Plan, batch: &str, flight: &Flight) {
        self.in_flight.remove(batch, &flight.lane, flight.priority);
        plan.ended(&flight.lane, flight.priority);
    }

    fn handle_answer(
        &mut self,
        plan: &mut Plan,
        now: SteadyMs,
        (attempt, key): (u64, LineKey),
        answer: Answer,
    ) {
        let flight = self.lines.get_mut(&key);
        let Some(flight) = flight.filter(|flight| flight.attempt == attempt) else {
            return; // not possible: a line is claimed again only when its last update is stored
        };
        if answer.rejects_key() {
            tracing::warn!(
                "the gateway rejects the token (--token-file): lines wait until it accepts it"
            );
        }
        let lane = (&flight.lane, flight.priority);
        let has_served = plan.learn(lane, (now, flight.sent_at), answer.feedback());
        let is_refused = matches!(answer.feedback(), Some(Feedback::Refused { .. }));
        let disposition = answer.dispose(flight.failures, flight.outages, has_served, &self.limits);
        self.counters.count_ended(match disposition {
            Disposition::Success(_) => AttemptEnd::Success,
            Disposition::Error(_) | Disposition::Missing(_) => AttemptEnd::Error,
            Disposition::Retry { .. } if is_refused => AttemptEnd::Refused,
            Disposition::Retry { .. } => AttemptEnd::Failed,
        });
        let (batch, number) = (key.0.as_str(), key.1);
        let update = match disposition {
            Disposition::Success(response) => LineUpdate::Result {
                kind: ResultKind::Success,
                text: response_line(batch, number, &flight.custom_id, &response),
            },
            Disposition::Error(response) => LineUpdate::Result {
                kind: ResultKind::Error,
                text: response_line(batch, number, &flight.custom_id, &response),
            },
            Disposition::Missing(reason) => LineUpdate::Result {
                kind: ResultKind::Error,
                text: error_line(batch, number, &flight.custom_id, &reason),
            },
            Disposition::Retry {
                after_ms,
                failures,
                outages,
            } => LineUpdate::Retry {
                after_ms: with_jitter(after_ms),
                failures,
                outages,
            },
        };
        flight.is_promising = matches!(update, LineUpdate::Result { .. });
        self.update(attempt, key, update);
    }

    /// Hands an update to the recorder, whose queue has a place for each line in flight.
    fn update(&self, attempt: u64, key: LineKey, update: LineUpdate) {
        if self.updates.try_send((attempt, (key, update))).is_err() {
            tracing::error!("the recorder has ended: the line is sent again after its lease");
        }
    }

    /// Extends the leases.
    pub(super) async fn renew(&self, store: &Store) -> StoreResult<()> {
        let lines: BTreeSet<LineKey> = self.lines.keys().cloned().collect();
        let lease_ms = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX);
        store.renew_leases(&self.worker, &lines, lease_ms).await
    }

    /// Gives back the lines whose responses have not come: another worker sends them again.
    pub(super) async fn give_back(&mut self) {
        self.sending.abort_all();
        for (key, flight) in &self.lines {
            let update = LineUpdate::Retry {
                after_ms: 0,
                failures: flight.failures,
                outages: flight.outages,
            };
            // A line whose result is being written keeps it: the recorder writes in this order.
            let _ = self
                .updates
                .send((flight.attempt, (key.clone(), update)))
                .await;
        }
        self.lines.clear();
        self.in_flight = InFlight::default();
    }
}

/// The request of a line, or what is wrong with the stored line.
fn line_request(
    batch: &BatchRow,
    line: &ClaimedLine,
    priority: Priority,
    now: UnixMs,
) -> Result<LineRequest, String> {
    let parsed = RequestLine::parse(&line.content).map_err(|error| error.to_string())?;
    let left_ms = batch.expires_at.saturating_sub(now).max(0);
    Ok(LineRequest {
        endpoint: batch.endpoint,
        body: Bytes::copy_from_slice(parsed.body.get().as_bytes()),
        priority,
        deadline_s: told_deadline(batch.expires_at, priority, now) / 1_000,
        time_left: Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)),
        request_id: request_id(&batch.id, line.number),
        owner: batch.owner.clone(),
    })
}

/// The deadline of a request as the gateway gets it: a gate makes a held request interactive when its deadline is near, and the
/// worker alone decides which ones are.
fn told_deadline(expires_at: UnixMs, priority: Priority, now: UnixMs) -> UnixMs {
    match priority {
        Priority::Interactive => expires_at,
        Priority::NonInteractive => expires_at.max(now.saturating_add(HELD_LEFT_MS_MIN)),
    }
}

/// A pause that differs from line to line, so that refused lines do not come back all at once.
fn with_jitter(after_ms: i64) -> i64 {
    let factor = 1.0 + rand::rng().random_range(0.0..JITTER);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a pause has at most some minutes"
    )]
    let after_ms = (after_ms as f64 * factor) as i64;
    after_ms
}
