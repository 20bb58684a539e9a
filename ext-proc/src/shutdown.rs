//! When the process is told to stop.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal as on_signal};

/// Resolves at the first SIGTERM or SIGINT. A second one ends the process at once, as if nobody listened.
///
/// # Errors
///
/// When the system takes no signal handlers.
pub fn signal() -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = on_signal(SignalKind::terminate())?;
    let mut interrupt = on_signal(SignalKind::interrupt())?;
    Ok(async move {
        either(&mut terminate, &mut interrupt).await;
        tokio::spawn(async move {
            either(&mut terminate, &mut interrupt).await;
            tracing::warn!("told to stop a second time: stopping now");
            std::process::exit(FORCED_EXIT_CODE);
        });
    })
}

/// What a process ends with that was told to stop twice: 128 and SIGINT's number, as shells have it.
const FORCED_EXIT_CODE: i32 = 130;

async fn either(first: &mut tokio::signal::unix::Signal, second: &mut tokio::signal::unix::Signal) {
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
    }
}
