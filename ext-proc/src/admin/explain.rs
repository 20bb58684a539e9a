//! `POST /api/explain`: the decision on a request now, and the reason.
//!
//! A request takes the path of a real one: the filter's own code turns it into headers, and the frontends' code reads
//! those. The service does not know how Envoy configures the filter: the client may send that configuration, or else the
//! filter's defaults apply.
//!
//! A body may have tens of megabytes. The service receives a few bodies at once, each within a bounded time, and reads them
//! outside the threads that answer Envoy, two at a time. A slow upload keeps no complete one waiting.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::response::Json;
use isotherm_fingerprint::{names, paths};
use isotherm_router::{Candidate, Choice, Explanation, PeerCandidate};
use isotherm_wasm_filter_core::request::{PromptCoverage, RequestFlow, strip};
use isotherm_wasm_filter_core::{HeaderEdit, PluginConfig, RequestConfig};
use prometheus_client::registry::Registry;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::error::ApiError;
use super::pools::learned_view;
use super::{AdminState, view};
use crate::clock::millis;
use crate::decision_log::unix_ms;
use crate::frontends::request::{ListenerKind, RequestHead, RouteTarget};
use crate::metrics::Metrics;
use crate::pool::Pool;

/// The size of the chunks in which the filter gets a body, in bytes: as in Envoy, which reads so much from a socket.
const CHUNK_BYTES: usize = 16 * 1024;

/// The most requests that are explained at once, in the whole process.
const REQUESTS_MAX: usize = 2;
/// The most bodies that are received or wait at once. It bounds their memory.
const BODIES_MAX: usize = 16;
/// The longest time for a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

static BODIES: Semaphore = Semaphore::const_new(BODIES_MAX);
static PERMITS: Semaphore = Semaphore::const_new(REQUESTS_MAX);

type Headers = Vec<(String, Vec<u8>)>;

/// Rejects a body that is not sent as JSON. A browser sends such a one for any page; JSON needs a permission that this interface never
/// gives.
fn check_type(request: &Request) -> Result<(), ApiError> {
    let given = request.headers().get(CONTENT_TYPE);
    let given = given.and_then(|given| given.to_str().ok());
    let essence = given.and_then(|given| given.split(';').next());
    if essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let message = "send the request with the header `content-type: application/json`";
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "not_json",
        message,
    ))
}

pub(super) async fn explain(
    State(admin): AdminState,
    request: Request,
) -> Result<Json<view::ExplainResponse>, ApiError> {
    check_type(&request)?;
    // The semaphores are never closed.
    let _body = BODIES.acquire().await;
    let body = timeout(BODY_TIME_MAX, Bytes::from_request(request, &())).await;
    let body = body.map_err(|_| ApiError::slow_body(BODY_TIME_MAX))??;
    let _permit = PERMITS.acquire().await;
    let filtered = tokio::task::spawn_blocking(move || {
        let Json(request) = Json::<view::ExplainRequest>::from_bytes(&body)?;
        filter(request)
    });
    let (headers, problem) = filtered.await.map_err(ApiError::internal)??;
    // Metrics of its own: an explanation counts no request.
    let metrics = Metrics::register(&mut Registry::default());
    let pairs = headers.iter().map(|(name, value)| (&**name, &**value));
    let mut head = RequestHead::read(pairs, ListenerKind::Clients, &metrics);
    head.is_filtered = true;
    let request = view::RequestView {
        model: head.model.clone(),
        session: header(&headers, names::SESSION),
        tenant: header(&headers, names::TENANT),
        tier: header(&headers, names::TIER),
        ttft_ms: head.request.ttft_slo.map(millis),
        deadline_ms: head.request.time_left.map(millis),
        prompt_bytes: head.request.fingerprint.total_bytes(),
        prompt_tokens: head.request.prompt_tokens,
        blocks: head.request.fingerprint.blocks().len(),
        problem,
    };
    let table = admin.pool_registry.table();
    let peer_table = table.peer_table().map(Arc::as_ref);
    let target = RouteTarget::of(&head, &table);
    if let RouteTarget::Pool(pool) = &target {
        let explanation = pool.explain(&head.route_request(pool, peer_table));
        return Ok(Json(in_pool(request, pool, &explanation)));
    }
    let path = header(&headers, ":path").unwrap_or_default();
    let what = without_pool(&target, &path);
    Ok(Json(view::ExplainResponse {
        request,
        outcome: view::OutcomeView::NoPool { what },
        pool: None,
        policy: None,
        learned: None,
        candidates: Vec::new(),
        regions: Vec::new(),
    }))
}

/// Describes the reply to a request without a pool.
fn without_pool(target: &RouteTarget, path: &str) -> String {
    match target {
        RouteTarget::Pool(_) | RouteTarget::PassThrough(None) => {
            "passed on by Envoy's routes".into()
        }
        RouteTarget::PassThrough(Some(cluster)) => {
            format!("passed on to cluster `{cluster}` at once")
        }
        RouteTarget::Holder(pool, replica) => {
            let cluster = pool.cluster();
            format!("passed on to {replica} of cluster `{cluster}` at once: it has the response")
        }
        RouteTarget::OtherApplication => {
            "passed on untouched by Envoy's routes, as a request of another application".into()
        }
        RouteTarget::ModelList | RouteTarget::Model(..) => "answered with the models".into(),
        RouteTarget::Health(_) => "answered with the health of the service".into(),
        RouteTarget::MethodNotAllowed(methods) => {
            format!("answered with 405: the path takes {methods}")
        }
        RouteTarget::UnknownModel(model) => format!("answered with 404: no pool serves `{model}`"),
        RouteTarget::UnknownPath => format!("answered with 404: {}", unknown_path(path)),
        RouteTarget::MissingModel => "answered with 400: the request names no model".into(),
        RouteTarget::UnreadModel(reason) => {
            let (status, message) = (reason.status(), reason.message());
            format!("answered with {status}: {message}")
        }
    }
}

/// Says what an operator can do about a path that clients may not use.
fn unknown_path(path: &str) -> String {
    let path = path.split('?').next().unwrap_or(path);
    let is_batch = ["/v1/files", "/v1/batches"]
        .iter()
        .any(|own| path == *own || path.starts_with(&format!("{own}/")));
    match is_batch {
        true => format!("`isotherm batch serve` has `{path}`, at an address of its own"),
        false => format!(
            "clients may not use `{path}`; to publish it, add it to `paths` of the service and of the filter, and to the routes of \
             Envoy"
        ),
    }
}

/// Reads a body, and runs the filter on its request.
pub(super) fn read_body(body: &[u8]) {
    if let Ok(Json(request)) = Json::<view::ExplainRequest>::from_bytes(body) {
        let _ = filter(request);
    }
}

/// Runs the filter on a request. Returns the headers that it sends on, and why it could not read the whole prompt.
fn filter(request: view::ExplainRequest) -> Result<(Headers, Option<String>), ApiError> {
    let config = parse_config(request.filter.as_deref())?;
    let body = decode_body(request.body)?;
    let method = match paths::allows_method(&request.path, "POST") {
        true if !body.is_empty() || paths::allowed_methods(&request.path).is_some() => "POST",
        _ => "GET",
    };
    let mut headers = vec![
        (":method".to_owned(), method.as_bytes().to_vec()),
        (":path".to_owned(), request.path.into_bytes()),
    ];
    let given = request.headers.into_iter();
    headers.extend(given.map(|(name, value)| (name.to_ascii_lowercase(), value.into_bytes())));
    let edits = strip(&config, &headers);
    // The filter reads the headers of the client as they came.
    let mut flow = match request.tenant {
        None => RequestFlow::new(config, &headers, !body.is_empty()),
        Some(tenant) => {
            let tenant = config.tenant_value(tenant.as_bytes());
            RequestFlow::of_tenant(config, &headers, !body.is_empty(), tenant)
        }
    };
    apply(&mut headers, edits);
    let mut chunks = body.as_bytes().chunks(CHUNK_BYTES);
    if !chunks.any(|chunk| flow.feed(chunk)) {
        flow.end_body();
    }
    let release = flow.release(unix_ms, || None);
    apply(&mut headers, release.edits);
    let problem = match release.coverage {
        PromptCoverage::Complete | PromptCoverage::Forwarded => None,
        PromptCoverage::Partial => Some("read only up to the filter's buffer limit".to_owned()),
        PromptCoverage::Skipped(reason) => Some(reason.as_str().to_owned()),
    };
    Ok((headers, problem))
}

fn parse_config(filter: Option<&RawValue>) -> Result<Arc<RequestConfig>, ApiError> {
    let Some(filter) = filter else {
        return Ok(Arc::new(RequestConfig::default()));
    };
    match PluginConfig::parse(filter.get().as_bytes()) {
        Ok(PluginConfig::Request(config)) => Ok(config),
        Ok(PluginConfig::Response(_) | PluginConfig::Gate) => Err(ApiError::bad_request(
            "`filter` is the configuration of the response filter; send that of the request filter",
        )),
        Err(error) => Err(ApiError::bad_request(format!("`filter`: {error}"))),
    }
}

/// Returns the body as a client sends it: the contents of a JSON string, or any other value exactly as written.
fn decode_body(body: Option<Box<RawValue>>) -> Result<String, ApiError> {
    match body {
        None => Ok(String::new()),
        Some(text) if text.get().starts_with('"') => serde_json::from_str(text.get())
            .map_err(|error| ApiError::bad_request(format!("`body`: {error}"))),
        Some(value) => Ok(String::from(Box::<str>::from(value))),
    }
}

fn apply(headers: &mut Headers, edits: Vec<HeaderEdit>) {
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

fn header(headers: &Headers, name: &str) -> Option<String> {
    let (_, value) = headers.iter().find(|(known, _)| known == name)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

fn in_pool(
    request: view::RequestView,
    pool: &Pool,
    explanation: &Explanation,
) -> view::ExplainResponse {
    let Explanation {
        choice,
        candidates,
        peers,
        ..
    } = explanation;
    let replica_name = |id| {
        let found = candidates.iter().find(|candidate| candidate.replica == id);
        found.map(|candidate| candidate.name.clone())
    };
    let outcome = match *choice {
        Choice::Dispatch {
            replica,
            prefiller,
            reason,
        } => view::OutcomeView::Dispatch {
            replica: replica_name(replica).unwrap_or_default(),
            prefiller: prefiller.and_then(replica_name),
            reason: reason.as_ref().to_owned(),
        },
        Choice::Forward { peer, reason } => {
            let found = peers.iter().find(|candidate| candidate.peer == peer);
            view::OutcomeView::Forward {
                region: found.map_or_else(String::new, |candidate| candidate.name.clone()),
                reason: reason.as_ref().to_owned(),
            }
        }
        Choice::Wait { replica, ahead } => view::OutcomeView::Wait {
            replica: replica.and_then(replica_name),
            ahead,
        },
        Choice::Reject { reason } => view::OutcomeView::Reject {
            reason: reason.as_ref().to_owned(),
        },
    };
    let prompt_bytes = request.prompt_bytes;
    let learned = learned_view(pool);
    let candidates = candidates.iter();
    let mut candidates = Vec::from_iter(candidates.map(|c| candidate_view(c, prompt_bytes)));
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    let regions = peers.iter().map(|peer| region_view(peer, prompt_bytes));
    view::ExplainResponse {
        request: with_learned_length(request, &learned),
        outcome,
        pool: Some(pool.name().to_string()),
        policy: Some(pool.config().borrow().router.policy.to_string()),
        learned: Some(learned),
        candidates,
        regions: regions.collect(),
    }
}

/// Counts the tokens of the prompt by their learned length.
fn with_learned_length(
    request: view::RequestView,
    learned: &view::LearnedView,
) -> view::RequestView {
    let tokens = f64::from(request.prompt_bytes) / learned.bytes_per_token;
    view::RequestView {
        // A cast from float saturates.
        prompt_tokens: tokens.round() as u32,
        ..request
    }
}

fn candidate_view(candidate: &Candidate, prompt_bytes: u32) -> view::CandidateView {
    view::CandidateView {
        replica: candidate.name.clone(),
        role: candidate.role.as_ref().to_owned(),
        // JSON has no infinity.
        score: candidate.score.clamp(f64::MIN, f64::MAX),
        matched_bytes: candidate.matched_bytes,
        matched_share: share(candidate.matched_bytes, prompt_bytes),
        outstanding: candidate.outstanding,
        pending: candidate.pending,
        adapter: candidate.adapter.map(|state| state.as_ref().to_owned()),
        availability: candidate.availability.as_ref().to_owned(),
    }
}

fn region_view(candidate: &PeerCandidate, prompt_bytes: u32) -> view::RegionCandidateView {
    view::RegionCandidateView {
        region: candidate.name.clone(),
        matched_bytes: candidate.matched_bytes,
        matched_share: share(candidate.matched_bytes, prompt_bytes),
        estimated_ttft_ms: candidate.estimated_ttft.map(millis),
        availability: candidate.availability.as_ref().to_owned(),
    }
}

fn share(matched_bytes: u32, prompt_bytes: u32) -> f64 {
    f64::from(matched_bytes) / f64::from(prompt_bytes.max(1))
}
