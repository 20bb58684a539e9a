//! Errors of the admin interface: a code for programs, and a message that says what to do.

use std::fmt::Display;
use std::time::Duration;

use axum::extract::rejection::{BytesRejection, JsonRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;

use crate::config::ReloadError;
use crate::pool::MembershipError;

/// An error as the client receives it.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    pub(super) fn no_such_page() -> Self {
        let message = "no such page; there are /, /healthz, /readyz, /metrics, /api/pools, /api/replicas, \
             /api/batch, /api/tenants, /api/decisions, /api/regions, /api/scaling, /api/explain, /api/recording and /api/reload";
        Self::new(StatusCode::NOT_FOUND, "no_such_page", message)
    }

    pub(super) fn wrong_method() -> Self {
        let message = "this page does not have this method";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
    }

    pub(super) fn slow_body(time_max: Duration) -> Self {
        let message = format!("the body took longer than {} s", time_max.as_secs());
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
    }

    /// Creates an error of the service itself.
    pub(super) fn internal(error: impl Display) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, "internal", error.to_string())
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message } });
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

impl From<MembershipError> for ApiError {
    fn from(error: MembershipError) -> Self {
        let (status, code) = match error {
            MembershipError::Exists(_) => (StatusCode::CONFLICT, "replica_exists"),
            MembershipError::Unknown(_) => (StatusCode::NOT_FOUND, "unknown_replica"),
            MembershipError::NotLeased(_) => (StatusCode::CONFLICT, "replica_not_leased"),
            MembershipError::Full => (StatusCode::CONFLICT, "pool_full"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<ReloadError> for ApiError {
    fn from(error: ReloadError) -> Self {
        let (status, code) = match error {
            ReloadError::NoFile => (StatusCode::CONFLICT, "no_file"),
            ReloadError::Empty(_) | ReloadError::NoPools(_) | ReloadError::Config(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "bad_configuration")
            }
            ReloadError::Timeout => (StatusCode::SERVICE_UNAVAILABLE, "timeout"),
            ReloadError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        };
        Self::new(status, code, error.to_string())
    }
}

/// Converts axum's rejections of malformed requests.
macro_rules! from_rejection {
    ($($rejection:ty),*) => {$(
        impl From<$rejection> for ApiError {
            fn from(rejection: $rejection) -> Self {
                Self::new(rejection.status(), "bad_request", rejection.body_text())
            }
        }
    )*};
}

from_rejection!(BytesRejection, JsonRejection, QueryRejection);
