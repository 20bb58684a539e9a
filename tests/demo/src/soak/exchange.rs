//! One request and its response, as a strict client reads it.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream;
use reqwest::{Body, RequestBuilder, Response};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::record::{PromptTokens, RequestEnd};

/// Longest time of a request; no fault lasts as long.
pub(super) const REQUEST_MAX: Duration = Duration::from_secs(120);
/// The header that an engine returns.
pub(super) const CLIENT_REQUEST_ID: &str = "x-client-request-id";
/// Characters of a body without a code that stand for its reason.
const REASON_CHARS_MAX: usize = 100;
/// Bytes of the response to bytes that are not HTTP.
const RAW_BYTES_MAX: u64 = 4_096;
/// Time between two bytes of a slow body.
const BYTE_INTERVAL: Duration = Duration::from_millis(3);

/// Sends a request with an id. Returns how it ended, and the text of the answer.
pub(super) async fn exchange(request: RequestBuilder, id: &str) -> (RequestEnd, String) {
    let request = request.header(CLIENT_REQUEST_ID, id).timeout(REQUEST_MAX);
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => return (broken(&error, false), String::new()),
    };
    let status = response.status().as_u16();
    let echoed = echoed_id(&response);
    let body = match response.bytes().await {
        Ok(body) => String::from_utf8_lossy(&body).into_owned(),
        Err(error) => return (broken(&error, true), String::new()),
    };
    if let Some(other) = echoed.filter(|echoed| echoed != id) {
        let ending = RequestEnd::Wrong(format!("the response belongs to {other}"));
        return (ending, String::new());
    }
    if status != 200 {
        let reason = reason(&body);
        return (RequestEnd::Refused { status, reason }, String::new());
    }
    match body.trim_start().starts_with("data:") {
        true => read_stream(&body),
        false => read_whole(&body),
    }
}

/// Sends bytes that are not HTTP.
pub(super) async fn exchange_bytes(address: SocketAddr, bytes: &[u8]) -> RequestEnd {
    let read = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        let mut response = Vec::new();
        stream
            .take(RAW_BYTES_MAX)
            .read_to_end(&mut response)
            .await?;
        std::io::Result::Ok(String::from_utf8_lossy(&response).into_owned())
    };
    match tokio::time::timeout(REQUEST_MAX, read).await {
        Err(_) => RequestEnd::Unanswered,
        Ok(Err(error)) => RequestEnd::Broken {
            after_first_byte: false,
            error: error.to_string(),
        },
        Ok(Ok(response)) => match status_of(&response) {
            Some(status) => RequestEnd::Refused {
                status,
                reason: String::new(),
            },
            None => RequestEnd::Broken {
                after_first_byte: false,
                error: "closed".into(),
            },
        },
    }
}

/// A body whose bytes come one by one.
pub(super) fn slow_body(text: String) -> Body {
    let bytes = text.into_bytes().into_iter();
    Body::wrap_stream(stream::unfold(bytes, |mut bytes| async {
        let byte = bytes.next()?;
        tokio::time::sleep(BYTE_INTERVAL).await;
        Some((Ok::<_, std::io::Error>(vec![byte]), bytes))
    }))
}

fn status_of(response: &str) -> Option<u16> {
    let rest = response.strip_prefix("HTTP/1.1 ")?;
    rest.split(' ').next()?.trim().parse().ok()
}

fn echoed_id(response: &Response) -> Option<String> {
    let id = response.headers().get(CLIENT_REQUEST_ID)?;
    id.to_str().ok().map(str::to_owned)
}

fn broken(error: &reqwest::Error, after_first_byte: bool) -> RequestEnd {
    if error.is_timeout() {
        return RequestEnd::Unanswered;
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        text = deeper.to_string();
        cause = deeper.source();
    }
    RequestEnd::Broken {
        after_first_byte,
        error: text,
    }
}

/// The code in an error's body, or the first words of the body.
fn reason(body: &str) -> String {
    let parsed: Option<Value> = serde_json::from_str(body).ok();
    let error = parsed.as_ref().and_then(|body| body.get("error"));
    match error.and_then(|error| error.get("code")) {
        Some(Value::String(code)) => code.clone(),
        Some(code) if !code.is_null() => format!("engine: {code}"),
        _ => body.trim().chars().take(REASON_CHARS_MAX).collect(),
    }
}

fn tokens(usage: &Value) -> Option<PromptTokens> {
    Some(PromptTokens {
        prompt: usage.get("prompt_tokens")?.as_u64()?,
        cached: usage
            .pointer("/prompt_tokens_details/cached_tokens")
            .and_then(Value::as_u64)
            .unwrap_or(0),
    })
}

fn read_whole(body: &str) -> (RequestEnd, String) {
    let wrong = |what: &str| (RequestEnd::Wrong(what.into()), String::new());
    let Ok(body) = serde_json::from_str::<Value>(body) else {
        return wrong("the answer is not one JSON value");
    };
    if body.get("choices").and_then(Value::as_array).map(Vec::len) != Some(1) {
        return wrong("the answer has not one choice");
    }
    let Some(tokens) = body.get("usage").and_then(tokens) else {
        return wrong("the answer has no usage");
    };
    let text = body.pointer("/choices/0/message/content");
    let text = text.and_then(Value::as_str).unwrap_or_default();
    (RequestEnd::Answered(tokens), text.to_owned())
}

fn read_stream(body: &str) -> (RequestEnd, String) {
    let wrong = |what: &str| (RequestEnd::Wrong(what.into()), String::new());
    let (mut text, mut usages, mut ends, mut ids) = (String::new(), Vec::new(), 0, Vec::new());
    for data in body.lines().filter_map(|line| line.strip_prefix("data:")) {
        if data.trim() == "[DONE]" {
            ends += 1;
            continue;
        }
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            return wrong("an event is not JSON");
        };
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            let reason = reason(&event.to_string());
            let reason = format!("in the stream: {reason} {error}");
            let reason = reason.chars().take(REASON_CHARS_MAX).collect();
            return (
                RequestEnd::Refused {
                    status: 200,
                    reason,
                },
                String::new(),
            );
        }
        let piece = event.pointer("/choices/0/delta/content");
        text += piece.and_then(Value::as_str).unwrap_or_default();
        usages.extend(event.get("usage").and_then(tokens));
        ids.extend(event.get("id").map(Value::to_string));
    }
    ids.dedup();
    match (usages.as_slice(), ends, ids.len()) {
        ([tokens], 1, 1) => (RequestEnd::Answered(*tokens), text),
        ([], 0, _) => wrong("the stream ends without an error before its end"),
        (usages, ends, ids) => {
            let usages = usages.len();
            wrong(&format!(
                "a stream of {ends} ends, {usages} usages, {ids} ids"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"data: {"id":"a","choices":[{"delta":{"content":"x "}}]}"#;
    const USAGE: &str = r#"data: {"id":"a","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#;

    #[test]
    fn a_stream_is_an_answer_when_it_ends_once() {
        let stream = format!("{EVENT}\n\n{EVENT}\n\n{USAGE}\n\ndata: [DONE]\n\n");
        let tokens = PromptTokens {
            prompt: 9,
            cached: 4,
        };
        let expected = (RequestEnd::Answered(tokens), "x x ".to_owned());
        assert_eq!(read_stream(&stream), expected);
        for wrong in [
            format!("{stream}{stream}"),
            format!("{EVENT}\n\n"),
            format!("{EVENT}\n\ndata: [DONE]\n\n"),
            stream.replacen("\"a\"", "\"b\"", 1),
        ] {
            let (ending, _) = read_stream(&wrong);
            assert!(matches!(ending, RequestEnd::Wrong(_)), "{wrong}");
        }
    }

    #[test]
    fn the_reason_of_an_error_is_its_code_or_its_text() {
        assert_eq!(reason(r#"{"error":{"code":"queue_full"}}"#), "queue_full");
        assert_eq!(reason(r#"{"error":{"code":503}}"#), "engine: 503");
        assert_eq!(reason("no healthy upstream"), "no healthy upstream");
    }
}
