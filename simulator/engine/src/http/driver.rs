//! The one timer of a replica: sleeps until the model has something to do, and never spins.

use std::sync::Arc;

use super::replica::Replica;

/// Lets time pass for ever. Cancel it to freeze the engine.
pub async fn run(replica: Arc<Replica>) {
    loop {
        match replica.advance() {
            Some(wait) => {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = replica.wake.notified() => {}
                }
            }
            None => replica.wake.notified().await,
        }
    }
}
