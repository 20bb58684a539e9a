//! A chat client that reads the streamed response and measures it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use isotherm_harness::MODEL;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio_util::bytes::Bytes;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

use crate::record::{Outcome, Usage};
use crate::workload::OutputLength;

/// Longest time of a request.
const REQUEST_MAX: Duration = Duration::from_secs(300);
/// Bytes of an error response that a message shows.
const SHOWN_BYTES_MAX: usize = 300;
/// Longest line of a stream.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// Sends requests to the Envoy of one region.
#[derive(Clone, Debug)]
pub struct Client {
    /// Index of the region.
    pub region: usize,
    /// Index of the region for each replica's address and each region's name.
    regions: Arc<HashMap<String, usize>>,
    http: reqwest::Client,
    url: String,
    /// Further headers of each request.
    headers: Vec<(&'static str, String)>,
}

/// A response with an error status.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    /// Delay of `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The beginning of the body.
    body: String,
}

impl Refusal {
    /// Whether the client is to try again later.
    #[must_use]
    pub fn is_for_lack_of_capacity(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.body)
    }
}

impl std::error::Error for Refusal {}

/// A complete response.
#[derive(Clone, Debug)]
pub struct ChatResponse {
    /// The text.
    pub text: String,
    /// Index of the region that served the request, when `x-isotherm-decision` names it.
    pub served: Option<usize>,
    /// Measurements.
    pub outcome: Outcome,
}

impl Client {
    /// A client for the chat completions at `base`, for example `http://127.0.0.1:10000`.
    ///
    /// # Errors
    /// When the system gives no resources for it.
    pub fn new(base: &str) -> anyhow::Result<Self> {
        Self::of_region(base, 0, Arc::default())
    }

    /// A client in one of several regions. `regions` has the region of each replica's address and of each region's name.
    ///
    /// # Errors
    /// When the system gives no resources for it.
    pub fn of_region(
        base: &str,
        region: usize,
        regions: Arc<HashMap<String, usize>>,
    ) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().timeout(REQUEST_MAX).no_proxy();
        Ok(Self {
            region,
            regions,
            http: http.build()?,
            url: format!("{base}/v1/chat/completions"),
            headers: Vec::new(),
        })
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Requests the message that follows `messages`.
    ///
    /// # Errors
    /// When there is no complete response.
    pub async fn send(
        &self,
        session: &str,
        messages: &[Value],
        length: OutputLength,
    ) -> anyhow::Result<ChatResponse> {
        let (max_tokens, ignore_eos) = match length {
            OutputLength::AtMost(tokens) => (tokens, false),
            OutputLength::Exactly(tokens) => (tokens, true),
        };
        let body = json!({
            "model": MODEL,
            "messages": messages,
            "stream": true,
            "stream_options": { "include_usage": true },
            "max_tokens": max_tokens,
            "ignore_eos": ignore_eos,
        });
        let start = Instant::now();
        let mut request = self.http.post(&self.url).header("x-session-id", session);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let response = request.json(&body).send().await?;
        let status = response.status();
        if !status.is_success() {
            let retry_after = response.headers().get("retry-after");
            let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
            let mut body = response.text().await.unwrap_or_default();
            body.truncate(body.floor_char_boundary(SHOWN_BYTES_MAX));
            let refusal = Refusal {
                status,
                retry_after: retry_after.map(Duration::from_secs),
                body,
            };
            return Err(refusal.into());
        }
        let decision = response.headers().get("x-isotherm-decision");
        let decision = decision.and_then(|value| value.to_str().ok());
        let decision = decision.unwrap_or_default();
        let (served, queued) = (self.serving_region(decision), queued(decision));
        let (text, usage, ttft) = read_stream(response.bytes_stream(), start).await?;
        Ok(ChatResponse {
            text,
            served,
            outcome: Outcome {
                ttft,
                queued,
                usage,
            },
        })
    }

    /// The region whose replica responded. Each service that decided adds an entry to `x-isotherm-decision`, and the last one
    /// knows the replica: it also decided about a request that another region sent back.
    #[must_use]
    pub fn serving_region(&self, decision: &str) -> Option<usize> {
        let last = decision.rsplit(", ").next()?;
        let name = field(last, "replica").or_else(|| field(last, "region"))?;
        self.regions.get(name).copied()
    }
}

/// The value of `name=` in a decision.
fn field<'a>(decision: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = decision.split(';');
    fields.find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
}

/// `queued_ms=12` in `replica=...;queued_ms=12;...`.
fn queued(decision: &str) -> Option<Duration> {
    let millis: f64 = field(decision, "queued_ms")?.parse().ok()?;
    Duration::try_from_secs_f64(millis / 1_000.0).ok()
}

/// Reads the events of a response: the text, the usage, and the time of the first piece of text since `start`.
async fn read_stream<E>(
    bytes: impl Stream<Item = Result<Bytes, E>>,
    start: Instant,
) -> anyhow::Result<(String, Usage, Duration)>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let bytes = Box::pin(bytes.map_err(io::Error::other));
    let codec = LinesCodec::new_with_max_length(LINE_BYTES_MAX);
    let mut lines = FramedRead::new(StreamReader::new(bytes), codec);
    let (mut text, mut usage, mut ttft, mut is_done) = (String::new(), None, None, false);
    while let Some(line) = lines.next().await {
        let line = line.context("cannot read the stream")?;
        let Some(data) = line.strip_prefix("data:").map(str::trim) else {
            continue;
        };
        if data == "[DONE]" {
            is_done = true;
            continue;
        }
        let event: Value = serde_json::from_str(data).context("an event is not of this API")?;
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            bail!("an error in the stream: {error}");
        }
        let piece = event.pointer("/choices/0/delta/content");
        text += piece.and_then(Value::as_str).unwrap_or_default();
        if ttft.is_none() && !text.is_empty() {
            ttft = Some(start.elapsed());
        }
        let tokens = |path: &str| event.pointer(path).and_then(Value::as_u64);
        if let Some(prompt) = tokens("/usage/prompt_tokens") {
            usage = Some(Usage {
                prompt,
                cached: tokens("/usage/prompt_tokens_details/cached_tokens").unwrap_or(0),
                output: tokens("/usage/completion_tokens").context("no completion tokens")?,
            });
        }
    }
    ensure!(is_done, "the stream ended before its end");
    let usage = usage.context("the stream has no usage")?;
    Ok((text, usage, ttft.unwrap_or_else(|| start.elapsed())))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#;

    /// Reads these bytes in chunks of `size`.
    async fn read(bytes: &str, size: usize) -> anyhow::Result<(String, Usage)> {
        let chunks = bytes.as_bytes().chunks(size).map(Bytes::copy_from_slice);
        let chunks = stream::iter(chunks.map(Ok::<_, io::Error>).collect::<Vec<_>>());
        let (text, usage, _) = read_stream(chunks, Instant::now()).await?;
        Ok((text, usage))
    }

    fn events(events: &[&str]) -> String {
        let events = events.iter();
        events.map(|event| format!("data: {event}\n\n")).collect()
    }

    #[tokio::test]
    async fn a_response_is_the_same_however_its_bytes_arrive() {
        let stream = format!(
            "data: {}\r\n\r\n: comment\ndata:{}\n\n{}",
            r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a "}}]}"#,
            events(&[
                r#"{"choices":[{"delta":{"content":"b"}}]}"#,
                USAGE,
                "[DONE]"
            ]),
        );
        let usage = Usage {
            prompt: 9,
            cached: 4,
            output: 2,
        };
        for size in 1..stream.len() {
            let response = read(&stream, size).await.unwrap();
            assert_eq!(response, ("a b".to_owned(), usage), "chunks of {size}");
        }
    }

    #[tokio::test]
    async fn a_broken_stream_is_a_failure() {
        for broken in [
            events(&[USAGE]),
            events(&["[DONE]"]),
            events(&[r#"{"error":{"message":"gone"}}"#, USAGE, "[DONE]"]),
            events(&["not json", USAGE, "[DONE]"]),
            "x".repeat(LINE_BYTES_MAX + 1) + &events(&[USAGE, "[DONE]"]),
        ] {
            assert!(read(&broken, 1_024).await.is_err());
        }
    }

    #[test]
    fn the_queue_time_is_read_from_the_decision() {
        assert_eq!(
            queued("replica=a;queued_ms=12;x=1"),
            Some(Duration::from_millis(12))
        );
        assert_eq!(queued("replica=a"), None);
        assert_eq!(queued("queued_ms=-1"), None);
    }

    #[test]
    fn the_last_decision_names_the_serving_region() {
        let regions = [("127.0.0.1:1", 0), ("127.0.0.1:2", 1), ("asia", 2)];
        let regions = regions.map(|(name, region)| (name.to_owned(), region));
        let regions = regions.into();
        let client = Client::of_region("http://x", 0, Arc::new(regions)).unwrap();
        for (decision, region) in [
            ("replica=127.0.0.1:1;queued_ms=0", Some(0)),
            ("region=eu;policy=a, replica=127.0.0.1:2;policy=a", Some(1)),
            ("region=eu;policy=a, replica=127.0.0.1:1;policy=a", Some(0)),
            ("region=asia;policy=a", Some(2)),
            ("replica=127.0.0.1:9", None),
        ] {
            assert_eq!(client.serving_region(decision), region, "{decision}");
        }
    }
}
