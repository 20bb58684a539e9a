//! Programs that run until they are done or until a signal stops them.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Runs `work` until it is done or a signal arrives, and prints an error on standard error.
///
/// In either case `work` is dropped, and the processes that it started end with it.
pub async fn run_until_stopped(work: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    let done = tokio::select! {
        done = work => done,
        signal = stop_signal() => signal.map(|()| ExitCode::from(130)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Waits for Ctrl-C or `SIGTERM`.
pub async fn stop_signal() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => Ok(pressed?),
        _ = terminate.recv() => Ok(()),
    }
}
