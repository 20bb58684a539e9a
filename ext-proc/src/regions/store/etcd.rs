//! Records in etcd, by its JSON gateway (`/v3/kv/range`, `/v3/kv/txn`).
//!
//! A record is the value of the key `PREFIX` + the region's name. Its version is the revision of the key's last change; zero, for a
//! key that does not exist, is the version that creates it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hyper::Request;
use isotherm_regions::{RegionEntry, StoreVersion};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;

use crate::config::{StoreConfig, TlsFiles};
use crate::http_client::HttpClient;
use crate::lease_store::{StoreError, StoredEntries};
use crate::peering::{authorities, certificates, key};

/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Share of the wait for a call after which its endpoint counts as hung, before the caller gives the call up.
const HUNG_SHARE: f64 = 0.9;
/// The prefix of the keys.
const PREFIX: &str = "/isotherm/regions/";
/// Most records of a list.
const RECORDS_MAX: usize = 1_024;

#[derive(Debug)]
pub(in crate::regions) struct Etcd {
    http: HttpClient,
    endpoints: Vec<String>,
    /// The endpoint of the next call: the one that answered last, or the one behind an endpoint that did not.
    current: AtomicUsize,
    wait_max: Duration,
}

/// Answer to a range.
#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: String,
    mod_revision: String,
}

/// Answer to a transaction.
#[derive(Deserialize)]
struct Transaction {
    /// Absent when the comparison failed.
    #[serde(default)]
    succeeded: bool,
    header: Header,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

impl Etcd {
    pub(super) fn open(config: &StoreConfig, wait_max: Duration) -> anyhow::Result<Self> {
        let http = match &config.tls {
            None => HttpClient::new(),
            Some(files) => {
                let tls = client_config(files).context("region.store.tls")?;
                HttpClient::with_tls(tls, None)
            }
        };
        let endpoints = config.etcd.iter();
        let url = |address| format!("{}://{address}", http.scheme());
        Ok(Self {
            endpoints: endpoints.map(url).collect(),
            http,
            current: AtomicUsize::default(),
            wait_max: wait_max.mul_f64(HUNG_SHARE),
        })
    }

    pub(super) async fn list(&self) -> Result<StoredEntries, StoreError> {
        let request = json!({
            "key": BASE64_STANDARD.encode(PREFIX),
            "range_end": BASE64_STANDARD.encode(range_end(PREFIX)),
            "limit": RECORDS_MAX,
        });
        let found: Range = self.post("range", &request).await?;
        let mut listing = StoredEntries::default();
        for found in &found.kvs {
            let [key, value] = [&found.key, &found.value]
                .map(|text| BASE64_STANDARD.decode(text).unwrap_or_default());
            let key = String::from_utf8_lossy(&key);
            let version = StoreVersion(found.mod_revision.as_str().into());
            listing.add(&value, &key, PREFIX, version);
        }
        Ok(listing)
    }

    pub(super) async fn write(
        &self,
        entry: &RegionEntry,
        expected: Option<&StoreVersion>,
    ) -> Result<Option<StoreVersion>, StoreError> {
        let key = BASE64_STANDARD.encode(format!("{PREFIX}{}", entry.region));
        let value = serde_json::to_vec(entry).map_err(|error| StoreError(error.to_string()))?;
        let value = BASE64_STANDARD.encode(value);
        let version = expected.map_or("0", |version| &version.0);
        let request = json!({
            "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": version }],
            "success": [{ "request_put": { "key": key, "value": value } }],
        });
        let done: Transaction = self.post("txn", &request).await?;
        let version = StoreVersion(done.header.revision.into());
        Ok(done.succeeded.then_some(version))
    }

    /// Sends a call to the current endpoint, and to the others in turn while it fails. The caller bounds the time: behind an endpoint
    /// that hangs, the next call begins with the next endpoint.
    async fn post<T: DeserializeOwned>(&self, call: &str, body: &Value) -> Result<T, StoreError> {
        let mut failed = StoreError("no endpoint".to_owned());
        let (first, count) = (self.current.load(Ordering::Relaxed), self.endpoints.len());
        let in_turn = self.endpoints.iter().cycle().skip(first).take(count);
        for (endpoint, next) in in_turn.zip(first + 1..) {
            match self.post_to(endpoint, call, body).await {
                Ok(answer) => return Ok(answer),
                Err(error) => failed = StoreError(format!("etcd at {endpoint}: {error}")),
            }
            self.current.store(next % count, Ordering::Relaxed);
        }
        Err(failed)
    }

    async fn post_to<T: DeserializeOwned>(
        &self,
        endpoint: &str,
        call: &str,
        body: &Value,
    ) -> Result<T, StoreError> {
        let error = |error: &dyn std::fmt::Display| StoreError(error.to_string());
        let request = Request::post(format!("{endpoint}/v3/kv/{call}"))
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_string()))
            .map_err(|failed| error(&failed))?;
        let answer = self
            .http
            .fetch(request, self.wait_max, ANSWER_BYTES_MAX)
            .await;
        let answer = answer.map_err(|failed| error(&failed))?;
        if !answer.status().is_success() {
            let text = String::from_utf8_lossy(answer.body());
            return Err(error(&format_args!("{}: {}", answer.status(), text.trim())));
        }
        serde_json::from_slice(answer.body()).map_err(|failed| error(&failed))
    }
}

/// The TLS configuration of a client with a certificate.
fn client_config(files: &TlsFiles) -> anyhow::Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities(&files.ca)?)
        .with_client_auth_cert(certificates(&files.certificate)?, key(&files.key)?)?;
    Ok(config)
}

/// The end of the range of all keys with a prefix: the prefix with its last byte raised.
fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::http::StatusCode;
    use axum::response::{IntoResponse, Json};
    use axum::routing::post;
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::Address;
    use crate::tasks::AbortOnDrop;

    /// Longest wait for a call, longer than a busy machine delays an answer. A member counts as hung a little before.
    const WAIT_MAX: Duration = Duration::from_secs(2);

    #[derive(Clone, Copy)]
    enum Health {
        Well,
        /// Without a leader, as etcd answers then.
        Unavailable,
        Hung,
    }

    /// A member of the store, and how many lists it was asked for.
    struct Member {
        address: SocketAddr,
        lists: Arc<AtomicUsize>,
        _server: AbortOnDrop,
    }

    impl Member {
        async fn start(health: Health) -> Self {
            let lists = Arc::new(AtomicUsize::new(0));
            let asked = Arc::clone(&lists);
            let list = move || async move {
                asked.fetch_add(1, Ordering::Relaxed);
                match health {
                    Health::Well => Json(json!({ "count": "0" })).into_response(),
                    Health::Unavailable => StatusCode::SERVICE_UNAVAILABLE.into_response(),
                    Health::Hung => std::future::pending().await,
                }
            };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let members = Router::new().route("/v3/kv/range", post(list));
            let server = tokio::spawn(async move { axum::serve(listener, members).await });
            Self {
                address,
                lists,
                _server: AbortOnDrop(server.abort_handle()),
            }
        }

        fn lists(&self) -> usize {
            self.lists.load(Ordering::Relaxed)
        }
    }

    /// An address at which nothing listens.
    async fn away() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    }

    fn open(members: &[SocketAddr]) -> Etcd {
        let config = StoreConfig {
            etcd: members.iter().copied().map(Address::from).collect(),
            ..StoreConfig::default()
        };
        Etcd::open(&config, WAIT_MAX).unwrap()
    }

    #[tokio::test]
    async fn a_call_tries_the_members_in_turn_and_the_next_one_begins_with_the_member_that_answered()
     {
        let (unavailable, well) = (
            Member::start(Health::Unavailable).await,
            Member::start(Health::Well).await,
        );
        let store = open(&[away().await, unavailable.address, well.address]);
        for _ in 0..3 {
            store.list().await.unwrap();
        }
        assert_eq!((unavailable.lists(), well.lists()), (1, 3));
    }

    #[tokio::test]
    async fn behind_a_member_that_hangs_the_next_call_begins_with_the_next_member() {
        let (hung, well) = (
            Member::start(Health::Hung).await,
            Member::start(Health::Well).await,
        );
        let store = open(&[hung.address, well.address]);
        // Whether the other member still answers this call is a matter of milliseconds.
        let _ = tokio::time::timeout(WAIT_MAX, store.list()).await;
        store.list().await.unwrap();
        assert_eq!(hung.lists(), 1);
    }

    #[tokio::test]
    async fn without_a_member_that_answers_the_error_names_the_last_one() {
        let [first, second] = [away().await, away().await];
        let error = open(&[first, second]).list().await.unwrap_err().to_string();
        assert!(error.contains(&second.to_string()), "{error}");
    }
}
