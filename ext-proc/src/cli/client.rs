//! A client of a running service's admin interface.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::address::parse_admin;
use crate::config::{self, Address, Config};
use crate::http_client::{HttpClient, HttpError};

/// The longest wait for a response.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(10);
/// The largest response, in bytes: ten thousand replicas have about 4 MB.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The service to connect to, and the token for changes.
#[derive(Debug, Args)]
pub(super) struct Connection {
    /// Address of the admin interface [default: the one in --config, else 127.0.0.1:9003].
    #[arg(long, value_name = "HOST:PORT", global = true, value_parser = parse_admin)]
    admin: Option<Address>,
    /// Configuration file of the service: names its admin interface and its token file.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// File with the bearer token [default: the one in --config].
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) struct AdminClient {
    http: HttpClient,
    admin: Address,
    token: Option<Token>,
}

/// The bearer token, or the reason why it cannot be read. Only changes need a token, so a failed read matters only if the service
/// asks for it.
type Token = Result<String, String>;

impl AdminClient {
    /// Creates a client of the service that `connection` describes.
    pub(super) fn new(connection: &Connection) -> anyhow::Result<Self> {
        let config = match &connection.config {
            Some(file) => config::load(file)?,
            None => Config::default(),
        };
        let token_file = connection.token_file.as_ref();
        let token_file = token_file.or(config.admin.token_file.as_ref());
        Ok(Self {
            http: HttpClient::new(),
            admin: match &connection.admin {
                Some(admin) => admin.clone(),
                None => config.admin.listen.into(),
            },
            token: token_file.map(|file| read_token(file)),
        })
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let body = self.send(Method::GET, path, Bytes::new()).await?;
        self.parse(path, &collect(body).await?)
    }

    /// Reads a page as text.
    pub(super) async fn text(&self, path: &str) -> anyhow::Result<String> {
        let body = self.send(Method::GET, path, Bytes::new()).await?;
        Ok(String::from_utf8_lossy(&collect(body).await?).into_owned())
    }

    /// The address of the admin interface.
    pub(super) const fn address(&self) -> &Address {
        &self.admin
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        value: &impl Serialize,
    ) -> anyhow::Result<T> {
        let body = self.stream(path, value).await?;
        self.parse(path, &collect(body).await?)
    }

    /// Posts `value` to `path`, and returns the response's body, which may last for as long as it likes.
    pub(super) async fn stream(
        &self,
        path: &str,
        value: &impl Serialize,
    ) -> anyhow::Result<Incoming> {
        let body = serde_json::to_vec(value)?.into();
        self.send(Method::POST, path, body).await
    }

    /// Sends a request, and returns the body of a successful response.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Incoming> {
        let request = self.request(method, path, body)?;
        let response = timeout(RESPONSE_TIME_MAX, self.http.send(request)).await;
        let response = response.unwrap_or(Err(HttpError::Timeout(RESPONSE_TIME_MAX)));
        let response = response.map_err(|error| self.unreachable(error))?;
        match response.status() {
            status if status.is_success() => Ok(response.into_body()),
            status => {
                let body = collect(response.into_body()).await?;
                Err(self.error(path, status, &body))
            }
        }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Request<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.admin))
            .header(CONTENT_TYPE, "application/json");
        if let Some(Ok(token)) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(request.body(body)?)
    }

    fn parse<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> anyhow::Result<T> {
        serde_json::from_slice(body).with_context(|| {
            format!(
                "the response of {} to {path} is not understood: do service and command have the same version?",
                self.admin
            )
        })
    }

    fn unreachable(&self, error: HttpError) -> anyhow::Error {
        match error {
            HttpError::Connection(_) => anyhow!(error.to_string()).context(Unreachable(format!(
                "no service answers at {} (is it running? --admin or --config gives its address)",
                self.admin
            ))),
            other => anyhow!(other).context(Unreachable(format!("{} does not answer", self.admin))),
        }
    }

    /// Converts an error response.
    fn error(&self, path: &str, status: StatusCode, body: &[u8]) -> anyhow::Error {
        if let (StatusCode::UNAUTHORIZED, Some(Err(reason))) = (status, &self.token) {
            return anyhow!("{reason}");
        }
        match serde_json::from_slice::<ErrorBody>(body) {
            Ok(body) => anyhow!("{}", body.error.message),
            Err(_) => anyhow!(
                "{} is not Isotherm's admin interface, whose port is 9003 by default (`admin.listen`): it answers {path} with \
                 status {}",
                self.admin,
                status.as_u16()
            ),
        }
    }
}

/// An error of the admin interface. Errors of other servers have other members.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorBody {
    error: ErrorText,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorText {
    #[serde(rename = "code")]
    _code: String,
    message: String,
}

/// The reason why a command ends with exit code 3: the server that it needs does not answer.
#[derive(Debug)]
pub(super) struct Unreachable(pub(super) String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a whole body, within bounds of time and size.
async fn collect(body: Incoming) -> anyhow::Result<Bytes> {
    let body = Limited::new(body, RESPONSE_BYTES_MAX).collect();
    let body = timeout(RESPONSE_TIME_MAX, body).await;
    let body = body.context("the response takes too long")?;
    let body = body.map_err(|error| anyhow!("the response broke off: {error}"))?;
    Ok(body.to_bytes())
}

fn read_token(file: &Path) -> Token {
    match std::fs::read_to_string(file) {
        Ok(token) => Ok(token.trim().to_owned()),
        Err(error) => Err(format!(
            "the token in {} cannot be read: {error}",
            file.display()
        )),
    }
}

/// Bytes that stay as they are in a part of a path or query: RFC 3986's unreserved characters.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Encodes `text` as a part of a path or query.
pub(super) fn percent_encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, &UNRESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_openais_format_is_none_of_the_admin_interface() {
        let own = r#"{"error": {"code": "unknown_replica", "message": "no replica"}}"#;
        let body: ErrorBody = serde_json::from_str(own).unwrap();
        assert_eq!(body.error.message, "no replica");
        let foreign = r#"{"error": {"message": "This path does not exist.", "type": "invalid_request_error", "param": null, "code": "unknown_url"}}"#;
        assert!(serde_json::from_str::<ErrorBody>(foreign).is_err());
    }
}
