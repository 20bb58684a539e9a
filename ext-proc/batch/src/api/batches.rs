//! Batches: `POST /v1/batches`, their state, and their cancellation.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Deserialize;

use super::object::{Page, cursor};
use super::{Api, ApiError, BatchObject, Owner};
use crate::completion_window::CompletionWindow;
use crate::endpoint::Endpoint;
use crate::id::random_id;
use crate::store::{BatchRow, BatchStatus, FileRow, NewBatch, ROW_BYTES};

/// Most batches of one list: OpenAI's bound.
const LIMIT_MAX: u32 = 100;
/// Batches of a list without `limit`: OpenAI's default.
const LIMIT: u32 = 20;
/// Most notes of one batch, and the lengths of a key and a value in characters: OpenAI's bounds.
const METADATA_MAX: (usize, usize, usize) = (16, 64, 512);
/// Shortest and longest time that output files stay, in seconds: OpenAI's bounds.
const OUTPUT_TTL_S: (u64, u64) = (3_600, 2_592_000);

#[derive(Debug, Deserialize)]
pub(super) struct CreateBatch {
    input_file_id: String,
    endpoint: String,
    completion_window: String,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    output_expires_after: Option<ExpiresAfter>,
}

#[derive(Debug, Deserialize)]
struct ExpiresAfter {
    anchor: String,
    seconds: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct ListQuery {
    after: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn create(
    State(api): State<Arc<Api>>,
    Extension(owner): Extension<Owner>,
    body: Result<Json<CreateBatch>, JsonRejection>,
) -> Result<Json<BatchObject>, ApiError> {
    let Json(body) = body?;
    let batch = parse(body, owner.name.clone())?;
    let file = api.store.file(&batch.owner, &batch.input_file_id).await?;
    let file = file.ok_or_else(|| ApiError::missing("file", &batch.input_file_id))?;
    if file.purpose != "batch" {
        let message = "The input file must have the purpose `batch`.";
        return Err(ApiError::invalid(Some("input_file_id"), message));
    }
    let _turn = api.admission.lock().await;
    check_bounds(&api, &owner, &file).await?;
    api.store.create_batch(&batch).await?;
    Ok(Json(find(&api, &batch.owner, &batch.id).await?.into()))
}

/// Checks that the queue takes a batch of a file from an owner.
async fn check_bounds(api: &Api, owner: &Owner, file: &FileRow) -> Result<(), ApiError> {
    let limits = &api.config.limits;
    let open = api.store.open_batches(&owner.name).await?;
    let is_shared = owner.is_shared;
    let refused = |code, what: &str, bound: u64| {
        let message = format!(
            "The queue, or your share of it, is full ({bound} {what} for all): wait for the end of some batches."
        );
        Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, code, message))
    };
    if !open.batches.has_room(1, limits.batches_max, is_shared) {
        return refused(
            "too_many_batches",
            "batches that are not finished",
            limits.batches_max,
        );
    }
    if !open
        .lines
        .has_room(file.lines, limits.open_lines_max, is_shared)
    {
        return refused(
            "too_many_open_lines",
            "requests without a result",
            limits.open_lines_max,
        );
    }
    let used = api.store.storage_used(&owner.name).await?;
    let rows = file.lines.saturating_mul(ROW_BYTES);
    match used
        .bytes
        .has_room(rows, limits.storage_bytes_max, is_shared)
    {
        true => Ok(()),
        false => Err(ApiError::storage_full(limits)),
    }
}

fn parse(body: CreateBatch, owner: String) -> Result<NewBatch, ApiError> {
    let endpoint = Endpoint::from_path(&body.endpoint).ok_or_else(|| {
        let message = format!("`endpoint` must be one of {}.", Endpoint::list());
        ApiError::invalid(Some("endpoint"), message)
    })?;
    let window: Result<CompletionWindow, _> = body.completion_window.parse();
    let window =
        window.map_err(|error| ApiError::invalid(Some("completion_window"), error.to_string()))?;
    let metadata = body.metadata.map(check_metadata).transpose()?;
    let output_ttl_s = body.output_expires_after.map(|after| {
        let (least, most) = OUTPUT_TTL_S;
        if after.anchor == "created_at" && (least..=most).contains(&after.seconds) {
            return Ok(after.seconds);
        }
        let message = format!("`output_expires_after` must have the anchor `created_at` and {least} to {most} seconds.");
        Err(ApiError::invalid(Some("output_expires_after"), message))
    });
    Ok(NewBatch {
        id: random_id("batch_"),
        owner,
        endpoint,
        input_file_id: body.input_file_id,
        window,
        metadata,
        output_ttl_s: output_ttl_s.transpose()?,
        output_path: None,
    })
}

fn check_metadata(metadata: BTreeMap<String, String>) -> Result<String, ApiError> {
    let (entries_max, key_max, value_max) = METADATA_MAX;
    let fits = |(key, value): (&String, &String)| {
        key.chars().count() <= key_max && value.chars().count() <= value_max
    };
    let json = serde_json::to_string(&metadata).unwrap_or_default();
    // PostgreSQL stores no NUL in a text; JSON escapes it, so this text has none.
    if metadata.len() <= entries_max && metadata.iter().all(fits) {
        return Ok(json);
    }
    let message = format!(
        "`metadata` may have {entries_max} entries, keys of {key_max} and values of {value_max} characters."
    );
    Err(ApiError::invalid(Some("metadata"), message))
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Extension(owner): Extension<Owner>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<Page<BatchObject>>, ApiError> {
    let Query(query) = query?;
    let limit = query.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let message = format!("`limit` must be between 1 and {LIMIT_MAX}.");
        return Err(ApiError::invalid(Some("limit"), message));
    }
    let after = match &query.after {
        Some(after) => Some(find(&api, &owner.name, cursor(after)?).await?),
        None => None,
    };
    let rows = api
        .store
        .batches(Some(&owner.name), after.as_ref(), limit + 1)
        .await?;
    Ok(Json(Page::new(
        rows,
        limit,
        |batch| batch.id.clone(),
        Into::into,
    )))
}

pub(super) async fn show(
    State(api): State<Arc<Api>>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Json<BatchObject>, ApiError> {
    Ok(Json(find(&api, &owner.name, &id).await?.into()))
}

pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Json<BatchObject>, ApiError> {
    find(&api, &owner.name, &id).await?;
    api.store.cancel_batch(&id).await?;
    let batch = find(&api, &owner.name, &id).await?;
    match batch.status {
        BatchStatus::Cancelling | BatchStatus::Cancelled => Ok(Json(batch.into())),
        status => {
            let message = format!("Cannot cancel a batch with status '{status}'.");
            Err(ApiError::new(
                StatusCode::CONFLICT,
                "invalid_status",
                message,
            ))
        }
    }
}

async fn find(api: &Api, owner: &str, id: &str) -> Result<BatchRow, ApiError> {
    let batch = api.store.batch(Some(owner), id).await?;
    batch.ok_or_else(|| ApiError::missing("batch", id))
}
