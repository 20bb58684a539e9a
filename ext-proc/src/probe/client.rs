//! The client of a pool's probes: plain HTTP, or TLS with the authority of `probe.ca`, and the token of `probe.token_file`.
//!
//! The service reads the files at its start, when they change, and when the options change. After a change of a file that it
//! cannot use, the old client stays. After a change of the options, no probe is sent until the files can be used: falling back
//! to plain HTTP would send the token in clear.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::HeaderValue;
use tokio::sync::watch;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::config::{PoolConfig, ProbeConfig};
use crate::file_watcher::FileWatcher;
use crate::http_client::HttpClient;
use crate::peering::authorities;

/// The longest token, in bytes.
const TOKEN_BYTES_MAX: u64 = 4_096;

/// A client for the replicas of a pool; clones share their connections.
#[derive(Clone, Debug)]
pub(super) struct ReplicaClient {
    pub(super) http: HttpClient,
    /// The header `authorization` of each request.
    pub(super) authorization: Option<HeaderValue>,
    /// Whether a connection stays open after its request.
    pub(super) keeps_connection: bool,
}

/// A client, or the reason why there is none.
pub(super) type LoadedClient = Result<ReplicaClient, Arc<str>>;

impl ReplicaClient {
    /// Reads the files of the options. `plain` serves pools without TLS.
    pub(super) fn load(options: &ProbeConfig, plain: &HttpClient) -> LoadedClient {
        let http = match &options.ca {
            Some(ca) => tls_client(ca, options.server_name.as_deref())?,
            None => plain.clone(),
        };
        let token = options.token_file.as_deref();
        Ok(Self {
            http,
            authorization: token.map(authorization).transpose()?,
            keeps_connection: true,
        })
    }
}

/// Keeps the client of a pool up to date: `clients` gets each new one. Returns when the pool is gone.
pub(super) async fn follow(
    mut config: watch::Receiver<Arc<PoolConfig>>,
    plain: HttpClient,
    clients: watch::Sender<LoadedClient>,
) {
    loop {
        let options = config.borrow_and_update().probe.clone();
        drop(clients.send_replace(ReplicaClient::load(&options, &plain)));
        let new_files = config.wait_for(|new| !has_same_files(&options, &new.probe));
        tokio::select! {
            changed = new_files => if changed.is_err() { return },
            () = follow_files(&options, &plain, &clients) => {}
        }
    }
}

/// Reads the files of the options again when they change. Never returns.
async fn follow_files(
    options: &ProbeConfig,
    plain: &HttpClient,
    clients: &watch::Sender<LoadedClient>,
) {
    let files = files(options);
    if files.is_empty() {
        return std::future::pending().await;
    }
    let mut watcher = FileWatcher::new(files);
    loop {
        watcher.changed().await;
        match ReplicaClient::load(options, plain) {
            Ok(client) => drop(clients.send_replace(Ok(client))),
            Err(error) => tracing::error!(
                %error,
                "the new files of `probe` are refused; the old ones stay in use"
            ),
        }
    }
}

fn files(options: &ProbeConfig) -> Vec<PathBuf> {
    let ca = options.ca.iter();
    ca.chain(&options.token_file).cloned().collect()
}

fn has_same_files(old: &ProbeConfig, new: &ProbeConfig) -> bool {
    let files = |options: &ProbeConfig| {
        let ProbeConfig {
            ca,
            server_name,
            token_file,
            ..
        } = options.clone();
        (ca, server_name, token_file)
    };
    files(old) == files(new)
}

fn tls_client(ca: &Path, server_name: Option<&str>) -> Result<HttpClient, String> {
    let authorities = authorities(ca).map_err(|error| error.to_string())?;
    let name = server_name.map(|name| ServerName::try_from(name.to_owned()));
    let name = name.transpose().map_err(|error| error.to_string())?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(authorities)
        .with_no_client_auth();
    Ok(HttpClient::with_tls(config, name))
}

fn authorization(file: &Path) -> Result<HeaderValue, String> {
    let wrong = |reason: &dyn std::fmt::Display| format!("{}: {reason}", file.display());
    let length = std::fs::metadata(file)
        .map_err(|error| wrong(&error))?
        .len();
    if length > TOKEN_BYTES_MAX {
        return Err(wrong(&format!("more than {TOKEN_BYTES_MAX} bytes")));
    }
    let token = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let token = token.trim();
    if token.is_empty() {
        return Err(wrong(&"holds no token"));
    }
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| wrong(&"holds characters that no header can carry"))?;
    value.set_sensitive(true);
    Ok(value)
}
