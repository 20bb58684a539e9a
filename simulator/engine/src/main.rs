//! `isotherm-engine`: one or more simulated engines, each on its own port.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use isotherm_engine::cli::Cli;
use isotherm_engine::http::replica::Replica;
use isotherm_engine::http::serve::serve;
use isotherm_engine::http::spans;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing_subscriber::EnvFilter;

/// Exit code after an ordered crash, so that a supervisor does not take it for a clean stop.
const CRASHED: u8 = 70;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
    let tracer = cli.otlp_traces_endpoint.as_deref().map(spans::start);
    let tracer = tracer.transpose().context("--otlp-traces-endpoint")?;
    let mut replicas = JoinSet::new();
    for index in 0..cli.replicas.get() {
        let address = cli.address(index);
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let replica = Replica::new(cli.settings(index));
        if let Some(tracer) = &tracer {
            // The replica is new, so it has no tracer.
            let _ = replica.tracer.set(tracer.clone());
        }
        for &order in &cli.fault {
            replica
                .order(order)
                .map_err(|error| anyhow::anyhow!("--fault: {error}"))?;
        }
        announce(&listener)?;
        replicas.spawn(serve(replica, listener));
    }
    tokio::select! {
        ended = all(&mut replicas) => ended,
        signal = stop() => signal.map(|()| ExitCode::SUCCESS),
    }
}

/// Prints the address of a replica, so that the parent process learns the port.
fn announce(listener: &TcpListener) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening on {}", listener.local_addr()?)?;
    out.flush()?;
    Ok(())
}

/// Returns when no replica is left: each ends only by an ordered crash.
async fn all(replicas: &mut JoinSet<io::Result<()>>) -> anyhow::Result<ExitCode> {
    while let Some(ended) = replicas.join_next().await {
        ended??;
        tracing::warn!("a replica crashed as ordered");
    }
    Ok(ExitCode::from(CRASHED))
}

async fn stop() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
