//! The screen at 80 and 120 columns, on a terminal in memory.

use std::time::Instant;

use clap::ColorChoice;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::*;
use crate::admin::view::FailureView;
use crate::cli::top::tests::snapshot;

/// A window with a good and a failed replica.
fn window() -> Window {
    let mut now = snapshot(Instant::now(), 10, 610);
    let mut failed = now.replicas[0].clone();
    failed.address = "[fd00::2]:8000".into();
    failed.availability = "probe_failed".into();
    failed.kv_usage = None;
    failed.failure = Some(FailureView {
        since_unix_ms: now.taken_unix_ms - 150_000,
        reason: "connection refused".into(),
    });
    now.replicas.push(failed);
    Window::new(now)
}

fn screen(width: u16, window: &Window, keys: &mut Keys, colours: Colours) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, 20)).unwrap();
    terminal
        .draw(|frame| draw(frame, window, keys, colours))
        .unwrap();
    terminal
}

fn lines(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let width = usize::from(buffer.area.width);
    let rows = buffer.content.chunks(width);
    let text = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    text.map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn eighty_columns_have_pools_failures_replicas_and_keys() {
    let colours = Colours::choose(ColorChoice::Never, false);
    let lines = lines(&screen(80, &window(), &mut Keys::default(), colours));
    assert_eq!(
        &lines[..9],
        [
            "Isotherm  live",
            "POOL           POLICY       AVAIL   REQ/S   QUEUE OLDEST  FLIGHT CACHE HITS",
            "llama          prefix_tree  1/2     0.0     3     1.5 s   4      ██████░░░░  61%",
            "",
            "[fd00::2]:8000 fails since 07:57:30 UTC (2 min): connection refused",
            "",
            "REPLICA▾                     STATE        FLIGHT  QUEUED RUNNING KV CACHE",
            "10.0.0.1:80                  has a queue  4       1      3       █████░░░░░  50%",
            "[fd00::2]:8000               probe failed 4       1      3       -",
        ]
    );
    assert_eq!(lines[19], HELP);
    assert!(HELP.len() <= 80);
}

#[test]
fn a_wide_terminal_has_further_columns() {
    let colours = Colours::choose(ColorChoice::Never, false);
    let lines = lines(&screen(120, &window(), &mut Keys::default(), colours));
    assert!(
        lines[6].ends_with("KV CACHE        MAY TAKE PROBE     POOL"),
        "{}",
        lines[6]
    );
    assert!(
        lines[7].ends_with("any      40 ms     llama"),
        "{}",
        lines[7]
    );
}

#[test]
fn a_failed_replica_is_red_unless_colours_are_off() {
    for (choice, expected) in [
        (ColorChoice::Always, Color::Red),
        (ColorChoice::Never, Color::Reset),
    ] {
        let colours = Colours::choose(choice, true);
        let terminal = screen(80, &window(), &mut Keys::default(), colours);
        let buffer = terminal.backend().buffer();
        assert_eq!(buffer[(0, 4)].fg, expected, "its reason");
        assert_eq!(buffer[(0, 8)].fg, expected, "its row");
        let coloured = buffer.content.iter().any(|cell| cell.fg != Color::Reset);
        assert_eq!(coloured, choice == ColorChoice::Always);
    }
}

#[test]
fn the_learned_line_and_all_tables_come_with_their_keys() {
    let colours = Colours::choose(ColorChoice::Never, false);
    let mut keys = Keys::default();
    let shown = |keys: &mut Keys| lines(&screen(80, &window(), keys, colours)).join("\n");
    assert!(!shown(&mut keys).contains("learned 4.25"));
    keys.shows_learned = true;
    assert!(shown(&mut keys).contains("llama learned 4.25 bytes/token (counters)"));
    keys.shows_tables = true;
    assert!(shown(&mut keys).contains("POOL   POLICY       PUSH     AVAILABLE"));
}

#[test]
fn a_service_that_stopped_is_named_in_the_title() {
    let mut window = window();
    window.push(Err(anyhow::anyhow!("no service answers")));
    let colours = Colours::choose(ColorChoice::Always, false);
    let terminal = screen(80, &window, &mut Keys::default(), colours);
    assert_eq!(lines(&terminal)[0], "Isotherm  no service answers");
    assert_eq!(terminal.backend().buffer()[(10, 0)].fg, Color::Red);
}

#[test]
fn a_small_terminal_scrolls_its_replicas() {
    let mut window = window();
    let one = window.now.replicas[0].clone();
    window.now.replicas = vec![one; 100];
    window.now.replicas[99].address = "last".into();
    let mut keys = Keys {
        scrolled: 1_000,
        ..Keys::default()
    };
    let colours = Colours::choose(ColorChoice::Never, false);
    let lines = lines(&screen(80, &window, &mut keys, colours));
    assert!(lines[18].starts_with("last "), "{lines:?}");
    let mut tiny = Terminal::new(TestBackend::new(3, 2)).unwrap();
    tiny.draw(|frame| draw(frame, &window, &mut keys, colours))
        .unwrap();
}
