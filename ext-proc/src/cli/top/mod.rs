//! `isotherm top`: shows replicas, queues and hit ratios, and keeps them up to date.

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

/// The longest time between two checks for a key.
const KEY_WAIT_MAX: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct Top {
    #[command(flatten)]
    connection: Connection,
    /// Refresh interval, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
    /// Print the state once, as plain text, and exit.
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
        bail!("standard output is not a terminal: use --once for plain text");
    }
    let interval = Duration::from_millis(args.interval_ms);
    let (sender, receiver) = watch::channel(Window::new(first));
    let refresh = tokio::spawn(refresh(client, interval, sender));
    let shown = tokio::task::spawn_blocking(move || show(&receiver)).await;
    refresh.abort();
    shown??;
    Ok(ExitCode::SUCCESS)
}

/// Keeps the window up to date until its receiver is dropped.
async fn refresh(client: AdminClient, interval: Duration, sender: watch::Sender<Window>) {
    while !sender.is_closed() {
        tokio::time::sleep(interval).await;
        let next = Snapshot::take(&client).await;
        sender.send_modify(|window| window.push(next));
    }
}

/// Draws the window until a key quits.
fn show(window: &watch::Receiver<Window>) -> std::io::Result<()> {
    let mut terminal = ratatui::init();
    let result = loop {
        let drawn = terminal.draw(|frame| draw::frame(frame, &window.borrow()));
        match drawn.and_then(|_| is_quit_pressed()) {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    result
}

/// Waits a moment for a key. Returns whether it quits.
fn is_quit_pressed() -> std::io::Result<bool> {
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
