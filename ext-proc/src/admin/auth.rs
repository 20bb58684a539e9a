//! Authorization: a request that changes state must carry the bearer token.

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

/// Proof that the request carried the token.
#[derive(Debug)]
pub(super) struct Authorization(());

impl FromRequestParts<Arc<Admin>> for Authorization {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, ApiError> {
        let Some(file) = &admin.token_file else {
            let message = "changes are switched off: write a secret into a file, name it as `admin.token_file` \
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
        match given {
            Some(given) if same(given, token.trim_ascii()) => Ok(Self(())),
            Some(_) => {
                tracing::warn!(path = parts.uri.path(), "wrong admin token");
                Err(unauthorized(
                    "the token is not the one in `admin.token_file`",
                ))
            }
            None => Err(unauthorized(
                "send the token of `admin.token_file` as `Authorization: Bearer TOKEN`",
            )),
        }
    }
}

fn unauthorized(message: &'static str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
}

async fn read_token(file: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| format!("`admin.token_file` cannot be read: {error}");
    let opened = tokio::fs::File::open(file).await.map_err(unreadable)?;
    let mut token = Vec::new();
    let mut opened = opened.take(TOKEN_BYTES_MAX as u64 + 1);
    opened.read_to_end(&mut token).await.map_err(unreadable)?;
    if token.trim_ascii().is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(format!(
            "`admin.token_file` must hold 1 to {TOKEN_BYTES_MAX} bytes"
        ));
    }
    Ok(token)
}

/// Compares in a time that does not tell where the first difference is.
fn same(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == token.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_same_only_as_a_whole() {
        assert!(same(b"secret", b"secret"));
        assert!(!same(b"secre", b"secret"));
        assert!(!same(b"secrets", b"secret"));
        assert!(!same(b"Secret", b"secret"));
        assert!(!same(b"", b"secret"));
    }
}
