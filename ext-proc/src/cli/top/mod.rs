//! `isotherm top`: replicas, queues and hit ratios as they change.

mod draw;
mod snapshot;

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::watch;

use super::client::{AdminClient, Connection};
use super::output;
use snapshot::{Snapshot, Window};

/// Longest time until a key press takes effect.
const KEY_WAIT_MAX: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct Top {
    #[command(flatten)]
    connection: Connection,
    /// Refresh interval, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
    /// Print the state once, as plain text, and stop.
    #[arg(long)]
    once: bool,
}

pub(super) async fn run(args: Top) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.connection)?;
    let first = Snapshot::take(&client).await?;
    if args.once {
        output::print(&draw::text(&Window::new(first)))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !stdout().is_terminal() {
        bail!("standard output is no terminal: use --once for plain text");
    }
    let interval = Duration::from_millis(args.interval_ms);
    let (sender, receiver) = watch::channel(Window::new(first));
    let asking = tokio::spawn(ask(client, interval, sender));
    let shown = tokio::task::spawn_blocking(move || show(&receiver)).await;
    asking.abort();
    shown??;
    Ok(ExitCode::SUCCESS)
}

/// Keeps the window up to date until the receiver is dropped.
async fn ask(client: AdminClient, interval: Duration, sender: watch::Sender<Window>) {
    while !sender.is_closed() {
        tokio::time::sleep(interval).await;
        let next = Snapshot::take(&client).await;
        sender.send_modify(|window| window.push(next));
    }
}

/// Draws until the user presses `q`.
fn show(window: &watch::Receiver<Window>) -> std::io::Result<()> {
    let mut terminal = ratatui::init();
    let result = loop {
        let drawn = terminal.draw(|frame| draw::frame(frame, &window.borrow()));
        match drawn.and_then(|_| quits()) {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    result
}

/// Waits a moment for a key; true when it is one that quits.
fn quits() -> std::io::Result<bool> {
    if !event::poll(KEY_WAIT_MAX)? {
        return Ok(false);
    }
    Ok(match event::read()? {
        Event::Key(KeyEvent {
            code,
            modifiers,
            kind: KeyEventKind::Press,
            ..
        }) => match code {
            KeyCode::Char('q') | KeyCode::Esc => true,
            KeyCode::Char('c') => modifiers.contains(KeyModifiers::CONTROL),
            _ => false,
        },
        _ => false,
    })
}
