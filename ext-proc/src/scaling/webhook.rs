//! Webhook: tells an operator's own autoscaler each change.
//!
//! A call names the change by its epoch, so a receiver ignores what it has seen. Only the last change matters: a newer one replaces
//! one that is being retried.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request};
use serde::Serialize;
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::config::WebhookConfig;
use crate::http_client::HttpClient;

/// Time of one call.
const CALL_TIME_MAX: Duration = Duration::from_secs(10);
/// The largest response, in bytes; nothing in it is read.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// Calls of one change.
const ATTEMPTS_MAX: u32 = 10;
/// Pauses between two calls: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The longest token file, in bytes.
const TOKEN_BYTES_MAX: u64 = 16 * 1024;

/// Body of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct WebhookCall {
    pub(super) pool: String,
    pub(super) region: String,
    /// Version of the number: a receiver ignores a call with an epoch that it has seen.
    pub(super) epoch: u64,
    pub(super) desired: u32,
    pub(super) ready: u32,
    pub(super) reason: &'static str,
    /// Replicas that drain because of the change.
    pub(super) victims: Vec<String>,
    /// Drained replicas without requests, which may serve others as spot capacity.
    pub(super) donate: Vec<String>,
    /// All replicas in the order in which the service gives them up; `pod-deletion-cost` is the position.
    pub(super) removal_order: Vec<String>,
}

/// Sends the last call of a channel until the channel closes.
pub(super) async fn run(config: WebhookConfig, mut calls: watch::Receiver<Option<WebhookCall>>) {
    let client = HttpClient::new();
    loop {
        let call = calls.borrow_and_update().clone();
        if let Some(call) = call {
            tokio::select! {
                () = deliver(&client, &config, &call) => {}
                changed = calls.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    continue;
                }
            }
        }
        if calls.changed().await.is_err() {
            return;
        }
    }
}

async fn deliver(client: &HttpClient, config: &WebhookConfig, call: &WebhookCall) {
    let mut pause = PAUSE_MIN;
    for attempt in 1..=ATTEMPTS_MAX {
        match send(client, config, call).await {
            Ok(()) => {
                tracing::info!(
                    pool = call.pool,
                    epoch = call.epoch,
                    desired = call.desired,
                    "webhook called"
                );
                return;
            }
            Err(error) => tracing::warn!(
                pool = call.pool,
                epoch = call.epoch,
                url = config.url,
                attempt,
                error,
                "the webhook did not take the number of replicas"
            ),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn send(
    client: &HttpClient,
    config: &WebhookConfig,
    call: &WebhookCall,
) -> Result<(), String> {
    let body = serde_json::to_vec(call).map_err(|error| error.to_string())?;
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&config.url)
        .header(CONTENT_TYPE, "application/json")
        .header(
            "idempotency-key",
            format!("{}-{}", call.epoch, call.donate.len()),
        );
    if let Some(token) = token(config).await? {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request
        .body(Bytes::from(body))
        .map_err(|error| error.to_string())?;
    let response = client
        .fetch(request, CALL_TIME_MAX, RESPONSE_BYTES_MAX)
        .await;
    match response {
        Ok(response) if response.status().is_success() => Ok(()),
        Ok(response) => Err(format!("status {}", response.status())),
        Err(error) => Err(error.to_string()),
    }
}

async fn token(config: &WebhookConfig) -> Result<Option<String>, String> {
    let Some(path) = &config.token_file else {
        return Ok(None);
    };
    let problem = |error: std::io::Error| {
        format!("the token file {} cannot be read: {error}", path.display())
    };
    let file = tokio::fs::File::open(path).await.map_err(problem)?;
    let mut text = String::new();
    file.take(TOKEN_BYTES_MAX)
        .read_to_string(&mut text)
        .await
        .map_err(problem)?;
    match text.trim() {
        "" => Err(format!("the token file {} is empty", path.display())),
        token => Ok(Some(token.to_owned())),
    }
}
