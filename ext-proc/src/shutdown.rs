//! The signals that stop the process.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal as on_signal};

/// Resolves at the first SIGTERM or SIGINT. A second signal ends the process at once.
/// Fails when the system accepts no signal handlers.
pub fn signal() -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = on_signal(SignalKind::terminate())?;
    let mut interrupt = on_signal(SignalKind::interrupt())?;
    Ok(async move {
        either(&mut terminate, &mut interrupt).await;
        tokio::spawn(async move {
            either(&mut terminate, &mut interrupt).await;
            tracing::warn!("second signal: stopping without draining");
            crate::log::finish();
            std::process::exit(FORCED_EXIT_CODE);
        });
    })
}

/// Exit code after a second signal: 128 and the number of SIGINT, as shells report it.
const FORCED_EXIT_CODE: i32 = 130;

async fn either(first: &mut tokio::signal::unix::Signal, second: &mut tokio::signal::unix::Signal) {
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
    }
}
