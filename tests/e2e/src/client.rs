//! An HTTP client that sends one request and reads the whole response.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::MODEL;

/// Longer than any request of these tests takes.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(600);
const CHAT_PATH: &str = "/v1/chat/completions";

/// A client of one base URL.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

/// A whole response.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Vec<u8>,
}

/// The body of a chat request with one message and one token of output.
pub fn chat(prompt: &str) -> Value {
    json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": prompt }],
        "max_tokens": 1,
    })
}

/// Sends a request and reads the whole response.
pub async fn send(request: RequestBuilder) -> anyhow::Result<HttpResponse> {
    HttpResponse::read(request.send().await?).await
}

/// Waits for responses and checks that each has the status 200.
pub async fn expect_success(
    responses: impl IntoIterator<Item = JoinHandle<anyhow::Result<HttpResponse>>>,
) -> anyhow::Result<()> {
    for response in try_join_all(responses).await? {
        response?.success()?;
    }
    Ok(())
}

impl Client {
    /// A client of `base`, such as `http://127.0.0.1:10000`.
    pub fn new(base: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(REQUEST_TIME_MAX)
            .no_proxy()
            .build()?;
        Ok(Self {
            http,
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// A `GET` request.
    pub fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base))
    }

    /// A `POST` request with a JSON body.
    pub fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.http.post(format!("{}{path}", self.base)).json(body)
    }

    /// A `POST` request for a chat completion.
    pub fn post_chat(&self, body: &Value) -> RequestBuilder {
        self.post(CHAT_PATH, body)
    }

    /// Sends a chat request in a session, and reads the whole response.
    pub async fn chat(&self, session: &str, body: &Value) -> anyhow::Result<HttpResponse> {
        send(self.post_chat(body).header("x-session-id", session)).await
    }

    /// Sends a chat request with one message in a task of its own.
    pub fn spawn_chat(&self, prompt: &str) -> JoinHandle<anyhow::Result<HttpResponse>> {
        tokio::spawn(send(self.post_chat(&chat(prompt))))
    }
}

impl HttpResponse {
    /// Reads the rest of a response.
    pub async fn read(response: Response) -> anyhow::Result<Self> {
        Ok(Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await?.to_vec(),
        })
    }

    /// The response, if its status is 200.
    pub fn success(self) -> anyhow::Result<Self> {
        ensure!(self.status == 200, "{}: {}", self.status, self.text());
        Ok(self)
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The name of the scripted replica that responded.
    pub fn served_by(&self) -> Option<&str> {
        self.header(crate::scripted_replica::SERVED_BY)
    }

    /// A value of `x-isotherm-decision`, such as `replica`.
    pub fn decision(&self, member: &str) -> Option<&str> {
        self.header("x-isotherm-decision")?
            .split(';')
            .find_map(|part| part.strip_prefix(member)?.strip_prefix('='))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }
}
