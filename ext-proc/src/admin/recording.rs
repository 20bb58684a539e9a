//! `POST /api/recording`: records a pool's requests, and answers with them as they end.
//!
//! The answer is the recording: when the client goes away the answer is dropped, and with it the recording. So none can
//! be forgotten. It requires the token although it changes nothing: figures of single requests tell more
//! than the metrics tell.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::auth::Authorization;
use super::error::ApiError;
use super::server::{ConnectionHold, Open};
use super::{AdminState, pools, view};
use crate::config::Config;
use crate::recorder::RecordReader;
use crate::recorder::event::{EndReason, RecordingEvent, RecordingSummary};
use crate::recorder::salt::Salt;

/// The most requests of one recording.
const REQUESTS_MAX: u64 = 1_000_000;
/// The longest recording, in seconds.
const SECONDS_MAX: u64 = 3_600;
/// The largest recording, in bytes.
const BYTES_MAX: u64 = 1 << 30;
/// Time that a finished recording waits for its open requests.
const LINGER_MAX: Duration = Duration::from_secs(60);
/// Interval at which an idle recording checks its deadline.
const LOOK: Duration = Duration::from_millis(100);

const NDJSON: &str = "application/x-ndjson";

pub(super) async fn record(
    _: Authorization,
    State(admin): AdminState,
    Extension(open): Extension<Open>,
    new: Result<Json<view::NewRecording>, JsonRejection>,
) -> Result<Response, ApiError> {
    let Json(new) = new?;
    for (name, given, most) in [
        ("requests", new.requests, REQUESTS_MAX),
        ("seconds", new.seconds, SECONDS_MAX),
    ] {
        if given == 0 || given > most {
            let message = format!("`{name}` must be from 1 to {most}");
            return Err(ApiError::bad_request(message));
        }
    }
    let config = admin.reloader.config();
    if !config.borrow().recording.enabled {
        let message = "recording is switched off: write `recording: { enabled: true }` into the configuration of the service";
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "recording_disabled",
            message,
        ));
    }
    let pool = pools::find(&admin.pool_registry, new.pool.as_deref())?;
    let salt = Salt::random().map_err(ApiError::broken)?;
    let table = admin.pool_registry.table();
    let started = pool.recorder().start(pool.clock().now(), new.requests);
    let recording = started.map_err(|_| {
        let message = "this pool is being recorded already; a recording ends with its time, or when its client goes away";
        ApiError::new(StatusCode::CONFLICT, "recording_runs", message)
    })?;
    tracing::info!(
        pool = %pool.name(),
        requests = new.requests,
        seconds = new.seconds,
        "recording begins"
    );
    let answer = Answer {
        pool: Arc::clone(pool.name()),
        recording,
        salt,
        region: table.peer_table().map(|regions| regions.own().to_string()),
        closes: Instant::now() + Duration::from_secs(new.seconds),
        closed: None,
        serving: admin.serving.clone(),
        config,
        recorded: 0,
        bytes: 0,
        _open: open.hold(),
    };
    let lines = futures_util::stream::unfold(Some(answer), |answer| async move {
        let mut answer = answer?;
        let said = answer.next().await;
        let rest = matches!(said, RecordingEvent::Request(_)).then_some(answer);
        Some((line(&said), rest))
    });
    Ok(([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response())
}

fn line(said: &RecordingEvent) -> Result<Bytes, serde_json::Error> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    Ok(line.into())
}

/// A recording on its way to the client.
struct Answer {
    pool: Arc<str>,
    recording: RecordReader,
    salt: Salt,
    region: Option<String>,
    closes: Instant,
    /// Since when it takes no more requests, and why.
    closed: Option<(Instant, EndReason)>,
    serving: watch::Receiver<bool>,
    config: watch::Receiver<Arc<Config>>,
    recorded: u64,
    bytes: u64,
    _open: ConnectionHold,
}

impl Answer {
    async fn next(&mut self) -> RecordingEvent {
        loop {
            if self.closed.is_none()
                && let Some(why) = self.over()
            {
                self.recording.close();
                self.closed = Some((Instant::now(), why));
            }
            if let Some((since, why)) = self.closed {
                let at_once = matches!(
                    why,
                    EndReason::Disabled | EndReason::Stopping | EndReason::Size
                );
                if at_once || since.elapsed() > LINGER_MAX {
                    return self.end(why);
                }
            }
            tokio::select! {
                record = self.recording.next() => match record {
                    Some(record) => {
                        let recorded = record.salted(&self.salt, self.region.as_deref());
                        self.recorded += 1;
                        // Numbers of up to 16 digits, with their marks.
                        self.bytes += 200 + 32 * recorded.blocks.len() as u64;
                        return RecordingEvent::Request(recorded);
                    }
                    None => {
                        let why = self.closed.map_or(EndReason::Requests, |(_, why)| why);
                        return self.end(why);
                    }
                },
                () = sleep(LOOK) => {}
            }
        }
    }

    /// EndReason it should take no more requests, if it should not.
    fn over(&self) -> Option<EndReason> {
        if !*self.serving.borrow() {
            Some(EndReason::Stopping)
        } else if !self.config.borrow().recording.enabled {
            Some(EndReason::Disabled)
        } else if self.bytes >= BYTES_MAX {
            Some(EndReason::Size)
        } else if self.recording.is_closed() {
            Some(EndReason::Requests)
        } else if Instant::now() >= self.closes {
            Some(EndReason::Time)
        } else {
            None
        }
    }

    fn end(&self, why: EndReason) -> RecordingEvent {
        let ending = RecordingSummary {
            why,
            recorded: self.recorded,
            dropped: self.recording.dropped(),
            failed: self.recording.failed(),
            unfinished: self.recording.open(),
        };
        tracing::info!(
            pool = %self.pool,
            why = why.as_str(),
            recorded = ending.recorded,
            dropped = ending.dropped,
            failed = ending.failed,
            unfinished = ending.unfinished,
            "recording has ended"
        );
        RecordingEvent::End(ending)
    }
}
