//! The load of an engine over time, for tests that need the time during which requests waited.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::replica::Replica;
use super::wall_clock::unix_ms;

/// `GET /debug/load`: the load now, and every change of it as `[unix_ms, waiting, running, arrived]`.
pub async fn load(State(replica): State<Arc<Replica>>) -> Json<Value> {
    replica.with_core(|core| {
        let stats = core.engine.stats();
        let totals = stats.totals;
        Json(json!({
            "unix_ms": unix_ms(),
            "waiting": stats.waiting,
            "arrived": stats.arrived,
            "running": stats.running,
            "kv_usage": stats.kv_usage(),
            "blocks": stats.blocks,
            "prefix_query_tokens": totals.prefix_query_tokens,
            "prefix_hit_tokens": totals.prefix_hit_tokens,
            "prompt_tokens": totals.prompt_tokens,
            "generation_tokens": totals.generation_tokens,
            "preemptions": totals.preemptions,
            "finished": totals.finished,
            "aborted": totals.aborted,
            "rejected": totals.rejected,
            "adapter_loads": totals.adapter_loads,
            "changes_forgotten": core.history.forgotten,
            "changes": core.history.changes,
        }))
    })
}
