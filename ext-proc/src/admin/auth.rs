//! Authorization by a bearer token, and the audit of changes.
//!
//! The service reads the token file for every request that needs it, so a new token needs no restart. Each line has a token,
//! alone or behind the name of its owner; the audit line of a change has that name. Without a configured token the service
//! rejects changes even on loopback. Otherwise any process on the machine, or a web page in a browser on it, could remove
//! replicas.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::io::AsyncReadExt;

use super::Admin;
use super::error::ApiError;

/// The longest token file, in bytes.
const TOKEN_FILE_BYTES_MAX: usize = 16 * 1024;
/// The owner of a token without a name.
const NO_NAME: &str = "admin";

/// Requests below `/api` that read although their method is not `GET`.
const READING: &str = "/api/explain";

/// Lets a request below `/api` pass if it may: a change, and beyond loopback every request, needs a token. Writes the audit
/// line of a change.
pub(super) async fn check(
    State(admin): State<Arc<Admin>>,
    request: Request,
    next: Next,
) -> Response {
    let is_change = request.method() != Method::GET && request.uri().path() != READING;
    if !is_change && !admin.is_beyond_loopback {
        return next.run(request).await;
    }
    let from = request.extensions().get::<SocketAddr>();
    let from = from.map_or_else(|| "unknown".to_owned(), ToString::to_string);
    let (method, target) = (request.method().clone(), request.uri().to_string());
    let owner = match authorize(&admin, request.headers()).await {
        Ok(owner) => owner,
        Err(error) => {
            tracing::warn!(target: "isotherm_audit", from, %method, target, "rejected");
            return error.into_response();
        }
    };
    let response = next.run(request).await;
    if is_change {
        let status = response.status().as_u16();
        tracing::info!(target: "isotherm_audit", owner, from, %method, target, status, "change");
    }
    response
}

/// Returns the owner of the token in the headers.
async fn authorize(admin: &Admin, headers: &HeaderMap) -> Result<String, ApiError> {
    let Some(file) = &admin.token_file else {
        let message = "changes are disabled: write a secret into a file, name it as `admin.token_file` \
             in the configuration, and restart the service";
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "no_token_configured",
            message,
        ));
    };
    let tokens = read_tokens(file).await.map_err(|message| {
        tracing::error!(file = %file.display(), message, "admin token");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "bad_token_file", message)
    })?;
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "))
        .map(<[u8]>::trim_ascii);
    let message = match given.map(|given| owner_of(given, &tokens)) {
        Some(Some(owner)) => return Ok(owner),
        Some(None) => "the token is none of those in `admin.token_file`",
        None => "send the token of `admin.token_file` as `Authorization: Bearer TOKEN`",
    };
    Err(ApiError::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        message,
    ))
}

async fn read_tokens(file: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("`admin.token_file` cannot be read: {error}");
    let file = tokio::fs::File::open(file).await.map_err(unreadable)?;
    let mut file = file.take(TOKEN_FILE_BYTES_MAX as u64 + 1);
    let mut tokens = String::new();
    file.read_to_string(&mut tokens).await.map_err(unreadable)?;
    if tokens.trim().is_empty() || tokens.len() > TOKEN_FILE_BYTES_MAX {
        return Err(format!(
            "`admin.token_file` must have 1 to {TOKEN_FILE_BYTES_MAX} bytes"
        ));
    }
    Ok(tokens)
}

/// Returns the owner of a token. Compares it with every line, so that the time does not tell which one is near.
fn owner_of(given: &[u8], tokens: &str) -> Option<String> {
    let mut owner = None;
    for line in tokens
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (name, token) = match line.split_once(char::is_whitespace) {
            Some((name, token)) => (name, token.trim_start()),
            None => (NO_NAME, line),
        };
        if is_equal(given, token.as_bytes()) {
            owner = Some(name.to_owned());
        }
    }
    owner
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

    #[test]
    fn each_token_has_an_owner() {
        let tokens = "alice  first-token\n\n# until May\nsecond-token\n  bob third-token \n";
        let owner = |given: &str| owner_of(given.as_bytes(), tokens);
        assert_eq!(owner("first-token").as_deref(), Some("alice"));
        assert_eq!(owner("second-token").as_deref(), Some(NO_NAME));
        assert_eq!(owner("third-token").as_deref(), Some("bob"));
        for wrong in [
            "",
            "alice",
            "first",
            "alice  first-token",
            "bob",
            "until May",
        ] {
            assert_eq!(owner(wrong), None, "{wrong}");
        }
    }
}
