//! How the programs of this crate end: when they are done, or when somebody stops them.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Does `work` until it is done or somebody stops it, and says on standard error what went wrong.
///
/// Whatever ends it, `work` is dropped, and the processes that it started end with it.
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

/// Ctrl-C, or a polite `kill`.
///
/// # Errors
/// When this process cannot hear of them.
pub async fn stop_signal() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => Ok(pressed?),
        _ = terminate.recv() => Ok(()),
    }
}
