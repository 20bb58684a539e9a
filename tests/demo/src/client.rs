//! A chat client that reads the streamed response and measures it.

use std::fmt;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::sse::EventParser;
use crate::workload::OutputLength;

/// No request of a demo may take longer.
const REQUEST_MAX: Duration = Duration::from_secs(300);
/// As much of an error's body as is worth showing.
const SHOWN_BYTES_MAX: usize = 300;

/// Sends requests to one URL.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    model: String,
}

/// A complete response.
#[derive(Clone, Debug, Default)]
pub struct ChatResponse {
    /// The text.
    pub text: String,
    /// From the request to the first piece of text.
    pub ttft: Duration,
    /// From the request to the end of the answer.
    pub e2e: Duration,
    /// Time in the service's queue, from `x-isotherm-decision`.
    pub queued: Option<Duration>,
    /// `x-isotherm-decision`, where the request went and why.
    pub decision: Option<String>,
    /// Token counts of the engine.
    pub usage: Usage,
}

/// Token counts of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt.
    pub prompt: u64,
    /// Of the prompt, found in the cache.
    pub cached: u64,
    /// Of the answer.
    pub output: u64,
}

/// Why a request failed.
#[derive(Debug)]
pub enum RequestError {
    /// No answer, or it broke off.
    Transport(reqwest::Error),
    /// An answer that is an error.
    Status(StatusCode, String),
    /// A stream that is none, or an error in the middle of it.
    Stream(String),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => {
                write!(f, "{error}")?;
                // The library names the URL; why is in the sources.
                let mut source = std::error::Error::source(error);
                while let Some(cause) = source {
                    write!(f, ": {cause}")?;
                    source = cause.source();
                }
                Ok(())
            }
            Self::Status(status, body) => write!(f, "{status}: {body}"),
            Self::Stream(problem) => f.write_str(problem),
        }
    }
}

impl Client {
    /// A client for the chat completions at `base`, for example `http://127.0.0.1:10000`.
    ///
    /// # Errors
    /// When the system gives no resources for it.
    pub fn new(base: &str, model: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(REQUEST_MAX)
            .no_proxy()
            .build()?;
        Ok(Self {
            http,
            url: format!("{base}/v1/chat/completions"),
            model: model.into(),
        })
    }

    /// Asks for the next message after `messages`.
    ///
    /// # Errors
    /// When there is no complete answer.
    pub async fn send(
        &self,
        session: &str,
        messages: &[Value],
        answer: OutputLength,
    ) -> Result<ChatResponse, RequestError> {
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        if let Some(members) = body.as_object_mut() {
            match answer {
                OutputLength::AtMost(tokens) => members.insert("max_tokens".into(), tokens.into()),
                OutputLength::Exactly(tokens) => {
                    members.insert("ignore_eos".into(), true.into());
                    members.insert("max_tokens".into(), tokens.into())
                }
            };
        }
        let start = Instant::now();
        let request = self
            .http
            .post(&self.url)
            .header("x-session-id", session)
            .json(&body);
        let mut response = request.send().await.map_err(RequestError::Transport)?;
        let status = response.status();
        if !status.is_success() {
            let mut body = response.text().await.unwrap_or_default();
            body.truncate(body.floor_char_boundary(SHOWN_BYTES_MAX));
            return Err(RequestError::Status(status, body));
        }
        let decision = response
            .headers()
            .get("x-isotherm-decision")
            .and_then(|value| Some(value.to_str().ok()?.to_owned()));

        let mut reader = ResponseParser::default();
        let mut events = EventParser::default();
        let mut ttft = None;
        while let Some(chunk) = response.chunk().await.map_err(RequestError::Transport)? {
            let fed = events.feed(&chunk, |data| reader.event(data));
            fed.map_err(|_| RequestError::Stream("a line of the stream does not end".into()))?;
            if ttft.is_none() && !reader.text.is_empty() {
                ttft = Some(start.elapsed());
            }
        }
        let e2e = start.elapsed();
        let (text, usage) = reader.finish()?;
        Ok(ChatResponse {
            text,
            ttft: ttft.unwrap_or(e2e),
            e2e,
            queued: decision.as_deref().and_then(queued),
            decision,
            usage,
        })
    }
}

/// The value of `name=` in a decision.
#[must_use]
pub fn decision_field<'a>(decision: &'a str, name: &str) -> Option<&'a str> {
    decision
        .split(';')
        .find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
}

/// `queued_ms=12` in `replica=...;queued_ms=12;...`.
fn queued(decision: &str) -> Option<Duration> {
    let millis = decision_field(decision, "queued_ms")?;
    Duration::try_from_secs_f64(millis.parse::<f64>().ok()? / 1_000.0).ok()
}

/// Puts an answer together from its events.
#[derive(Debug, Default)]
struct ResponseParser {
    text: String,
    usage: Option<Usage>,
    done: bool,
    problem: Option<String>,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<RawUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
}

#[derive(Default, Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Deserialize)]
struct RawUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: u64,
}

impl ResponseParser {
    fn event(&mut self, data: &[u8]) {
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let chunk: Chunk = match serde_json::from_slice(data) {
            Ok(chunk) => chunk,
            Err(error) => {
                self.problem
                    .get_or_insert_with(|| format!("an event is not of this API: {error}"));
                return;
            }
        };
        if let Some(error) = chunk.error {
            self.problem
                .get_or_insert_with(|| format!("an error in the stream: {error}"));
        }
        for choice in chunk.choices {
            self.text
                .push_str(choice.delta.content.as_deref().unwrap_or_default());
        }
        if let Some(usage) = chunk.usage {
            self.usage = Some(Usage {
                prompt: usage.prompt_tokens,
                cached: usage
                    .prompt_tokens_details
                    .map_or(0, |details| details.cached_tokens),
                output: usage.completion_tokens,
            });
        }
    }

    fn finish(self) -> Result<(String, Usage), RequestError> {
        if let Some(problem) = self.problem {
            return Err(RequestError::Stream(problem));
        }
        if !self.done {
            return Err(RequestError::Stream(
                "the stream ended before its end".into(),
            ));
        }
        let usage = self
            .usage
            .ok_or_else(|| RequestError::Stream("the stream has no usage".into()))?;
        Ok((self.text, usage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(events: &[&str]) -> Result<(String, Usage), RequestError> {
        let mut reader = ResponseParser::default();
        for event in events {
            reader.event(event.as_bytes());
        }
        reader.finish()
    }

    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,
        "prompt_tokens_details":{"cached_tokens":4}}}"#;

    #[test]
    fn an_answer_is_its_pieces_and_its_usage() {
        let pieces = [
            r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a "}}]}"#,
        ];
        let (text, usage) = read(&[
            pieces[0],
            pieces[1],
            r#"{"choices":[{"delta":{"content":"b"}}]}"#,
            USAGE,
            "[DONE]",
        ])
        .unwrap();
        assert_eq!(text, "a b");
        assert_eq!(
            usage,
            Usage {
                prompt: 9,
                cached: 4,
                output: 2
            }
        );
    }

    #[test]
    fn an_answer_that_breaks_off_is_a_failure() {
        assert!(read(&[USAGE]).is_err());
        assert!(read(&["[DONE]"]).is_err());
        assert!(read(&[r#"{"error":{"message":"gone"}}"#, USAGE, "[DONE]"]).is_err());
        assert!(read(&["not json", USAGE, "[DONE]"]).is_err());
    }

    #[test]
    fn the_wait_is_read_from_the_decision() {
        assert_eq!(
            queued("replica=a;queued_ms=12;x=1"),
            Some(Duration::from_millis(12))
        );
        assert_eq!(queued("replica=a"), None);
        assert_eq!(queued("queued_ms=-1"), None);
    }
}
