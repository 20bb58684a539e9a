//! Numbers of the queue, as metrics show them.

use sqlx::Row as _;

use super::{Store, StoreResult, count};
use crate::pace::{BatchDemand, UnixMs, required_rate};

/// The lines of all batches in the database, by state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueCensus {
    /// Lines whose file is being checked.
    pub validating: u64,
    /// Lines without a result whose batch is in progress.
    pub waiting: u64,
    /// Lines without a result whose batch expires or is cancelled.
    pub ending: u64,
    /// Lines with a response.
    pub succeeded: u64,
    /// Lines with an error.
    pub failed: u64,
    /// Age of the oldest batch with a waiting line, in seconds; 0 without one.
    pub oldest_waiting_s: f64,
    /// Results per second that batches need of which more than half of the window has passed.
    pub required_per_s: f64,
}

/// Lines of finished batches, and one row for each other batch.
const CENSUS: &str = "SELECT batch.status AS status, batch.created_at AS created_at, batch.expires_at AS expires_at,
        CASE WHEN batch.status = 'validating' THEN COALESCE(file.lines, 0)
            ELSE batch.total - batch.completed - batch.failed END AS open_lines,
        batch.completed AS completed, batch.failed AS failed
    FROM isotherm_batches AS batch LEFT JOIN isotherm_files AS file ON file.id = batch.input_file_id
    WHERE batch.status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
    UNION ALL SELECT 'final', 0, 0, 0, CAST(COALESCE(SUM(completed), 0) AS BIGINT), CAST(COALESCE(SUM(failed), 0) AS BIGINT)
        FROM isotherm_batches WHERE status IN ('completed', 'failed', 'expired', 'cancelled')";

impl Store {
    /// Counts the lines of all batches. A line of a finished batch counts until its batch is removed.
    pub async fn census(&self) -> StoreResult<QueueCensus> {
        let mut census = QueueCensus::default();
        let mut demands = Vec::new();
        let now = self.now();
        for row in sqlx::query(CENSUS).fetch_all(&self.pool).await? {
            let (status, open): (String, u64) =
                (row.try_get("status")?, count(&row, "open_lines")?);
            census.succeeded += count(&row, "completed")?;
            census.failed += count(&row, "failed")?;
            match status.as_str() {
                "validating" => census.validating += open,
                "in_progress" if open > 0 => {
                    census.waiting += open;
                    let created_at: UnixMs = row.try_get("created_at")?;
                    let age_s = seconds(now.saturating_sub(created_at));
                    census.oldest_waiting_s = census.oldest_waiting_s.max(age_s);
                    demands.push(BatchDemand {
                        created_at,
                        expires_at: row.try_get("expires_at")?,
                        remaining: open,
                    });
                }
                _ => census.ending += open,
            }
        }
        census.required_per_s = required_rate(now, demands);
        Ok(census)
    }
}

#[expect(clippy::cast_precision_loss, reason = "an age in milliseconds")]
fn seconds(milliseconds: i64) -> f64 {
    milliseconds.max(0) as f64 / 1_000.0
}
