//! `GET` and `DELETE` of files.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;

use super::auth::too_many;
use super::object::{Deletion, Page, cursor};
use super::{Api, ApiError, FileObject, Owner};
use crate::store::{FileOrder, FilePosition, FileRow};

/// Most files of one list: OpenAI's bound.
const LIMIT_MAX: u32 = 10_000;

#[derive(Debug, Deserialize)]
pub(super) struct ListQuery {
    after: Option<String>,
    limit: Option<u32>,
    purpose: Option<String>,
    order: Option<String>,
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Extension(owner): Extension<Owner>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<Page<FileObject>>, ApiError> {
    let Query(query) = query?;
    let limit = query.limit.unwrap_or(LIMIT_MAX);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let message = format!("`limit` must be between 1 and {LIMIT_MAX}.");
        return Err(ApiError::invalid(Some("limit"), message));
    }
    let order = match query.order.as_deref() {
        None | Some("desc") => FileOrder::NewestFirst,
        Some("asc") => FileOrder::OldestFirst,
        Some(_) => {
            let message = "`order` must be `desc`, for the newest files first, or `asc`.";
            return Err(ApiError::invalid(Some("order"), message));
        }
    };
    let after = match &query.after {
        Some(after) => Some(find(&api, &owner.name, cursor(after)?).await?),
        None => None,
    };
    let purpose = query.purpose.as_deref();
    if purpose.is_some_and(|purpose| purpose.contains('\0')) {
        let message = "`purpose` has a NUL: this server has `batch` and `batch_output`.";
        return Err(ApiError::invalid(Some("purpose"), message));
    }
    let rows = api
        .store
        .files(&owner.name, purpose, (order, after.as_ref()), limit + 1)
        .await?;
    Ok(Json(Page::new(
        rows,
        limit,
        |file| file.id.clone(),
        Into::into,
    )))
}

pub(super) async fn show(
    State(api): State<Arc<Api>>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Json<FileObject>, ApiError> {
    Ok(Json(find(&api, &owner.name, &id).await?.into()))
}

pub(super) async fn delete(
    State(api): State<Arc<Api>>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Json<Deletion>, ApiError> {
    find(&api, &owner.name, &id).await?;
    if api.store.is_in_use(&id).await? {
        let message = "A batch still reads the file: cancel the batch first, or wait for its end.";
        return Err(ApiError::new(StatusCode::CONFLICT, "file_in_use", message));
    }
    api.store.delete_file(&id).await?;
    Ok(Json(Deletion {
        id,
        object: "file",
        deleted: true,
    }))
}

pub(super) async fn content(
    State(api): State<Arc<Api>>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let file = find(&api, &owner.name, &id).await?;
    let Some(place) = api.downloads.take(&owner) else {
        return Err(too_many("too_many_downloads", "downloads"));
    };
    let length = file.bytes;
    let start = (api, file, place, FilePosition::default());
    let pages = stream::try_unfold(start, |(api, file, place, at)| async move {
        let page = api.store.file_page(&file, at).await.map_err(|error| {
            tracing::warn!(%error, file = file.id, "the content of a file breaks off");
            std::io::Error::other("the database failed")
        })?;
        let page = page.map(|(bytes, behind)| (Bytes::from(bytes), (api, file, place, behind)));
        Ok::<_, std::io::Error>(page)
    });
    let mut response = Body::from_stream(pages).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    // A client notices by the length when the content breaks off.
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok(response)
}

async fn find(api: &Api, owner: &str, id: &str) -> Result<FileRow, ApiError> {
    let file = api.store.file(owner, id).await?;
    file.ok_or_else(|| ApiError::missing("file", id))
}
