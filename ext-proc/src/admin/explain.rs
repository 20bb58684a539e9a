//! `POST /api/explain`: where a request would go now, and why.
//!
//! The request takes the same way as a real one: the filter's own code turns it into headers, and the code that answers
//! Envoy reads them. So what is explained is what happens. The service does not know how Envoy configures the filter:
//! the caller may pass it; otherwise the filter's defaults apply.
//!
//! A body may be tens of megabytes long. It is read away from the threads that answer Envoy, and few at a time.

use std::rc::Rc;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::response::Json;
use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue};
use isotherm_fingerprint::names;
use isotherm_router::{Candidate, Choice, Explanation, PeerCandidate};
use isotherm_wasm_filter_core::request::{PromptCoverage, RequestFlow};
use isotherm_wasm_filter_core::{HeaderEdit, PluginConfig, RequestConfig};
use prometheus_client::registry::Registry;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::error::ApiError;
use super::{AdminState, view};
use crate::frontends::request::{ListenerKind, RequestHead, RouteTarget};
use crate::metrics::Metrics;
use crate::pool::Pool;

/// Chunk size with which the filter's extractor is fed, in bytes: what Envoy reads from a socket at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// Explanations that run at the same time, in the whole process; bounds their memory.
const TURNS_MAX: usize = 2;

static TURNS: Semaphore = Semaphore::const_new(TURNS_MAX);

pub(super) async fn explain(
    State(admin): AdminState,
    request: Request,
) -> Result<Json<view::ExplainResponse>, ApiError> {
    // The semaphore is never closed.
    let _turn = TURNS.acquire().await;
    let body = Bytes::from_request(request, &()).await?;
    let filtered = tokio::task::spawn_blocking(move || {
        let Json(request) = Json::<view::ExplainRequest>::from_bytes(&body)?;
        filter(request)
    });
    let (headers, problem) = filtered.await.map_err(ApiError::broken)??;
    // A counter of its own: a question is no request.
    let metrics = Metrics::register(&mut Registry::default());
    let pairs = headers.headers.iter();
    let pairs = pairs.map(|header| (&*header.key, &*header.raw_value));
    let head = RequestHead::read(pairs, ListenerKind::Clients, &metrics);
    let found = view::RequestView {
        model: head.model.clone(),
        session: header(&headers, names::SESSION),
        tier: header(&headers, names::TIER),
        prompt_bytes: head.request.fingerprint.total_bytes(),
        prompt_tokens: head.request.prompt_tokens,
        blocks: head.request.fingerprint.blocks().len(),
        problem,
    };
    let table = admin.pool_registry.table();
    let peer_table = table.peer_table().map(Arc::as_ref);
    let explained = match RouteTarget::of(&head, &table) {
        RouteTarget::Pool(pool) => {
            in_pool(found, &pool, &pool.explain(&head.route_request(peer_table)))
        }
        RouteTarget::PassThrough(Some(cluster)) => without_pool(
            found,
            format!("passed on to cluster `{cluster}` without waiting"),
        ),
        RouteTarget::PassThrough(None) => {
            without_pool(found, "passed on as Envoy's routes say".into())
        }
        RouteTarget::ModelList | RouteTarget::Model(_) => {
            without_pool(found, "answered with the models".into())
        }
        RouteTarget::UnknownModel(model) => without_pool(
            found,
            format!("answered with 404: no pool serves `{model}`"),
        ),
        RouteTarget::MissingModel => {
            without_pool(found, "answered with 400: it names no model".into())
        }
    };
    Ok(Json(explained))
}

/// The headers that the filter would send on, and why it could not read the prompt or not all of it.
fn filter(request: view::ExplainRequest) -> Result<(HeaderMap, Option<String>), ApiError> {
    let config = configuration(request.filter.as_deref())?;
    let body = text(request.body)?;
    let method = if body.is_empty() { "GET" } else { "POST" };
    let mut headers = vec![
        (":method".to_owned(), method.as_bytes().to_vec()),
        (":path".to_owned(), request.path.into_bytes()),
    ];
    let given = request.headers.into_iter();
    headers.extend(given.map(|(name, value)| (name.to_ascii_lowercase(), value.into_bytes())));
    let strip = isotherm_wasm_filter_core::request::strip(&config, &headers);
    apply(&mut headers, strip);
    let mut flow = RequestFlow::new(config, &headers, !body.is_empty());
    for piece in body.as_bytes().chunks(PIECE_BYTES) {
        if flow.feed(piece) {
            break;
        }
    }
    let release = flow.release(|| None);
    apply(&mut headers, release.edits);
    let problem = match release.coverage {
        PromptCoverage::Complete | PromptCoverage::Forwarded => None,
        PromptCoverage::Partial => Some("read only up to the filter's buffer limit".to_owned()),
        PromptCoverage::Skipped(reason) => Some(reason.as_str().to_owned()),
    };
    let headers = headers.into_iter().map(|(key, value)| HeaderValue {
        key,
        raw_value: value,
        ..HeaderValue::default()
    });
    let headers = HeaderMap {
        headers: headers.collect(),
    };
    Ok((headers, problem))
}

fn configuration(filter: Option<&RawValue>) -> Result<Rc<RequestConfig>, ApiError> {
    let Some(filter) = filter else {
        return Ok(Rc::new(RequestConfig::default()));
    };
    match PluginConfig::parse(filter.get().as_bytes()) {
        Ok(PluginConfig::Request(config)) => Ok(config),
        Ok(PluginConfig::Response(_)) => Err(ApiError::bad_request(
            "`filter` is the configuration of the response filter; give that of the request filter",
        )),
        Err(error) => Err(ApiError::bad_request(format!("`filter`: {error}"))),
    }
}

/// The body as a client would have sent it: what a JSON string says, or the value itself, exactly as it is written.
fn text(body: Option<Box<RawValue>>) -> Result<String, ApiError> {
    match body {
        None => Ok(String::new()),
        Some(text) if text.get().starts_with('"') => serde_json::from_str(text.get())
            .map_err(|error| ApiError::bad_request(format!("`body`: {error}"))),
        Some(value) => Ok(String::from(Box::<str>::from(value))),
    }
}

fn apply(headers: &mut Vec<(String, Vec<u8>)>, edits: Vec<HeaderEdit>) {
    for edit in edits {
        match edit {
            HeaderEdit::Remove(name) => headers.retain(|(known, _)| *known != name),
            HeaderEdit::Set(name, value) => {
                headers.retain(|(known, _)| known != name);
                headers.push((name.to_owned(), value));
            }
        }
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let header = headers.headers.iter().find(|header| header.key == name)?;
    Some(String::from_utf8_lossy(&header.raw_value).into_owned())
}

fn without_pool(request: view::RequestView, what: String) -> view::ExplainResponse {
    view::ExplainResponse {
        request,
        outcome: view::OutcomeView::NoPool { what },
        pool: None,
        policy: None,
        candidates: Vec::new(),
        regions: Vec::new(),
    }
}

fn in_pool(
    request: view::RequestView,
    pool: &Pool,
    explanation: &Explanation,
) -> view::ExplainResponse {
    let name = |id| {
        let mut candidates = explanation.candidates.iter();
        let found = candidates.find(|candidate| candidate.replica == id);
        found.map(|candidate| candidate.name.clone())
    };
    let region = |id| {
        let mut peers = explanation.peers.iter();
        let found = peers.find(|candidate| candidate.peer == id);
        found.map(|candidate| candidate.name.clone())
    };
    let outcome = match explanation.choice {
        Choice::Dispatch { replica, reason } => view::OutcomeView::Dispatch {
            replica: name(replica).unwrap_or_default(),
            reason: reason.as_str().to_owned(),
        },
        Choice::Forward { peer, reason } => view::OutcomeView::Forward {
            region: region(peer).unwrap_or_default(),
            reason: reason.as_str().to_owned(),
        },
        Choice::Wait { replica, ahead } => view::OutcomeView::Wait {
            replica: replica.and_then(name),
            ahead,
        },
        Choice::Reject { reason } => view::OutcomeView::Reject {
            reason: reason.as_str().to_owned(),
        },
    };
    let total = request.prompt_bytes;
    let mut candidates: Vec<_> = explanation
        .candidates
        .iter()
        .map(|candidate| view_of(candidate, total))
        .collect();
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    view::ExplainResponse {
        request,
        outcome,
        pool: Some(pool.name().to_string()),
        policy: Some(pool.config().borrow().router.policy.to_string()),
        candidates,
        regions: explanation
            .peers
            .iter()
            .map(|candidate| region_of(candidate, total))
            .collect(),
    }
}

fn region_of(candidate: &PeerCandidate, total_bytes: u32) -> view::RegionCandidateView {
    let ttft = candidate.estimated_ttft;
    view::RegionCandidateView {
        region: candidate.name.clone(),
        matched_bytes: candidate.matched_bytes,
        matched_share: share(candidate.matched_bytes, total_bytes),
        estimated_ttft_ms: ttft.map(|ttft| u64::try_from(ttft.as_millis()).unwrap_or(u64::MAX)),
        availability: candidate.availability.as_str().to_owned(),
    }
}

fn share(matched_bytes: u32, total_bytes: u32) -> f64 {
    f64::from(matched_bytes) / f64::from(total_bytes.max(1))
}

fn view_of(candidate: &Candidate, total_bytes: u32) -> view::CandidateView {
    view::CandidateView {
        replica: candidate.name.clone(),
        // JSON knows no infinity.
        score: candidate.score.clamp(f64::MIN, f64::MAX),
        matched_bytes: candidate.matched_bytes,
        matched_share: share(candidate.matched_bytes, total_bytes),
        outstanding: candidate.outstanding,
        pending: candidate.pending,
        availability: candidate.availability.as_str().to_owned(),
    }
}
