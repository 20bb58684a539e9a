//! Keys of clients.
//!
//! The file of keys is read for each request, so a new key needs no restart. A line has a key, alone or behind the name of
//! its owner; files and batches belong to the owner, and other owners do not see them. The database has owners' names and
//! no keys.

use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ring::digest::{SHA256, digest};
use tokio::io::AsyncReadExt as _;

use super::connections::ApiConnection;
use super::{Api, ApiError, Owner};
use crate::limits::OWNER_WITHOUT_KEY;

/// Longest file of keys, in bytes.
const KEYS_FILE_BYTES_MAX: u64 = 256 * 1024;
/// Longest name of an owner, in bytes.
const OWNER_BYTES_MAX: usize = 64;

/// Lets a request pass if its key is in the file, and names the key's owner to the handlers.
pub(super) async fn check(
    State(api): State<Arc<Api>>,
    mut request: Request,
    next: Next,
) -> Response {
    let owner = match &api.config.keys_file {
        Some(file) => authorize(file, request.headers()).await,
        None => Ok(Owner::alone()),
    };
    let owner = match owner {
        Ok(owner) => owner,
        Err(error) => return error.into_response(),
    };
    let Some(place) = api.requests.take(&owner) else {
        return too_many("too_many_requests", "requests").into_response();
    };
    if let Some(connection) = request.extensions().get::<Arc<ApiConnection>>() {
        connection.keep(place);
    }
    request.extensions_mut().insert(owner);
    next.run(request).await
}

/// The error of an owner that has its share of something already.
pub(super) fn too_many(code: &'static str, what: &str) -> ApiError {
    let message = format!("Too many {what} at once: wait for the end of others, and try again.");
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, code, message)
}

/// Whether the server can read the keys of its clients.
pub(super) async fn are_keys_readable(api: &Api) -> bool {
    match &api.config.keys_file {
        Some(file) => read(file).await.is_ok(),
        None => true,
    }
}

async fn authorize(file: &Path, headers: &HeaderMap) -> Result<Owner, ApiError> {
    let keys = read(file).await.map_err(|error| {
        tracing::error!(%error, file = %file.display(), "the keys cannot be read");
        let message = "The server cannot read its keys.";
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "no_keys", message)
    })?;
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    given.and_then(|key| owner(&keys, key.trim())).ok_or_else(|| {
        let message = "Incorrect API key provided. Send one of the server's keys as `Authorization: Bearer KEY`.";
        ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
    })
}

async fn read(file: &Path) -> std::io::Result<String> {
    let file = tokio::fs::File::open(file).await?;
    let mut text = String::new();
    file.take(KEYS_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .await?;
    Ok(text)
}

/// The owner of a key. Digests are compared, so the time of the comparison says nothing about a key.
fn owner(keys: &str, given: &str) -> Option<Owner> {
    let given = digest(&SHA256, given.as_bytes());
    let has_key =
        |(_, key): &(&str, &str)| digest(&SHA256, key.as_bytes()).as_ref() == given.as_ref();
    let (name, _) = entries(keys).find(has_key)?;
    Some(Owner {
        name: name.to_owned(),
        is_shared: entries(keys).any(|(other, _)| other != name),
    })
}

/// The owners and keys of a file.
fn entries(keys: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = keys.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| match line.split_once(char::is_whitespace) {
        Some((name, key)) => (name, key.trim()),
        None => (OWNER_WITHOUT_KEY, line),
    });
    entries.filter(|(name, _)| name.len() <= OWNER_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_an_owner() {
        let keys = "# clients\nsk-1\nteam-a sk-2\n\n";
        let name = |key| owner(keys, key).map(|owner| owner.name);
        assert_eq!(name("sk-1").as_deref(), Some("default"));
        assert_eq!(name("sk-2").as_deref(), Some("team-a"));
        assert!(owner(keys, "sk-1").unwrap().is_shared);
        assert!(!owner("sk-1\ndefault sk-2\n", "sk-2").unwrap().is_shared);
        for wrong in ["", "sk-3", "team-a", "team-a sk-2", "#", "# clients"] {
            assert_eq!(owner(keys, wrong), None, "{wrong}");
        }
    }
}
