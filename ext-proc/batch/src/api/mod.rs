//! OpenAI's batch API: files and batches, for any client of that API.

mod auth;
mod batches;
mod connections;
mod error;
mod files;
mod health;
mod object;
mod places;
mod server;
mod upload;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

pub use error::ApiError;
pub use health::{HealthPage, health};
pub use object::{BatchObject, FileObject};

use connections::REQUESTS_MAX;
use places::OwnerPlaces;

use crate::limits::{Limits, OWNER_WITHOUT_KEY};
use crate::store::Store;

/// Largest body of a request without a file, in bytes.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Most uploads at once.
const UPLOADS_MAX: u64 = 8;
/// Most downloads at once.
const DOWNLOADS_MAX: u64 = 64;

/// Configuration of the API.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// File with the keys of clients, one in a line, alone or behind the name of its owner. The file is read for each
    /// request.
    pub keys_file: Option<PathBuf>,
    /// Bounds.
    pub limits: Limits,
    /// Pages beside the API, which ask for no key.
    pub open_pages: Router,
}

/// The TLS handshake of a listener.
pub type TlsHandshake = Arc<
    dyn Fn(TcpStream) -> BoxFuture<'static, std::io::Result<TlsStream<TcpStream>>> + Send + Sync,
>;

/// State of the API.
#[derive(Debug)]
struct Api {
    store: Store,
    config: ApiConfig,
    requests: OwnerPlaces,
    uploads: OwnerPlaces,
    downloads: OwnerPlaces,
    /// Held from the look at a bound to what takes of it.
    admission: Mutex<()>,
}

/// Client that sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    name: String,
    /// Whether other owners exist: then this one has a share of each bound.
    is_shared: bool,
}

impl Owner {
    /// The owner where clients have no keys.
    fn alone() -> Self {
        Self {
            name: OWNER_WITHOUT_KEY.to_owned(),
            is_shared: false,
        }
    }
}

/// Serves the API on `listener`, by TLS if there is a handshake, until `stop` is cancelled.
pub async fn serve(
    (listener, tls): (TcpListener, Option<TlsHandshake>),
    store: Store,
    mut config: ApiConfig,
    stop: CancellationToken,
) {
    let pages = std::mem::take(&mut config.open_pages);
    let is_loopback = config.listen.ip().is_loopback();
    let api = Arc::new(Api {
        store,
        config,
        requests: OwnerPlaces::new(REQUESTS_MAX as u64),
        uploads: OwnerPlaces::new(UPLOADS_MAX),
        downloads: OwnerPlaces::new(DOWNLOADS_MAX),
        admission: Mutex::default(),
    });
    let router = router(api).merge(pages);
    server::serve((listener, tls), router, is_loopback, stop).await;
}

fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route(
            "/v1/files",
            post(upload::create).layer(DefaultBodyLimit::disable()),
        )
        .route("/v1/files", get(files::list))
        .route("/v1/files/{id}", get(files::show).delete(files::delete))
        .route("/v1/files/{id}/content", get(files::content))
        .route("/v1/batches", post(batches::create).get(batches::list))
        .route("/v1/batches/{id}", get(batches::show))
        .route("/v1/batches/{id}/cancel", post(batches::cancel))
        .layer(from_fn_with_state(Arc::clone(&api), auth::check))
        // Health is no secret: an orchestrator has no key.
        .route(health::ALIVE, get(health::alive))
        .route(health::READY, get(health::ready))
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(api)
}
