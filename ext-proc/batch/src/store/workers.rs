//! The spare capacity that each worker measures, so that all of them plan with the sum.

use sqlx::Row as _;

use super::{Store, StoreResult};
use crate::pace::UnixMs;

/// Time without a report after which a worker counts no more, in milliseconds.
const REPORT_MS_MAX: i64 = 30_000;

/// The spare capacity for one model, over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SpareCapacity {
    /// Lines per second; `None` while no worker has measured it.
    pub(crate) per_s: Option<f64>,
    /// Number of workers that reported lately.
    pub(crate) workers: u64,
}

impl Store {
    /// Reports the rate that a worker measures, and returns the sum over all workers.
    pub(crate) async fn report_spare_rate(
        &self,
        worker: &str,
        model: &str,
        per_s: Option<f64>,
    ) -> StoreResult<SpareCapacity> {
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
        let milli = per_s.map(|rate| (rate * 1_000.0) as i64);
        let insert = "INSERT INTO isotherm_workers (worker, model, spare_milli_per_s, seen_at) VALUES ($1, $2, $3, {now})
            ON CONFLICT (worker, model) DO UPDATE SET spare_milli_per_s = excluded.spare_milli_per_s, seen_at = excluded.seen_at";
        let insert = self.timed(insert).bind(worker).bind(model).bind(milli);
        self.write(insert).await?;
        let select = "SELECT spare_milli_per_s FROM isotherm_workers WHERE model = $1 AND seen_at > {now} - $2";
        let select = self.timed(select).bind(model).bind(REPORT_MS_MAX);
        let mut capacity = SpareCapacity::default();
        for row in select.fetch_all(&self.pool).await? {
            capacity.workers += 1;
            let milli: Option<i64> = row.try_get(0)?;
            #[expect(
                clippy::cast_precision_loss,
                reason = "a rate in thousandths per second"
            )]
            if let Some(milli) = milli {
                capacity.per_s = Some(capacity.per_s.unwrap_or(0.0) + milli as f64 / 1_000.0);
            }
        }
        Ok(capacity)
    }

    /// Forgets workers that reported last before a time.
    pub(crate) async fn remove_old_workers(&self, seen_before: UnixMs) -> StoreResult<()> {
        let delete = "DELETE FROM isotherm_workers WHERE seen_at < $1";
        self.write(sqlx::query(delete).bind(seen_before)).await?;
        Ok(())
    }
}
