//! `POST /v1/files`: a file as multipart form. The file goes to the database while it arrives, in pages of lines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::multipart::{Field, MultipartError, MultipartRejection};
use axum::extract::{Multipart, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Deserialize;
use tokio::time::timeout;

use super::auth::too_many;
use super::{Api, ApiError, FileObject, Owner};
use crate::id::random_id;
use crate::limits::FILE_NAME_CHARACTERS_MAX;
use crate::splitter::SplitError;
use crate::store::{FileSink, NewFile, SinkError};

/// Longest wait for the next bytes of an upload.
const CHUNK_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest time of an upload: the largest file over a slow network.
const UPLOAD_TIME_MAX: Duration = Duration::from_secs(1_800);
/// Most parts of a form.
const PARTS_MAX: usize = 16;
/// Longest part that is no file, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;
/// Shortest and longest time that a file stays, in seconds: OpenAI's bounds.
const TTL_S: (i64, i64) = (3_600, 2_592_000);

const EXPIRY: &str = "expires_after";
const EXPIRY_ANCHOR: &str = "expires_after[anchor]";
const EXPIRY_SECONDS: &str = "expires_after[seconds]";
/// Fields of the form beside the file.
const FIELDS: [&str; 4] = ["purpose", EXPIRY, EXPIRY_ANCHOR, EXPIRY_SECONDS];

pub(super) async fn create(
    State(api): State<Arc<Api>>,
    Extension(owner): Extension<Owner>,
    form: Result<Multipart, MultipartRejection>,
) -> Result<Json<FileObject>, ApiError> {
    let form = form.map_err(|error| ApiError::invalid(None, error.body_text()))?;
    let Some(_place) = api.uploads.take(&owner) else {
        return Err(too_many("too_many_uploads", "uploads"));
    };
    check_storage(&api, &owner, true).await?;
    let file = NewFile {
        id: random_id("file-"),
        owner: owner.name.clone(),
        name: "upload.jsonl".to_owned(),
    };
    let id = file.id.clone();
    let uploaded = timeout(UPLOAD_TIME_MAX, receive(&api, &owner, form, file)).await;
    let uploaded = uploaded.unwrap_or_else(|_| Err(too_slow(UPLOAD_TIME_MAX)));
    if let Err(error) = uploaded {
        // What has arrived goes at once, or else with the files that never ended.
        if let Err(error) = api.store.delete_file(&id).await {
            tracing::warn!(%error, file = id, "a broken upload stays for some hours");
        }
        return Err(error);
    }
    let file = api.store.file(&owner.name, &id).await?;
    file.map(|file| Json(file.into()))
        .ok_or_else(|| ApiError::missing("file", &id))
}

/// Checks that an owner may store more, with what it is storing now.
async fn check_storage(api: &Api, owner: &Owner, is_new: bool) -> Result<(), ApiError> {
    let limits = &api.config.limits;
    let used = api.store.storage_used(&owner.name).await?;
    let has_room = used
        .bytes
        .has_room(0, limits.storage_bytes_max, owner.is_shared);
    let files = u64::from(is_new);
    if has_room
        && (!is_new
            || used
                .files
                .has_room(files, limits.files_max, owner.is_shared))
    {
        return Ok(());
    }
    Err(ApiError::storage_full(limits))
}

async fn receive(
    api: &Api,
    owner: &Owner,
    mut form: Multipart,
    mut file: NewFile,
) -> Result<(), ApiError> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut sink = None;
    for _ in 0..PARTS_MAX {
        let Some(mut part) = next(form.next_field()).await? else {
            break;
        };
        let name: String = part.name().unwrap_or_default().chars().take(64).collect();
        if name != "file" {
            check_field(&name)?;
            texts.insert(name, text(&mut part).await?);
            continue;
        }
        if sink.is_some() {
            return Err(ApiError::invalid(
                Some("file"),
                "The form has two files: upload each by itself.",
            ));
        }
        if let Some(name) = part.file_name() {
            let name = name.chars().filter(|character| !character.is_control());
            file.name = name.take(FILE_NAME_CHARACTERS_MAX).collect();
        }
        let mut writer = FileSink::begin(&api.store, &file, &api.config.limits).await?;
        while let Some(chunk) = next(part.chunk()).await? {
            if writer.write(&chunk).await.map_err(split_error)? {
                check_storage(api, owner, false).await?;
            }
        }
        sink = Some(writer);
    }
    let purpose = texts.get("purpose").map(String::as_str);
    if purpose != Some("batch") {
        return Err(ApiError::invalid(
            Some("purpose"),
            "`purpose` must be `batch`: this server has no other use for files.",
        ));
    }
    let Some(writer) = sink else {
        return Err(ApiError::invalid(
            Some("file"),
            "The form has no part `file`.",
        ));
    };
    let expires_at = expiry(&texts)?.map(|ttl_s| api.store.now().saturating_add(ttl_s * 1_000));
    writer.finish(expires_at).await.map_err(split_error)?;
    Ok(())
}

/// Fails for a field that the server does not read: it may be a wish that the server would not fulfil.
fn check_field(name: &str) -> Result<(), ApiError> {
    match FIELDS.contains(&name) {
        true => Ok(()),
        false => {
            let message = format!(
                "The form has an unknown field `{name}`: this server reads `file`, {}.",
                FIELDS.map(|field| format!("`{field}`")).join(", ")
            );
            Err(ApiError::invalid(None, message))
        }
    }
}

/// Time that the file stays, in seconds.
fn expiry(texts: &BTreeMap<String, String>) -> Result<Option<i64>, ApiError> {
    let text = |name| texts.get(name).map(String::as_str);
    let parts = (text(EXPIRY_ANCHOR), text(EXPIRY_SECONDS));
    let after = match (text(EXPIRY), parts) {
        (None, (None, None)) => return Ok(None),
        (Some(json), (None, None)) => serde_json::from_str(json).ok(),
        (None, (Some(anchor), Some(seconds))) => seconds.parse().ok().map(|seconds| ExpiresAfter {
            anchor: anchor.to_owned(),
            seconds,
        }),
        _ => None,
    };
    let (least, most) = TTL_S;
    match after {
        Some(ExpiresAfter { anchor, seconds })
            if anchor == "created_at" && (least..=most).contains(&seconds) =>
        {
            Ok(Some(seconds))
        }
        _ => {
            let message = format!(
                "`expires_after` must have the anchor `created_at` and {least} to {most} seconds: as two fields, \
                 `{EXPIRY_ANCHOR}` and `{EXPIRY_SECONDS}`, or as one JSON object."
            );
            Err(ApiError::invalid(Some("expires_after"), message))
        }
    }
}

/// The time after which a file goes, as OpenAI's API describes it.
#[derive(Debug, Deserialize)]
struct ExpiresAfter {
    anchor: String,
    seconds: i64,
}

async fn text(part: &mut Field<'_>) -> Result<String, ApiError> {
    let mut text = Vec::new();
    while let Some(chunk) = next(part.chunk()).await? {
        text.extend_from_slice(&chunk);
        if text.len() > TEXT_BYTES_MAX {
            let message =
                format!("A part of the form that is no file has more than {TEXT_BYTES_MAX} bytes.");
            return Err(ApiError::invalid(None, message));
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Awaits the next piece of the form.
async fn next<T>(piece: impl Future<Output = Result<T, MultipartError>>) -> Result<T, ApiError> {
    match timeout(CHUNK_TIME_MAX, piece).await {
        Ok(Ok(piece)) => Ok(piece),
        Ok(Err(error)) => Err(ApiError::invalid(None, error.body_text())),
        Err(_) => Err(too_slow(CHUNK_TIME_MAX)),
    }
}

fn too_slow(limit: Duration) -> ApiError {
    let message = format!(
        "The upload was too slow: nothing more within {} s.",
        limit.as_secs()
    );
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "upload_timeout", message)
}

fn split_error(error: SinkError) -> ApiError {
    match error {
        SinkError::Store(error) => ApiError::from(error),
        SinkError::Split(error) => {
            let code = match error {
                SplitError::Line { .. } => "line_too_long",
                SplitError::Lines(_) => "too_many_lines",
                SplitError::Bytes(_) => "file_too_large",
            };
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, code, error.to_string())
        }
    }
}
