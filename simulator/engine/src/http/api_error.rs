//! Errors in OpenAI's form.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::model::Rejection;

/// An answer that is not the one asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    param: Option<&'static str>,
}

impl ApiError {
    /// The request makes no sense.
    #[must_use]
    pub fn bad_request(message: impl Into<String>, param: Option<&'static str>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "BadRequestError",
            message: message.into(),
            param,
        }
    }

    /// The server has no such model.
    #[must_use]
    pub fn unknown_model(model: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "NotFoundError",
            message: format!("The model `{model}` does not exist."),
            param: Some("model"),
        }
    }

    /// The engine cannot do it: broken on purpose, or full.
    #[must_use]
    pub fn server(status: StatusCode, message: impl Into<String>) -> Self {
        let kind = if status == StatusCode::SERVICE_UNAVAILABLE {
            "ServiceUnavailableError"
        } else {
            "InternalServerError"
        };
        Self {
            status,
            kind,
            message: message.into(),
            param: None,
        }
    }

    /// The engine lost the request.
    #[must_use]
    pub fn gone() -> Self {
        Self::server(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the engine was reset while this request was in it",
        )
    }

    /// The error object alone, as it stands in a stream.
    #[must_use]
    pub fn body(&self) -> serde_json::Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status.as_u16(),
        }})
    }
}

impl core::fmt::Display for ApiError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for ApiError {}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::QueueFull { .. } => {
                Self::server(StatusCode::SERVICE_UNAVAILABLE, rejection.to_string())
            }
            Rejection::Empty | Rejection::TooLong { .. } => {
                Self::bad_request(rejection.to_string(), Some("input_tokens"))
            }
            Rejection::Duplicate => {
                Self::server(StatusCode::INTERNAL_SERVER_ERROR, rejection.to_string())
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}
