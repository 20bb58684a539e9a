//! Authorization of changes by a bearer token.
//!
//! The service reads the token file for every change, so a new token needs no restart; changes are rare. Without a
//! configured token the service rejects changes even on loopback. Otherwise any process on the machine, or a web page in a
//! browser on it, could remove replicas.

use std::path::Path;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use tokio::io::AsyncReadExt;

use super::Admin;
use super::error::ApiError;

/// The longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 4096;

/// Proof that a request carries the token.
#[derive(Debug)]
pub(super) struct Authorization(());

impl FromRequestParts<Arc<Admin>> for Authorization {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, ApiError> {
        let Some(file) = &admin.token_file else {
            let message = "changes are disabled: write a secret into a file, name it as `admin.token_file` \
                 in the configuration, and restart the service";
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "no_token_configured",
                message,
            ));
        };
        let token = read_token(file).await.map_err(|message| {
            tracing::error!(file = %file.display(), message, "admin token");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "bad_token_file", message)
        })?;
        let given = parts
            .headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "))
            .map(<[u8]>::trim_ascii);
        let message = match given {
            Some(given) if is_equal(given, token.trim_ascii()) => return Ok(Self(())),
            Some(_) => {
                tracing::warn!(path = parts.uri.path(), "wrong admin token");
                "the token is not the one in `admin.token_file`"
            }
            None => "send the token of `admin.token_file` as `Authorization: Bearer TOKEN`",
        };
        Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            message,
        ))
    }
}

async fn read_token(file: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| format!("`admin.token_file` cannot be read: {error}");
    let file = tokio::fs::File::open(file).await.map_err(unreadable)?;
    let mut file = file.take(TOKEN_BYTES_MAX as u64 + 1);
    let mut token = Vec::new();
    file.read_to_end(&mut token).await.map_err(unreadable)?;
    if token.trim_ascii().is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(format!(
            "`admin.token_file` must have 1 to {TOKEN_BYTES_MAX} bytes"
        ));
    }
    Ok(token)
}

/// Compares two tokens in a time that does not depend on the first difference.
fn is_equal(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == token.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_equal_only_as_a_whole() {
        assert!(is_equal(b"secret", b"secret"));
        assert!(!is_equal(b"secre", b"secret"));
        assert!(!is_equal(b"secrets", b"secret"));
        assert!(!is_equal(b"Secret", b"secret"));
        assert!(!is_equal(b"", b"secret"));
    }
}
