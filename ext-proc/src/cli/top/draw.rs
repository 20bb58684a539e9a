//! A window as plain text, and on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Row, Table};

use super::snapshot::Window;
use crate::admin::view::{PoolView, ReplicaView};
use crate::cli::regions;
use crate::cli::replicas;
use crate::cli::table::{self, or_dash, percent};

const POOL_HEADER: [&str; 9] = [
    "POOL",
    "POLICY",
    "PUSH",
    "FREE",
    "QUEUE",
    "OLDEST",
    "IN FLIGHT",
    "REQ/S",
    "HIT RATIO",
];

/// Summary of a pool in one terminal line.
fn pool_row(window: &Window, pool: &PoolView) -> [String; 9] {
    let rates = window.rates(pool);
    [
        pool.pool.clone(),
        pool.policy.clone(),
        pool.push.clone(),
        format!("{}/{}", pool.available_replicas, pool.replicas),
        pool.queue_length.to_string(),
        format!("{:.1} s", pool.oldest_wait_ms as f64 / 1000.0),
        pool.in_flight.to_string(),
        format!("{:.1}", rates.decisions_per_s),
        or_dash(rates.hit_ratio.map(percent)),
    ]
}

/// The newest snapshot as plain text.
pub(super) fn text(window: &Window) -> String {
    let pools = window.now.pools.iter();
    let rows: Vec<_> = pools.map(|pool| pool_row(window, pool)).collect();
    let replicas = replicas::list(&window.now.replicas);
    let pools = table::render(POOL_HEADER, rows);
    if !has_regions(window) {
        return format!("{pools}\n{replicas}");
    }
    let rows = regions::rows(&window.now.regions);
    let mut all = table::render(regions::HEADER, rows);
    for note in regions::notes(&window.now.regions) {
        all.push_str(&note);
        all.push('\n');
    }
    format!("{all}\n{pools}\n{replicas}")
}

fn has_regions(window: &Window) -> bool {
    window.now.regions.name.is_some()
}

/// The newest snapshot on a terminal.
pub(super) fn frame(frame: &mut Frame<'_>, window: &Window) {
    let third = frame.area().height / 3;
    let all_regions = regions::rows(&window.now.regions);
    let regions_height = if has_regions(window) {
        height_of(all_regions.len()).min(third)
    } else {
        0
    };
    let layout = Layout::vertical([
        Constraint::Length(regions_height),
        Constraint::Length(height_of(window.now.pools.len()).min(third)),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [around, top, middle, bottom] = layout.areas(frame.area());
    if has_regions(window) {
        draw_regions(frame, around, all_regions);
    }
    pools(frame, top, window);
    all_replicas(frame, middle, &window.now.replicas);
    let status = match &window.problem {
        Some(problem) => Line::styled(problem.as_str(), Style::new().fg(Color::Red)),
        None => Line::styled("q quits", Style::new().add_modifier(Modifier::DIM)),
    };
    frame.render_widget(status, bottom);
}

/// The height of a table with so many rows, with its header and its frame.
fn height_of(rows: usize) -> u16 {
    u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(3)
}

fn draw_regions(frame: &mut Frame<'_>, area: Rect, rows: Vec<[String; 12]>) {
    let rows = rows.into_iter().map(|row| {
        let [_, state, ..] = &row;
        let color = match state.as_str() {
            "this one" | "up" => Color::Green,
            "never_heard" => Color::Yellow,
            _ => Color::Red,
        };
        let state = state.clone();
        row.map(|cell| {
            let style = if cell == state {
                Style::new().fg(color)
            } else {
                Style::new()
            };
            (cell, style)
        })
    });
    draw_table(frame, area, " regions ", regions::HEADER, rows.collect());
}

fn pools(frame: &mut Frame<'_>, area: Rect, window: &Window) {
    let pools = &window.now.pools;
    let rows: Vec<_> = pools.iter().map(|pool| pool_row(window, pool)).collect();
    let rows = rows.into_iter().zip(pools).map(|(row, pool)| {
        let style = if pool.queue_length > 0 {
            Style::new().fg(Color::Yellow)
        } else {
            Style::new()
        };
        row.map(|cell| (cell, style))
    });
    draw_table(frame, area, " pools ", POOL_HEADER, rows.collect());
}

fn all_replicas(frame: &mut Frame<'_>, area: Rect, all: &[ReplicaView]) {
    let rows = all.iter().map(|replica| {
        let color = match replica.availability.as_str() {
            "available" => Color::Green,
            "probe_failed" | "stale" | "failing" => Color::Red,
            _ => Color::Yellow,
        };
        let state = replica.availability.clone();
        replicas::row(replica).map(|cell| {
            let style = if cell == state {
                Style::new().fg(color)
            } else {
                Style::new()
            };
            (cell, style)
        })
    });
    draw_table(frame, area, " replicas ", replicas::HEADER, rows.collect());
}

/// Draws rows of styled cells; columns are as wide as what they hold.
fn draw_table<const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    header: [&str; N],
    rows: Vec<[(String, Style); N]>,
) {
    let mut widths = header.map(|cell| cell.chars().count());
    for row in &rows {
        for (width, (cell, _)) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let widths = widths.map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let rows = rows
        .into_iter()
        .map(|row| Row::new(row.map(|(cell, style)| Cell::new(cell).style(style))));
    let table = Table::new(rows, widths)
        .column_spacing(2)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::snapshot::Snapshot;
    use super::*;
    use crate::admin::view::{CountersView, RegionsView};
    use crate::cli::regions::tests::two_peers;

    fn snapshot(taken: Instant, decisions: u64, cached: u64) -> Snapshot {
        let pool = PoolView {
            pool: "llama".into(),
            aliases: vec![],
            cluster: "llama".into(),
            policy: "prefix_tree".into(),
            push: "pending".into(),
            replicas: 2,
            available_replicas: 1,
            queue_length: 3,
            oldest_wait_ms: 1500,
            in_flight: 4,
            index_nodes: 10,
            index_bytes: 1000,
            counters: CountersView {
                decisions: [("prefix".to_owned(), decisions)].into(),
                measured_prompt_tokens: 100 * decisions,
                measured_cached_tokens: cached,
                ..CountersView::default()
            },
        };
        let replica = ReplicaView {
            pool: "llama".into(),
            address: "10.0.0.1:80".into(),
            availability: "pending".into(),
            draining: false,
            adopted_from: None,
            outstanding: 4,
            pending: Some(1),
            running: Some(3),
            headroom: None,
            kv_usage: Some(0.5),
            kv_capacity_tokens: None,
            probe_age_ms: Some(40),
        };
        Snapshot {
            taken,
            pools: vec![pool],
            replicas: vec![replica],
            regions: RegionsView::default(),
        }
    }

    #[test]
    fn the_text_shows_pools_and_replicas() {
        let text = text(&Window::new(snapshot(Instant::now(), 10, 500)));
        assert!(
            text.contains("llama  prefix_tree  pending  1/2   3      1.5 s"),
            "{text}"
        );
        assert!(text.contains("50%"), "{text}");
        assert!(text.contains("10.0.0.1:80  -   pending  4"), "{text}");
    }

    #[test]
    fn rates_are_of_the_window_not_since_the_start() {
        let start = Instant::now();
        let mut window = Window::new(snapshot(start, 10, 0));
        window.push(Ok(snapshot(start + Duration::from_secs(2), 30, 2000)));
        let rates = window.rates(&window.now.pools[0]);
        assert!((rates.decisions_per_s - 10.0).abs() < 1e-9, "{rates:?}");
        assert_eq!(rates.hit_ratio, Some(1.0));
    }

    #[test]
    fn a_terminal_shows_the_same_and_a_service_that_is_gone() {
        let mut window = Window::new(snapshot(Instant::now(), 10, 500));
        window.push(Err(anyhow::anyhow!("no service answers")));
        let mut terminal = Terminal::new(TestBackend::new(140, 12)).unwrap();
        terminal.draw(|area| frame(area, &window)).unwrap();
        let screen = terminal.backend().to_string();
        for part in ["prefix_tree", "10.0.0.1:80", "no service answers"] {
            assert!(screen.contains(part), "missing {part} in\n{screen}");
        }
    }

    #[test]
    fn regions_stand_above_everything_else_where_there_are_any() {
        let mut window = Window::new(snapshot(Instant::now(), 10, 500));
        assert!(!text(&window).contains("REGION"));
        window.now.regions = two_peers();
        let text = text(&window);
        let (regions, pools) = (text.find("REGION").unwrap(), text.find("POLICY").unwrap());
        assert!(regions < pools, "{text}");
        assert!(text.contains("the link is unreachable"), "{text}");
        let mut terminal = Terminal::new(TestBackend::new(160, 30)).unwrap();
        terminal.draw(|area| frame(area, &window)).unwrap();
        let screen = terminal.backend().to_string();
        for part in ["regions", "asia", "80.2 ms", "pools", "replicas"] {
            assert!(screen.contains(part), "missing {part} in\n{screen}");
        }
    }
}
