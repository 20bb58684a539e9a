//! `POST /api/explain`: where a request would go now, and why.
//!
//! The request takes the same way as a real one: the filter's own code turns it into headers (with the filter's
//! default configuration: session keys from other places than those are not seen here), and the code that answers
//! Envoy reads them. So what is explained is what happens.

use std::rc::Rc;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::Json;
use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue};
use isotherm_filter_logic::request::{Prompt, RequestFlow};
use isotherm_filter_logic::{Edit, RequestConfig};
use isotherm_fingerprint::names;
use isotherm_router::{Candidate, Choice, Explanation};
use prometheus_client::registry::Registry;

use super::error::ApiError;
use super::{Shared, view};
use crate::driver::Pool;
use crate::extproc::{Head, Place};
use crate::metrics::Metrics;

/// How much of a body the filter gets at a time, in bytes: as much as Envoy reads from a socket.
const PIECE_BYTES: usize = 16 * 1024;

pub(super) async fn explain(
    State(admin): Shared,
    body: Result<Json<view::ExplainRequest>, JsonRejection>,
) -> Result<Json<view::Explained>, ApiError> {
    let Json(request) = body?;
    let (headers, problem) = filter(request);
    // A counter of its own: a question is no request.
    let metrics = Metrics::register(&mut Registry::default());
    let head = Head::read(Some(&headers), None, &metrics);
    let found = view::RequestView {
        model: head.model.clone(),
        session: header(&headers, names::SESSION),
        tier: header(&headers, names::TIER),
        prompt_bytes: head.ask.fingerprint.total_bytes(),
        prompt_tokens: head.ask.prompt_tokens,
        edges: head.ask.fingerprint.edges().len(),
        problem,
    };
    let explained = match Place::of(&head, &admin.fleet.table()) {
        Place::Route(pool) => in_pool(found, &pool, &pool.explain(&head.ask)),
        Place::Pass(Some(cluster)) => without_pool(
            found,
            format!("passed on to cluster `{cluster}` without waiting"),
        ),
        Place::Pass(None) => without_pool(found, "passed on as Envoy's routes say".into()),
        Place::Models | Place::Model(_) => without_pool(found, "answered with the models".into()),
        Place::UnknownModel(model) => without_pool(
            found,
            format!("answered with 404: no pool serves `{model}`"),
        ),
        Place::NoModel => without_pool(found, "answered with 400: it names no model".into()),
    };
    Ok(Json(explained))
}

/// The headers that the filter would send on, and why it could not read the prompt or not all of it.
fn filter(request: view::ExplainRequest) -> (HeaderMap, Option<String>) {
    let body = match request.body {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text,
        value => value.to_string(),
    };
    let method = if body.is_empty() { "GET" } else { "POST" };
    let mut headers = vec![
        (":method".to_owned(), method.as_bytes().to_vec()),
        (":path".to_owned(), request.path.into_bytes()),
    ];
    let given = request.headers.into_iter();
    headers.extend(given.map(|(name, value)| (name.to_ascii_lowercase(), value.into_bytes())));
    let config = Rc::new(RequestConfig::default());
    let strip = isotherm_filter_logic::request::strip(&config, &headers);
    apply(&mut headers, strip);
    let mut flow = RequestFlow::start(config, &headers, !body.is_empty());
    for piece in body.as_bytes().chunks(PIECE_BYTES) {
        if flow.body(piece) {
            break;
        }
    }
    let release = flow.release(|| None);
    apply(&mut headers, release.edits);
    let problem = match release.prompt {
        Prompt::Whole | Prompt::Kept => None,
        Prompt::Beginning => Some("read only up to the filter's buffer limit".to_owned()),
        Prompt::Unknown(pass) => Some(pass.as_str().to_owned()),
    };
    let headers = headers.into_iter().map(|(key, value)| HeaderValue {
        key,
        raw_value: value,
        ..HeaderValue::default()
    });
    let headers = HeaderMap {
        headers: headers.collect(),
    };
    (headers, problem)
}

fn apply(headers: &mut Vec<(String, Vec<u8>)>, edits: Vec<Edit>) {
    for edit in edits {
        match edit {
            Edit::Remove(name) => headers.retain(|(known, _)| *known != name),
            Edit::Set(name, value) => {
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

fn without_pool(request: view::RequestView, what: String) -> view::Explained {
    view::Explained {
        request,
        outcome: view::OutcomeView::NoPool { what },
        pool: None,
        policy: None,
        candidates: Vec::new(),
    }
}

fn in_pool(request: view::RequestView, pool: &Pool, explanation: &Explanation) -> view::Explained {
    let name = |id| {
        let mut candidates = explanation.candidates.iter();
        let found = candidates.find(|candidate| candidate.replica == id);
        found.map(|candidate| candidate.name.clone())
    };
    let outcome = match explanation.choice {
        Choice::Dispatch { replica, reason } => view::OutcomeView::Dispatch {
            replica: name(replica).unwrap_or_default(),
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
    view::Explained {
        request,
        outcome,
        pool: Some(pool.name().to_string()),
        policy: Some(pool.config().borrow().router.policy.to_string()),
        candidates,
    }
}

fn view_of(candidate: &Candidate, total_bytes: u32) -> view::CandidateView {
    let share = f64::from(candidate.matched_bytes) / f64::from(total_bytes.max(1));
    view::CandidateView {
        replica: candidate.name.clone(),
        // JSON knows no infinity.
        score: candidate.score.clamp(f64::MIN, f64::MAX),
        matched_bytes: candidate.matched_bytes,
        matched_share: share,
        outstanding: candidate.outstanding,
        pending: candidate.pending,
        availability: candidate.availability.as_str().to_owned(),
    }
}
