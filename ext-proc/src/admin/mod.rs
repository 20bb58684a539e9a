//! The HTTP interface for operators.
//!
//! | request | does |
//! | --- | --- |
//! | `GET /healthz` | 200 while the process runs |
//! | `GET /readyz` | 200 from when every replica of the file was probed once until the service stops |
//! | `GET /metrics` | figures, in the OpenMetrics text format |
//! | `GET /api/pools` | every pool: its policy, queue, index and counters |
//! | `GET /api/replicas[?pool=MODEL]` | every replica: its load, its probe, and whether it takes another request |
//! | `POST /api/replicas` `{"pool": MODEL, "address": "ip:port"}` | adds a replica |
//! | `DELETE /api/replicas/{address}[?pool=MODEL]` | removes one; what it has in flight ends as it ends |
//! | `POST /api/replicas/{address}/drain[?pool=MODEL]` | gives it nothing new |
//! | `GET /api/regions` | the regions: links, heartbeats, pools, and who looks after whose replicas |
//! | `POST /api/regions/{name}/lost` | an operator's word that a region is gone: its replicas may be adopted; `DELETE` takes that back |
//! | `POST /api/explain` `{"path", "headers", "body", "filter"}` | says where a request would go now, and why; nothing changes |
//! | `POST /api/recording` `{"pool", "requests", "seconds"}` | records what comes, without any text, and answers with it as it ends; wants `recording.enabled` |
//! | `POST /api/reload` | applies the configuration file again |
//!
//! `pool` may be left out where there is only one. What changes state wants the bearer token of
//! `admin.token_file`; with none configured it is refused. Replicas added here come on top of those of the file,
//! and a reload does not remove them; a restart does. On loopback only requests to an address or to `localhost` are
//! answered, so that no web page can ask through a browser under a name of its own. Errors are `{"error": {"code", "message"}}`.

mod auth;
mod error;
mod explain;
mod health;
mod pools;
mod recording;
mod regions;
mod replicas;
mod server;
pub mod view;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Json;
use axum::routing::{delete, get, post};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::config::Reloader;
use crate::pool::PoolRegistry;
use crate::regions::RegionsHandle;
use auth::Authorization;
use error::ApiError;

/// The largest request that changes something, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The largest request to be explained, in bytes: a prompt of 16 MB, escaped.
const EXPLAIN_BYTES_MAX: usize = 32 * 1024 * 1024;

/// State behind the interface.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The pools.
    pub pool_registry: Arc<PoolRegistry>,
    /// The figures.
    pub registry: Arc<Registry>,
    /// Regions, if the service has a `region` section.
    pub regions: Option<RegionsHandle>,
    /// Reloads the configuration file.
    pub reloader: Arc<Reloader>,
    /// Where the bearer token is.
    pub token_file: Option<PathBuf>,
    /// Whether the service is ready: it knows what it decides on, and is not stopping.
    pub serving: watch::Receiver<bool>,
}

impl Admin {
    /// Serves on `listener` until `stop` resolves and the requests in flight are answered.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()> + Send) {
        server::serve(listener, self.into_router(), stop).await;
    }

    fn into_router(self) -> Router {
        let explain = post(explain::explain).layer(DefaultBodyLimit::max(EXPLAIN_BYTES_MAX));
        Router::new()
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .route("/metrics", get(health::metrics))
            .route("/api/pools", get(pools::list))
            .route("/api/replicas", get(replicas::list).post(replicas::add))
            .route("/api/replicas/{address}", delete(replicas::remove))
            .route("/api/replicas/{address}/drain", post(replicas::drain))
            .route("/api/regions", get(regions::show))
            .route(
                "/api/regions/{name}/lost",
                post(regions::lost).delete(regions::not_lost),
            )
            .route("/api/reload", post(reload))
            .route("/api/recording", post(recording::record))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .route("/api/explain", explain)
            .fallback(|| async { ApiError::no_such_page() })
            .method_not_allowed_fallback(|| async { ApiError::wrong_method() })
            .with_state(Arc::new(self))
    }
}

type AdminState = State<Arc<Admin>>;

async fn reload(
    _: Authorization,
    State(admin): AdminState,
) -> Result<Json<view::ReloadResponse>, ApiError> {
    let reloaded = admin.reloader.reload("admin interface").await?;
    Ok(Json(view::ReloadResponse {
        changed: reloaded.changed,
        restart_needed_for: reloaded
            .restart_needed_for
            .into_iter()
            .map(str::to_owned)
            .collect(),
    }))
}
