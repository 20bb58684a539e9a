//! Connections of a listener, in a bounded number.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Waits for a place and then accepts a connection, so that further callers wait in the system's queue.
pub(crate) async fn accept_next<T, F: Future<Output = io::Result<T>>>(
    places: &Arc<Semaphore>,
    accept: impl Fn() -> F,
) -> (T, OwnedSemaphorePermit) {
    let mut has_failed = false;
    loop {
        let place = Arc::clone(places).acquire_owned().await;
        let accepted = match place {
            Ok(place) => accept().await.map(|connection| (connection, place)),
            Err(closed) => Err(io::Error::other(closed)),
        };
        match accepted {
            Ok(accepted) => return accepted,
            // The next attempts follow within a fraction of a second.
            Err(error) if !has_failed => {
                tracing::warn!(%error, "cannot accept connections for now");
                has_failed = true;
            }
            Err(_) => {}
        }
        sleep(ACCEPT_PAUSE).await;
    }
}
