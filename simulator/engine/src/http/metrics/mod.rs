//! `GET /metrics`, under the names of the engine that is imitated.

mod histogram;
mod page;
mod sglang;
mod vllm;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

pub use histogram::Histograms;
pub use sglang::loads;

use super::replica::{MetricsDialect, Replica};

/// The metrics page.
pub async fn page(State(replica): State<Arc<Replica>>) -> Response {
    let settings = &replica.settings;
    let text = replica.with_core(|core| {
        let stats = core.engine.stats();
        match settings.metrics {
            MetricsDialect::Vllm => vllm::render(settings, &stats, &core.histograms),
            MetricsDialect::Sglang => sglang::render(settings, &stats, &core.histograms),
        }
    });
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        text,
    )
        .into_response()
}

/// `GET /load`: vLLM's light endpoint, all that is in flight.
pub async fn server_load(State(replica): State<Arc<Replica>>) -> Json<Value> {
    let stats = replica.stats();
    Json(json!({"server_load": stats.waiting + stats.arrived + stats.running}))
}
