//! How the load changed over time, for tests that ask "for how long did more than one request wait?".

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::replica::Replica;
use crate::model::Stats;

/// Changes kept; older ones are forgotten.
pub const CHANGES_MAX: usize = 20_000;

/// The load from one moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    unix_ms: u64,
    waiting: usize,
    arrived: usize,
    running: usize,
}

/// A bounded log of changes.
#[derive(Debug, Default)]
pub struct History {
    changes: VecDeque<Change>,
    forgotten: u64,
}

impl History {
    /// Notes the load, if it is another than before.
    pub fn record(&mut self, stats: &Stats) {
        let load = |change: &Change| (change.waiting, change.arrived, change.running);
        if self.changes.back().map(load) == Some((stats.waiting, stats.arrived, stats.running)) {
            return;
        }
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
            self.forgotten += 1;
        }
        self.changes.push_back(Change {
            unix_ms: unix_ms(),
            waiting: stats.waiting,
            arrived: stats.arrived,
            running: stats.running,
        });
    }
}

/// `GET /debug/load`: the load now, and every change of it as `[unix_ms, waiting, running, arrived]`.
pub async fn load(State(replica): State<Arc<Replica>>) -> Json<Value> {
    replica.with_core(|core| {
        let stats = core.engine.stats();
        let totals = stats.totals;
        let changes: Vec<Value> = core
            .history
            .changes
            .iter()
            .map(|change| {
                json!([
                    change.unix_ms,
                    change.waiting,
                    change.running,
                    change.arrived
                ])
            })
            .collect();
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
            "changes_forgotten": core.history.forgotten,
            "changes": changes,
        }))
    })
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
