//! Errors in OpenAI's form.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::rejection::QueryRejection;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::limits::Limits;
use crate::store::StoreError;

/// An error in OpenAI's form.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<&'static str>,
    message: String,
}

impl ApiError {
    /// An error that the client can mend.
    pub(super) fn invalid(param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid_request_error",
            code: None,
            param,
            message: message.into(),
        }
    }

    /// An error with a status and a code of its own.
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: Some(code),
            ..Self::invalid(None, message)
        }
    }

    /// No room for more files, lines and results.
    pub(super) fn storage_full(limits: &Limits) -> Self {
        let message = format!(
            "The queue, or your share of it, is full ({} bytes and {} files for all): delete files that you need no more.",
            limits.storage_bytes_max, limits.files_max
        );
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "storage_full", message)
    }

    /// A name that belongs to nothing of the client's.
    pub(super) fn missing(kind: &str, id: &str) -> Self {
        let id: String = id.chars().take(80).collect();
        let message = format!("No such {kind}: {id}");
        Self {
            param: Some("id"),
            ..Self::new(StatusCode::NOT_FOUND, "not_found", message)
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({ "error": {
            "message": self.message, "type": self.kind, "param": self.param, "code": self.code,
        } });
        (self.status, Json(body)).into_response()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        // The cause is the operator's business: it may name hosts and files.
        tracing::warn!(%error, "a request failed");
        Self {
            kind: "server_error",
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "database_unavailable",
                "The queue's database failed: try again.",
            )
        }
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        let mut error = Self::invalid(None, rejection.body_text());
        error.status = match rejection.status() {
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            status => status,
        };
        error
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::invalid(None, rejection.body_text())
    }
}

pub(super) async fn not_found(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    let message =
        format!("Unknown request URL: {method} {path}. This server has files and batches only.");
    ApiError::new(StatusCode::NOT_FOUND, "unknown_url", message)
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    let message = format!("{method} is not allowed for {path}.");
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        message,
    )
}
