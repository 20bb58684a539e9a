//! Errors in OpenAI's form.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use thiserror::Error;

use crate::model::Rejection;

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    param: Option<&'static str>,
}

impl ApiError {
    /// The request is not valid.
    pub fn bad_request(message: impl Into<String>, param: Option<&'static str>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "BadRequestError",
            message: message.into(),
            param,
        }
    }

    /// The server has no such model.
    pub fn unknown_model(model: &str) -> Self {
        Self::not_found(format!("The model `{model}` does not exist."), "model")
    }

    /// The server does not have what the request names.
    pub fn not_found(message: impl Into<String>, param: &'static str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "NotFoundError",
            message: message.into(),
            param: Some(param),
        }
    }

    /// The engine is full, or fails because of an injected fault.
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
    pub fn gone() -> Self {
        Self::server(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the engine was reset while this request was in it",
        )
    }

    /// The error object alone, as it stands in a stream.
    pub fn body(&self) -> serde_json::Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status.as_u16(),
        }})
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let message = rejection.to_string();
        match rejection {
            Rejection::QueueFull { .. } => Self::server(StatusCode::SERVICE_UNAVAILABLE, message),
            Rejection::Duplicate => Self::server(StatusCode::INTERNAL_SERVER_ERROR, message),
            Rejection::Empty | Rejection::TooLong { .. } => {
                Self::bad_request(message, Some("input_tokens"))
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}
