//! Sends lines to Envoy.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{HeaderMap, Method, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::Answer;
use crate::endpoint::Endpoint;
use crate::output::StoredResponse;
use crate::pace::Priority;

/// Longest time for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Time that an idle connection is kept: less than Envoy keeps it.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Longest token file, in bytes.
const TOKEN_BYTES_MAX: u64 = 16 * 1024;
/// Longest `x-request-id` that is kept, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 256;

const TIER: HeaderName = HeaderName::from_static("x-tier");
const DEADLINE: HeaderName = HeaderName::from_static("x-deadline");
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where and how to send lines.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Address of Envoy: scheme and authority.
    pub url: String,
    /// File with the bearer token for Envoy. It is read for each request, so a new token needs no restart.
    pub token_file: Option<PathBuf>,
    /// File with the certificates that sign Envoy's; without it, the system's.
    pub ca_file: Option<PathBuf>,
    /// Longest time for one response.
    pub response_time_max: Duration,
    /// Size of one response, in bytes.
    pub response_bytes_max: usize,
    /// Header that carries the batch's owner as tenant, if any.
    pub tenant_header: Option<String>,
}

/// A mistake in the description of the gateway.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// No URL of the expected form.
    #[error(
        "`{0}` is no address of a gateway: write scheme and host only, such as `http://127.0.0.1:10000`; the paths stand in the input"
    )]
    Url(String),
    /// No certificates.
    #[error("the certificates in {file} cannot be read: {cause}")]
    Certificates {
        /// Path of the file.
        file: String,
        /// Cause.
        cause: String,
    },
    /// No TLS.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// No token.
    #[error("the token in {file} cannot be used: {cause}")]
    Token {
        /// Path of the file.
        file: String,
        /// Cause.
        cause: String,
    },
    /// No header name.
    #[error("`{0}` is no name of a header")]
    Header(String),
}

/// A line as the gateway gets it.
#[derive(Clone, Debug)]
pub struct LineRequest {
    /// Path.
    pub endpoint: Endpoint,
    /// Body.
    pub body: Bytes,
    /// Tier.
    pub priority: Priority,
    /// Deadline, in seconds since the Unix epoch.
    pub deadline_s: i64,
    /// Time that is left until the deadline.
    pub time_left: Duration,
    /// Name of the line in the engine's log.
    pub request_id: String,
    /// Owner of the batch.
    pub owner: String,
}

/// The gateway. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Gateway {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    config: GatewayConfig,
    tenant_header: Option<HeaderName>,
    /// Cause for which the last attempt to connect failed.
    unreachable: Arc<Mutex<Option<String>>>,
}

impl Gateway {
    /// Creates a client of the gateway, and checks its description. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The first mistake in the description.
    pub fn new(mut config: GatewayConfig, connections_max: usize) -> Result<Self, GatewayError> {
        config.url = base_url(&config.url)?;
        if let Some(file) = &config.token_file {
            read_token(file)?;
        }
        let tenant_header = config.tenant_header.as_ref().map(|name| {
            let header = name.to_ascii_lowercase().parse::<HeaderName>();
            header.map_err(|_| GatewayError::Header(name.clone()))
        });
        let tenant_header = tenant_header.transpose()?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(connections_max)
            .build(connector(config.ca_file.as_deref())?);
        Ok(Self {
            client,
            config,
            tenant_header,
            unreachable: Arc::default(),
        })
    }

    /// Cause for which the gateway cannot be reached, as the last attempt found.
    #[must_use]
    pub fn unreachable_cause(&self) -> Option<String> {
        self.unreachable.lock().clone()
    }

    /// Opens a connection and closes it, so that a gateway that is not there is known before the first line.
    pub async fn probe(&self) {
        let Ok(uri) = self.config.url.parse::<Uri>() else {
            return; // not possible: the URL was checked
        };
        let port = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let connection = TcpStream::connect((host, uri.port_u16().unwrap_or(port)));
        let cause = match tokio::time::timeout(CONNECT_TIME_MAX, connection).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!(
                "no connection within {} s",
                CONNECT_TIME_MAX.as_secs()
            )),
        };
        self.note(cause);
    }

    /// Keeps the cause for which the gateway cannot be reached, and logs when it becomes so.
    fn note(&self, cause: Option<String>) {
        let mut known = self.unreachable.lock();
        let url = &self.config.url;
        match (&cause, known.is_some()) {
            (Some(cause), false) => tracing::warn!("cannot reach {url}: {cause}; trying again"),
            (None, true) => tracing::info!("{url} can be reached again"),
            _ => {}
        }
        *known = cause;
    }

    /// Sends a line, and waits for the whole response: until the deadline, or the longest time for one response.
    pub async fn send(&self, line: LineRequest) -> Answer {
        let is_cut_by_deadline = line.time_left < self.config.response_time_max;
        let time_max = line.time_left.min(self.config.response_time_max);
        let request = match self.request(line) {
            Ok(request) => request,
            Err(error) => return Answer::Unreachable(error.to_string()),
        };
        match tokio::time::timeout(time_max, self.exchange(request)).await {
            Ok(answer) => {
                self.note(match &answer {
                    Answer::Unreachable(cause) => Some(cause.clone()),
                    _ => None,
                });
                answer
            }
            Err(_) if is_cut_by_deadline => Answer::DeadlinePassed,
            Err(_) => Answer::Broken(format!("no response within {} s", time_max.as_secs())),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Answer {
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Answer::Unreachable(cause(&error)),
            Err(error) => return Answer::Broken(cause(&error)),
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.config.response_bytes_max).collect();
        let body = match body.await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Answer::TooLarge,
            Err(error) => return Answer::Broken(cause(error.as_ref())),
        };
        Answer::Response {
            retry_after: retry_after(&head.headers),
            response: StoredResponse {
                status: head.status.as_u16(),
                request_id: request_id(&head.headers),
                body: body.to_vec(),
            },
        }
    }

    fn request(&self, line: LineRequest) -> Result<Request<Full<Bytes>>, GatewayError> {
        let url = format!("{}{}", self.config.url, line.endpoint.path());
        let uri: Uri = url.parse().map_err(|_| GatewayError::Url(url.clone()))?;
        let mut request = Request::new(Full::new(line.body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("isotherm-batch"));
        headers.insert(TIER, HeaderValue::from_static(line.priority.tier()));
        headers.insert(DEADLINE, HeaderValue::from(line.deadline_s));
        if let Ok(id) = HeaderValue::try_from(line.request_id) {
            headers.insert(CLIENT_REQUEST_ID, id);
        }
        if let (Some(name), Ok(owner)) = (&self.tenant_header, HeaderValue::try_from(line.owner)) {
            headers.insert(name.clone(), owner);
        }
        if let Some(file) = &self.config.token_file {
            headers.insert(AUTHORIZATION, read_token(file)?);
        }
        Ok(request)
    }
}

/// The URL without a slash at its end.
pub(super) fn base_url(url: &str) -> Result<String, GatewayError> {
    let error = || GatewayError::Url(url.chars().take(200).collect());
    let base = url.strip_suffix('/').unwrap_or(url);
    let uri: Uri = base.parse().map_err(|_| error())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    let has_user = uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'));
    let has_path = uri.path() != "/" || uri.query().is_some();
    if !is_http || !has_host || has_user || has_path {
        return Err(error());
    }
    Ok(base.to_owned())
}

fn connector(ca_file: Option<&Path>) -> Result<HttpsConnector<HttpConnector>, GatewayError> {
    let tls = |error: &dyn Error| GatewayError::Tls(error.to_string());
    let provider = crypto::ring::default_provider();
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIME_MAX));
    http.enforce_http(false);
    let builder = match ca_file {
        Some(file) => {
            let config = ClientConfig::builder_with_provider(provider.into())
                .with_safe_default_protocol_versions()
                .map_err(|error| tls(&error))?
                .with_root_certificates(authorities(file)?)
                .with_no_client_auth();
            HttpsConnectorBuilder::new().with_tls_config(config)
        }
        None => match HttpsConnectorBuilder::new().with_provider_and_native_roots(provider.clone())
        {
            Ok(builder) => builder,
            // A machine without certificates can still use `http`.
            Err(error) => {
                tracing::debug!(%error, "the system has no certificates");
                let config = ClientConfig::builder_with_provider(provider.into())
                    .with_safe_default_protocol_versions()
                    .map_err(|error| tls(&error))?
                    .with_root_certificates(RootCertStore::empty())
                    .with_no_client_auth();
                HttpsConnectorBuilder::new().with_tls_config(config)
            }
        },
    };
    Ok(builder.https_or_http().enable_http1().wrap_connector(http))
}

fn authorities(file: &Path) -> Result<RootCertStore, GatewayError> {
    let error = |cause: String| GatewayError::Certificates {
        file: file.display().to_string(),
        cause,
    };
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|cause| error(cause.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|cause| error(cause.to_string()))?;
        roots
            .add(certificate)
            .map_err(|cause| error(cause.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(error("it has no certificate".to_owned())),
        false => Ok(roots),
    }
}

/// The value of `authorization`.
pub(super) fn read_token(file: &Path) -> Result<HeaderValue, GatewayError> {
    let error = |cause: String| GatewayError::Token {
        file: file.display().to_string(),
        cause,
    };
    let length = std::fs::metadata(file)
        .map_err(|cause| error(cause.to_string()))?
        .len();
    if length > TOKEN_BYTES_MAX {
        return Err(error(format!("it has more than {TOKEN_BYTES_MAX} bytes")));
    }
    let token = std::fs::read_to_string(file).map_err(|cause| error(cause.to_string()))?;
    let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| error("it is not one line of text".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// `Retry-After` in seconds; a date is not read, since Isotherm sends none.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    (id.len() <= REQUEST_ID_BYTES_MAX).then(|| id.to_owned())
}

/// The cause, which says more than the errors around it.
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_a_scheme_and_a_host() {
        for (url, base) in [
            ("http://127.0.0.1:10000", "http://127.0.0.1:10000"),
            ("https://llm.example/", "https://llm.example"),
        ] {
            assert_eq!(base_url(url).unwrap(), base);
        }
        for url in [
            "",
            "127.0.0.1:10000",
            "ftp://host",
            "http://host/v1",
            "http://host?x",
            "http://user:secret@host",
            "http://",
        ] {
            assert!(base_url(url).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn a_gateway_that_is_not_there_is_known_before_the_first_line() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = GatewayConfig {
            url: format!("http://{}", listener.local_addr().unwrap()),
            token_file: None,
            ca_file: None,
            response_time_max: Duration::from_secs(1),
            response_bytes_max: 1,
            tenant_header: None,
        };
        let gateway = Gateway::new(config, 1).unwrap();
        gateway.probe().await;
        assert_eq!(gateway.unreachable_cause(), None);
        drop(listener);
        gateway.probe().await;
        let cause = gateway.unreachable_cause().unwrap();
        assert!(cause.contains("refused"), "{cause}");
    }

    #[test]
    fn retry_after_is_in_seconds() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers), None);
        headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(7)));
        headers.insert(RETRY_AFTER, HeaderValue::from_static("-1"));
        assert_eq!(retry_after(&headers), None);
    }

    #[test]
    fn a_token_is_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        assert!(read_token(&file).is_err());
        std::fs::write(&file, "secret\n").unwrap();
        assert_eq!(read_token(&file).unwrap(), "Bearer secret");
        std::fs::write(&file, "a\nb").unwrap();
        assert!(read_token(&file).is_err());
        std::fs::write(&file, vec![b'x'; 20_000]).unwrap();
        assert!(read_token(&file).is_err());
    }
}
