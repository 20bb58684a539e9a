//! The service's view of the batch work that it holds: `GET /api/batch` of its admin interface.
//!
//! A worker that knows how much the gate holds for a model sends no more than the gate can soon release: bodies wait in
//! the database instead of in Envoy. Without the page, or with one that is not understood, 429 alone paces the worker.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::header::AUTHORIZATION;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;

use super::GatewayError;
use super::client::{base_url, read_token};

/// Largest page, in bytes.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Longest time for the page.
const PAGE_TIME_MAX: Duration = Duration::from_secs(2);

/// The page of a service's admin interface.
#[derive(Clone, Debug)]
pub struct StatusPage {
    client: Client<HttpConnector, Empty<Bytes>>,
    url: String,
    token_file: Option<PathBuf>,
}

/// The gate of a pool. A pool is named by its model.
#[derive(Deserialize)]
struct PoolGate {
    pool: String,
    held: u64,
}

impl StatusPage {
    /// Creates a client of the admin interface at `url`, which beyond loopback asks for the token in a file. Must be called
    /// inside a tokio runtime.
    ///
    /// # Errors
    /// The URL is not understood.
    pub fn new(url: &str, token_file: Option<PathBuf>) -> Result<Self, GatewayError> {
        let url = match url.contains("://") {
            true => base_url(url)?,
            false => base_url(&format!("http://{url}"))?,
        };
        if url.starts_with("https:") {
            return Err(GatewayError::Url(url));
        }
        Ok(Self {
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build_http(),
            url: format!("{url}/api/batch"),
            token_file,
        })
    }

    /// Reads the page: what the gate holds, by model. The error says why it cannot be read.
    ///
    /// # Errors
    /// A text for the log.
    pub async fn read(&self) -> Result<BTreeMap<String, u64>, String> {
        let exchange = async {
            let request = Request::get(&self.url).body(Empty::new());
            let mut request = request.map_err(|error| error.to_string())?;
            if let Some(file) = &self.token_file {
                let token = read_token(file).map_err(|error| error.to_string())?;
                request.headers_mut().insert(AUTHORIZATION, token);
            }
            let response = self
                .client
                .request(request)
                .await
                .map_err(|error| error.to_string())?;
            let status = response.status();
            if !status.is_success() {
                return Err(format!("status {status}"));
            }
            let body = Limited::new(response.into_body(), PAGE_BYTES_MAX)
                .collect()
                .await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            parse(&body)
        };
        let page = tokio::time::timeout(PAGE_TIME_MAX, exchange).await;
        page.unwrap_or_else(|_| Err("no response in time".to_owned()))
    }
}

fn parse(body: &[u8]) -> Result<BTreeMap<String, u64>, String> {
    let gates: Vec<PoolGate> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let holds = gates.into_iter().map(|gate| (gate.pool, gate.held));
    Ok(holds.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_read_by_model_and_unknown_members_are_ignored() {
        let page = br#"[{"pool":"m","has_gate":true,"utilisation":0.42,"credit":1,"held":3,"released":{"below_high":9}},
            {"pool":"q","has_gate":false,"held":0}]"#;
        let pools = parse(page).unwrap();
        assert_eq!(pools.get("m"), Some(&3));
        assert_eq!(pools.get("q"), Some(&0));
        assert!(parse(b"{}").is_err());
    }
}
