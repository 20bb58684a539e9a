//! A client as people write them: one request, one whole answer.

use std::time::Duration;

use anyhow::Context as _;
use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::MODEL;

/// Longer than any request of these tests takes.
const REQUEST_MAX: Duration = Duration::from_secs(120);

/// Sends requests to one address.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

/// A chat request with one message, for one token.
#[must_use]
pub fn chat(prompt: &str) -> Value {
    json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": prompt }],
        "max_tokens": 1,
    })
}

impl Client {
    /// A client of whatever is at `base`, such as `http://127.0.0.1:10000`.
    ///
    /// # Errors
    /// When the system has no resources for it.
    pub fn new(base: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(REQUEST_MAX)
            .no_proxy()
            .build()?;
        Ok(Self {
            http,
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// A `GET` to be sent.
    pub fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base))
    }

    /// A `POST` of JSON to be sent.
    pub fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.http.post(format!("{}{path}", self.base)).json(body)
    }

    /// Sends a chat request in a session, and reads the whole answer.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub async fn chat(&self, session: &str, body: &Value) -> anyhow::Result<HttpResponse> {
        let request = self.post("/v1/chat/completions", body);
        HttpResponse::to(request.header("x-session-id", session)).await
    }
}

impl HttpResponse {
    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub async fn to(request: RequestBuilder) -> anyhow::Result<Self> {
        Self::read(request.send().await?).await
    }

    /// Reads the rest of an answer.
    ///
    /// # Errors
    /// When it breaks off.
    pub async fn read(response: Response) -> anyhow::Result<Self> {
        Ok(Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await?.to_vec(),
        })
    }

    /// A header as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The scripted replica that answered.
    #[must_use]
    pub fn served_by(&self) -> Option<&str> {
        self.header(crate::scripted_replica::SERVED_BY)
    }

    /// One value of `x-isotherm-decision`, such as `replica`.
    #[must_use]
    pub fn decision(&self, member: &str) -> Option<&str> {
        self.header("x-isotherm-decision")?
            .split(';')
            .find_map(|part| part.strip_prefix(member)?.strip_prefix('='))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none; the message shows it.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }
}
