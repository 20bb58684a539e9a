//! The HTTP interface for operators.
//!
//! | request | effect |
//! | --- | --- |
//! | `GET /`, `GET /favicon.svg` | returns the live page, which reads the pages below, and its icon |
//! | `GET /healthz` | returns 200 while the process runs |
//! | `GET /readyz` | returns 200 once every configured replica has been probed, until the service stops |
//! | `GET /metrics` | returns the metrics in the OpenMetrics text format |
//! | `GET /api/pools` | returns the pools: policy, queue, index and counters |
//! | `GET /api/replicas[?pool=MODEL]` | returns the replicas: load, probe, and whether they accept another request |
//! | `POST /api/replicas` `{"pool": MODEL, "address": "ip:port"}` | adds a replica |
//! | `DELETE /api/replicas/{address}[?pool=MODEL]` | removes a replica; its requests in flight end as usual |
//! | `POST /api/replicas/{address}/drain[?pool=MODEL][&wait_ms=N]` | drains a replica: it gets no new request. With `wait_ms`, returns when it has none left, or with 408 |
//! | `POST /api/replicas/{address}/undrain[?pool=MODEL]` | lets a draining replica serve again |
//! | `POST /api/replicas/{address}/flush[?pool=MODEL]` | forgets what the replica's cache held, as after new weights |
//! | `GET /api/scaling` | returns the number of replicas of each pool, its forecast and its reason |
//! | `POST /api/scaling/hold` `{"pool", "replicas", "seconds"}` | holds the number of a pool; without `replicas` and `seconds`, ends the hold |
//! | `GET /api/batch[?pool=MODEL]` | returns the gates for batch work: utilisation, credit, and what each holds |
//! | `GET /api/tenants[?pool=MODEL]` | returns the tenants: requests and tokens |
//! | `GET /api/history[?pool=MODEL]` | returns ten minutes of each pool: requests by reason, cache hits and times to the first byte, every five seconds |
//! | `GET /api/regions` | returns the regions: links, heartbeats, pools, and leased replicas |
//! | `GET /api/decisions` | returns the last hundred decisions and their outcomes; the service keeps them while a page asks for them |
//! | `POST /api/explain` `{"path", "headers", "body", "filter"}` | returns the decision on a request, and the reason; changes nothing |
//! | `POST /api/recording` `{"pool", "requests", "seconds"}` | records live traffic, without any text, and streams it; needs `recording` |
//! | `POST /api/reload` | applies the configuration file again |
//!
//! `pool` may be absent if there is one pool. Changes need a bearer token of `admin.token_file`; without a configured
//! token the service rejects them. Beyond loopback every page below `/api` needs the token. Each change writes a line to the
//! log target `isotherm_audit`. Replicas added here come on top of those of the file: a reload keeps them, a restart
//! does not. On loopback the service answers only requests to an IP address or to `localhost`, so that no web page can send
//! requests through a browser under a name of its own. Errors are `{"error": {"code", "message"}}`.

mod auth;
mod connections;
mod error;
mod explain;
mod health;
mod history;
mod live;
mod pools;
mod recording;
mod regions;
mod replicas;
mod scaling;
mod server;
mod tiers;
pub(crate) mod view;

pub(crate) use health::metrics_response;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::from_fn_with_state;
use axum::response::Json;
use axum::routing::{delete, get, post};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::config::{ReloadResult, Reloader};
use crate::pool::PoolRegistry;
use crate::regions::RegionsHandle;
use crate::scaling::ScalingHandle;
use error::ApiError;

/// The largest request, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The largest request of `/api/explain`, in bytes: a prompt of 16 MB, escaped.
const EXPLAIN_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Reads a body as each request that has one, without its effect.
pub(crate) fn read_body(body: &[u8]) {
    explain::read_body(body);
    replicas::read_body(body);
    scaling::read_body(body);
    recording::read_body(body);
}

/// The admin interface: the state that it shows and changes.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The pools.
    pub pool_registry: Arc<PoolRegistry>,
    /// The metrics.
    pub registry: Arc<Registry>,
    /// Handle of the other regions, if the configuration names any.
    pub regions: Option<RegionsHandle>,
    /// The numbers of replicas.
    pub scaling: ScalingHandle,
    /// The reloader of the configuration file.
    pub reloader: Arc<Reloader>,
    /// The file with the bearer tokens.
    pub token_file: Option<PathBuf>,
    /// Whether other hosts can reach the listener.
    pub is_beyond_loopback: bool,
    /// Whether the service is ready, and not stopping.
    pub serving: watch::Receiver<bool>,
}

impl Admin {
    /// Serves on `listener` until `stop` resolves and the requests in flight have ended.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()> + Send) {
        let admin = Arc::new(self);
        let pages = open_pages()
            .route("/", get(live::page))
            .route("/favicon.svg", get(live::favicon));
        let router = pages.merge(api(&admin)).with_state(admin);
        server::serve(listener, with_errors(router), stop).await;
    }

    /// Serves metrics and health alone on `listener`, as [`Admin::serve`] does.
    pub async fn serve_metrics(self, listener: TcpListener, stop: impl Future<Output = ()> + Send) {
        serve_pages(listener, open_pages().with_state(Arc::new(self)), stop).await;
    }
}

/// Serves pages that every client may read on `listener`, as [`Admin::serve`] does.
pub(crate) async fn serve_pages(
    listener: TcpListener,
    pages: Router,
    stop: impl Future<Output = ()> + Send,
) {
    server::serve(listener, with_errors(pages), stop).await;
}

/// Returns the pages that every client may read: they name no prompt and no session.
fn open_pages() -> Router<Arc<Admin>> {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
}

/// Returns the pages that [`auth::check`] protects.
fn api(admin: &Arc<Admin>) -> Router<Arc<Admin>> {
    let explain = post(explain::explain).layer(DefaultBodyLimit::max(EXPLAIN_BYTES_MAX));
    Router::new()
        .route("/api/decisions", get(live::decisions))
        .route("/api/pools", get(pools::list))
        .route("/api/history", get(history::show))
        .route("/api/batch", get(tiers::batch))
        .route("/api/tenants", get(tiers::tenants))
        .route("/api/replicas", get(replicas::list).post(replicas::add))
        .route("/api/replicas/{address}", delete(replicas::remove))
        .route("/api/replicas/{address}/drain", post(replicas::drain))
        .route("/api/replicas/{address}/undrain", post(replicas::undrain))
        .route("/api/replicas/{address}/flush", post(replicas::flush))
        .route("/api/scaling", get(scaling::show))
        .route("/api/scaling/hold", post(scaling::hold))
        .route("/api/regions", get(regions::show))
        .route("/api/reload", post(reload))
        .route("/api/recording", post(recording::record))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .route("/api/explain", explain)
        .route_layer(from_fn_with_state(Arc::clone(admin), auth::check))
}

fn with_errors(router: Router) -> Router {
    router
        .fallback(|| async { ApiError::no_such_page() })
        .method_not_allowed_fallback(|| async { ApiError::wrong_method() })
}

type AdminState = State<Arc<Admin>>;

async fn reload(State(admin): AdminState) -> Result<Json<ReloadResult>, ApiError> {
    Ok(Json(admin.reloader.reload("admin interface").await?))
}
