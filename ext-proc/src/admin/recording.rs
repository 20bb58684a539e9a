//! `POST /api/recording`: records a pool's requests, and streams each of them as it ends.
//!
//! The response is the recording: if the client disconnects, the response is dropped and the recording ends with it. So no
//! recording can be forgotten. It needs the token although it changes nothing: data of single requests reveal more than
//! metrics do.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use futures_util::stream::unfold;
use tokio::sync::{OwnedRwLockReadGuard, watch};
use tokio::time::{Instant, sleep};

use super::error::ApiError;
use super::server::ConnectionLifetime;
use super::{AdminState, pools, view};
use crate::config::Config;
use crate::recorder::RecordReader;
use crate::recorder::event::{EndReason, RecordingEvent};
use crate::recorder::salt::Salt;

const REQUESTS_MAX: u64 = 1_000_000;
/// The longest recording, in seconds.
const SECONDS_MAX: u64 = 3_600;
/// The largest recording, in bytes.
const BYTES_MAX: u64 = 1 << 30;
/// The longest time that a closed recording waits for its unfinished requests.
const LINGER_MAX: Duration = Duration::from_secs(60);
/// The interval of checks whether the recording must close.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

const NDJSON: &str = "application/x-ndjson";

pub(super) async fn record(
    State(admin): AdminState,
    Extension(lifetime): Extension<ConnectionLifetime>,
    new: Result<Json<view::NewRecording>, JsonRejection>,
) -> Result<Response, ApiError> {
    let Json(new) = new?;
    for (name, given, max) in [
        ("requests", new.requests, REQUESTS_MAX),
        ("seconds", new.seconds, SECONDS_MAX),
    ] {
        if given == 0 || given > max {
            let message = format!("`{name}` must be from 1 to {max}");
            return Err(ApiError::bad_request(message));
        }
    }
    let config = admin.reloader.config();
    if !config.borrow().recording {
        let message =
            "recording is disabled: write `recording: true` into the configuration of the service";
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "recording_disabled",
            message,
        ));
    }
    let pool = pools::find(&admin.pool_registry, new.pool.as_deref())?;
    let salt = Salt::random().map_err(ApiError::internal)?;
    let table = admin.pool_registry.table();
    let started = pool.recorder().start(pool.clock().now(), new.requests);
    let reader = started.map_err(|_| {
        let message = "this pool has a recording already; it ends with its time, or when its client disconnects";
        ApiError::new(StatusCode::CONFLICT, "recording_runs", message)
    })?;
    tracing::info!(
        pool = %pool.name(),
        requests = new.requests,
        seconds = new.seconds,
        "recording begins"
    );
    let stream = RecordingStream {
        pool: Arc::clone(pool.name()),
        reader,
        salt,
        region: table.peer_table().map(|regions| regions.own().to_string()),
        deadline: Instant::now() + Duration::from_secs(new.seconds),
        closed: None,
        serving: admin.serving.clone(),
        config,
        recorded: 0,
        bytes: 0,
        _lifetime: lifetime.extend().await,
    };
    let lines = unfold(Some(stream), |stream| async move {
        let mut stream = stream?;
        let event = stream.next().await;
        let rest = matches!(event, RecordingEvent::Request(_)).then_some(stream);
        Some((encode(&event), rest))
    });
    Ok(([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response())
}

/// Reads a body.
pub(super) fn read_body(body: &[u8]) {
    let _ = Json::<view::NewRecording>::from_bytes(body);
}

fn encode(event: &RecordingEvent) -> Result<Bytes, serde_json::Error> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line.into())
}

/// The body of a response: a recording.
struct RecordingStream {
    pool: Arc<str>,
    reader: RecordReader,
    salt: Salt,
    region: Option<String>,
    deadline: Instant,
    /// Time and reason of closing: a closed recording accepts no more requests.
    closed: Option<(Instant, EndReason)>,
    serving: watch::Receiver<bool>,
    config: watch::Receiver<Arc<Config>>,
    recorded: u64,
    bytes: u64,
    _lifetime: OwnedRwLockReadGuard<()>,
}

impl RecordingStream {
    async fn next(&mut self) -> RecordingEvent {
        loop {
            if self.closed.is_none()
                && let Some(reason) = self.close_reason()
            {
                self.reader.close();
                self.closed = Some((Instant::now(), reason));
            }
            if let Some((since, reason)) = self.closed {
                let is_urgent = matches!(
                    reason,
                    EndReason::Disabled | EndReason::Stopping | EndReason::Size
                );
                if is_urgent || since.elapsed() > LINGER_MAX {
                    return self.end(reason);
                }
            }
            tokio::select! {
                record = self.reader.next() => {
                    let Some(record) = record else {
                        let reason = self.closed.map_or(EndReason::Requests, |(_, reason)| reason);
                        return self.end(reason);
                    };
                    let request = record.salted(&self.salt, self.region.as_deref());
                    self.recorded += 1;
                    // An estimate: a block is two numbers of up to 16 digits.
                    self.bytes += 200 + 32 * request.blocks.len() as u64;
                    return RecordingEvent::Request(request);
                }
                () = sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Returns why the recording must close, if it must.
    fn close_reason(&self) -> Option<EndReason> {
        if !*self.serving.borrow() {
            Some(EndReason::Stopping)
        } else if !self.config.borrow().recording {
            Some(EndReason::Disabled)
        } else if self.bytes >= BYTES_MAX {
            Some(EndReason::Size)
        } else if self.reader.is_closed() {
            Some(EndReason::Requests)
        } else if Instant::now() >= self.deadline {
            Some(EndReason::Time)
        } else {
            None
        }
    }

    fn end(&self, reason: EndReason) -> RecordingEvent {
        let summary = self.reader.summary(reason, self.recorded);
        tracing::info!(
            pool = %self.pool,
            reason = reason.as_str(),
            recorded = summary.recorded,
            dropped = summary.dropped,
            failed = summary.failed,
            unfinished = summary.unfinished,
            "recording has ended"
        );
        RecordingEvent::End(summary)
    }
}
