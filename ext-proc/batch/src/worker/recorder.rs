//! Writes results, many in a transaction.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::STEP_TIME_MAX;
use super::flight::AttemptUpdate;
use crate::store::{LineKey, Store};

/// Most updates in one transaction.
const UPDATES_MAX: usize = 64;
/// Pauses before another attempt.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// Writes updates until their channel is closed. An update whose transaction fails, or whose commit is in doubt, is written
/// again until the database takes it: no result is lost while the process lives.
pub(super) async fn run(
    store: Store,
    worker: String,
    mut updates: mpsc::Receiver<AttemptUpdate>,
    recorded: mpsc::Sender<(u64, LineKey)>,
) {
    let mut received = Vec::new();
    while updates.recv_many(&mut received, UPDATES_MAX).await > 0 {
        let (attempts, group): (Vec<u64>, Vec<_>) = received.drain(..).unzip();
        let mut failures = 0;
        loop {
            match timeout(STEP_TIME_MAX, store.write_updates(&worker, &group)).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => {
                    store.note(&error);
                    tracing::warn!(%error, results = group.len(), "results wait for the database");
                }
                Err(_) => tracing::warn!(results = group.len(), "the database does not answer"),
            }
            let pause = PAUSES.get(failures).or(PAUSES.last());
            sleep(pause.copied().unwrap_or_default()).await;
            failures += 1;
        }
        for (attempt, (key, _)) in attempts.into_iter().zip(group) {
            if recorded.send((attempt, key)).await.is_err() {
                break; // the worker has stopped; the remaining updates are still written
            }
        }
    }
}
