//! Counts inside an interpreter: the filter as Envoy loads it, and the core as a module.

use std::path::Path;

use anyhow::{Context as _, ensure};
use isotherm_bench_core::body;
use isotherm_bench_core::units::UNITS;
use isotherm_decision_proto::{Action, ClientMessage, DecisionResponse, Route, ServerMessage};
use isotherm_wasm_host::{Filter, Headers};
use prost::Message as _;

use crate::baseline::Counts;

/// Size of the pieces in which Envoy passes a body.
const PIECE_BYTES: usize = 16 * 1024;
const REQUEST: &str = r#"{
    "role": "request",
    "pools": [{ "models": ["llama-3.1-8b"], "cluster": "llama" }],
    "default_cluster": "llama",
    "session": [{ "header": "x-session-id" }, { "body": "session_id" }, { "body": "user" }, { "cookie": "session" }],
    "tier": [{ "header": "x-tier" }, { "body": "metadata.tier" }]
}"#;
const RESPONSE: &str = r#"{ "role": "response" }"#;
const JSON: (&str, &str) = ("content-type", "application/json");
const CHUNK: &[u8] = b"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
    \"model\":\"llama-3.1-8b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";
const LAST: &[u8] =
    b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":10,\
    \"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\ndata: [DONE]\n\n";

/// Counts every unit.
///
/// # Errors
/// When a module is missing or traps.
pub(crate) fn count(filter: &Path, bench_filter: &Path) -> anyhow::Result<Counts> {
    let mut counts = Counts::new();
    for kilobytes in [4, 64, 400] {
        let name = format!("filter-request-{kilobytes}-kb");
        counts.insert(name, request(filter, kilobytes << 10)?);
    }
    counts.insert(
        "filter-decision-stream-4-kb".to_owned(),
        on_the_decision_stream(filter, 4 << 10)?,
    );
    for chunks in [1, 1_000] {
        let name = format!("filter-answer-{chunks}-chunks");
        counts.insert(name, answer(filter, chunks)?);
    }
    for unit in UNITS {
        let mut module = Filter::counting(bench_filter, &format!("count {}", unit.name))?;
        module.executed()?;
        module.tick()?;
        counts.insert(unit.name.to_owned(), module.executed()?);
    }
    Ok(counts)
}

/// Counts a chat request of this length, from its headers until the filter continues it.
fn request(module: &Path, bytes: usize) -> anyhow::Result<u64> {
    let mut filter = Filter::counting(module, REQUEST)?;
    filter.executed()?;
    send(&mut filter, bytes)?;
    filter.executed()
}

/// Counts a chat request on the decision stream: its decision, its response, and its end, which the timer sends.
fn on_the_decision_stream(module: &Path, bytes: usize) -> anyhow::Result<u64> {
    let configuration =
        REQUEST.replacen('{', r#"{ "decision_stream": { "cluster": "isotherm" },"#, 1);
    let mut filter = Filter::counting(module, &configuration)?;
    filter.tick()?;
    filter.stream_message(0, &[])?;
    filter.executed()?;
    send(&mut filter, bytes)?;
    let asked = filter
        .host()
        .sent
        .first()
        .context("the filter sends no request")?;
    let asked = ClientMessage::decode(&**asked)?;
    let answers = asked.requests.iter().map(|ask| DecisionResponse {
        request_id: ask.request_id,
        action: Some(Action::Route(Route {
            destination: "10.0.0.1:8000,10.0.0.2:8000,10.0.0.3:8000".to_owned(),
            ..Route::default()
        })),
    });
    let message = ServerMessage {
        responses: answers.collect(),
        go_away: None,
    };
    filter.stream_message(0, &message.encode_to_vec())?;
    ensure!(
        filter.host().resumed == 1,
        "the filter does not continue the request"
    );
    stream(&mut filter, 1)?;
    filter.over()?;
    filter.tick()?;
    ensure!(
        filter.host().sent.len() == 2,
        "the filter does not report the end"
    );
    filter.executed()
}

fn send(filter: &mut Filter, bytes: usize) -> anyhow::Result<()> {
    let body = body::chat(bytes);
    filter.request_headers(headers(&[(":path", "/v1/chat/completions"), JSON]), false)?;
    for piece in body.as_bytes().chunks(PIECE_BYTES) {
        filter.request_body(piece, false)?;
    }
    filter.request_body(b"", true)?;
    Ok(())
}

/// Counts a streamed response of this many chunks, with its headers and its end.
fn answer(module: &Path, chunks: u32) -> anyhow::Result<u64> {
    let mut filter = Filter::counting(module, RESPONSE)?;
    filter.executed()?;
    filter.request_headers(headers(&[(":path", "/v1/chat/completions"), JSON]), false)?;
    filter.request_body(b"{}", true)?;
    stream(&mut filter, chunks)?;
    filter.executed()
}

fn stream(filter: &mut Filter, chunks: u32) -> anyhow::Result<()> {
    let status = headers(&[(":status", "200"), ("content-type", "text/event-stream")]);
    filter.response_headers(status, false)?;
    for _ in 0..chunks {
        filter.response_body(CHUNK, false)?;
    }
    filter.response_body(LAST, false)?;
    filter.response_body(b"", true)?;
    Ok(())
}

fn headers(pairs: &[(&str, &str)]) -> Headers {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
        .collect()
}
