//! Talks to the admin interface of a running service.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::view;
use crate::config::{self, Config};

/// How long an answer may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// The largest answer that is read, in bytes: ten thousand replicas have about 4 MB.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Which service, and the right to change it.
#[derive(Debug, Args)]
pub(super) struct Connection {
    /// The address of its admin interface [default: the one in --config, else 127.0.0.1:9003].
    #[arg(long, value_name = "IP:PORT", global = true)]
    admin: Option<SocketAddr>,
    /// Its configuration file: says where its admin interface and its token are.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The file with its bearer token [default: the one in --config].
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
}

/// A client of the admin interface.
#[derive(Debug)]
pub(super) struct Client {
    http: HttpClient<HttpConnector, Full<Bytes>>,
    admin: SocketAddr,
    token: Option<Token>,
}

/// The bearer token, or why there is none. Only what changes something needs it: who reads may not be allowed to read
/// the file, and so hears of that only when it matters.
type Token = Result<String, String>;

impl Client {
    /// A client for the service that `connection` describes.
    pub(super) fn new(connection: &Connection) -> anyhow::Result<Self> {
        let config = match &connection.config {
            Some(file) => config::load(file)?,
            None => Config::default(),
        };
        let token_file = connection
            .token_file
            .as_ref()
            .or(config.admin.token_file.as_ref());
        Ok(Self {
            http: HttpClient::builder(TokioExecutor::new()).build_http(),
            admin: connection.admin.unwrap_or(config.admin.listen),
            token: token_file.map(|file| read_token(file)),
        })
    }

    /// Asks for `path`.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let body = self.send(Method::GET, path, Bytes::new()).await?;
        serde_json::from_slice(&body).with_context(|| self.other_version(path))
    }

    /// Sends `value` to `path`.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        value: &impl Serialize,
    ) -> anyhow::Result<T> {
        let body = self
            .send(Method::POST, path, serde_json::to_vec(value)?.into())
            .await?;
        serde_json::from_slice(&body).with_context(|| self.other_version(path))
    }

    /// Sends a request whose answer says nothing but that it was done.
    pub(super) async fn command(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<()> {
        self.send(method, path, body).await.map(drop)
    }

    /// Sends `value` to `path`, whose answer goes on for as long as it likes.
    pub(super) async fn stream(
        &self,
        path: &str,
        value: &impl Serialize,
    ) -> anyhow::Result<Incoming> {
        let body = serde_json::to_vec(value)?.into();
        let opened = self.open(Method::POST, path, body);
        let opened = tokio::time::timeout(ANSWER_TIME_MAX, opened).await;
        let response = opened.with_context(|| format!("{} does not answer", self.admin))??;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
        Err(self.refused(path, status, &body.to_bytes()))
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.admin))
            .header(CONTENT_TYPE, "application/json");
        if let Some(Ok(token)) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body))?;
        self.http.request(request).await.with_context(|| {
            format!(
                "no service answers at {} (is it running? --admin or --config says where it is)",
                self.admin
            )
        })
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let answer = async {
            let response = self.open(method, path, body).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
                .collect()
                .await;
            let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
            Ok::<_, anyhow::Error>((status, body.to_bytes()))
        };
        let (status, body) = tokio::time::timeout(ANSWER_TIME_MAX, answer)
            .await
            .with_context(|| format!("{} does not answer", self.admin))??;
        if status.is_success() {
            return Ok(body);
        }
        Err(self.refused(path, status, &body))
    }

    /// What an answer means that is an error.
    fn refused(&self, path: &str, status: StatusCode, body: &[u8]) -> anyhow::Error {
        if let (StatusCode::UNAUTHORIZED, Some(Err(why))) = (status, &self.token) {
            return anyhow::anyhow!("{why}");
        }
        match serde_json::from_slice::<view::ErrorBody>(body) {
            Ok(error) => anyhow::anyhow!("{}", error.error.message),
            Err(_) => anyhow::anyhow!("{path} was answered with {status}"),
        }
    }

    fn other_version(&self, path: &str) -> String {
        format!(
            "{} at {path} answers what this version does not understand",
            self.admin
        )
    }
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
