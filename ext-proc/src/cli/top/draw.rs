//! Renders a window as plain text, or on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Row, Table};

use super::snapshot::Window;
use crate::admin::view::PoolView;
use crate::cli::table::{self, or_dash, percent};
use crate::cli::{regions, replicas};

const POOL_HEADER: [&str; 9] = [
    "POOL",
    "POLICY",
    "PUSH",
    "AVAILABLE",
    "QUEUE",
    "OLDEST",
    "IN FLIGHT",
    "REQ/S",
    "HIT RATIO",
];

fn pool_row(window: &Window, pool: &PoolView) -> Vec<String> {
    let rates = window.rates(pool);
    vec![
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

fn pool_rows(window: &Window) -> Vec<Vec<String>> {
    let pools = window.now.pools.iter();
    pools.map(|pool| pool_row(window, pool)).collect()
}

/// Renders the newest snapshot as plain text.
pub(super) fn text(window: &Window) -> String {
    let mut tables = Vec::new();
    let regions = &window.now.regions;
    if regions.name.is_some() {
        let table = table::render(&regions::HEADER, regions::rows(regions));
        tables.push(table + &regions::notes(regions));
    }
    tables.push(table::render(&POOL_HEADER, pool_rows(window)));
    tables.push(replicas::list(&window.now.replicas));
    tables.join("\n")
}

/// A table of a terminal: its title, its header, and its rows with the color of each.
struct ColoredTable {
    title: &'static str,
    header: &'static [&'static str],
    rows: Vec<(Vec<String>, Color)>,
}

impl ColoredTable {
    /// Creates a table; `color` says which color a row has, by its values.
    fn new(
        title: &'static str,
        header: &'static [&'static str],
        rows: Vec<Vec<String>>,
        color: impl Fn(&[String]) -> Color,
    ) -> Self {
        let rows = rows.into_iter().map(|row| {
            let color = color(&row);
            (row, color)
        });
        Self {
            title,
            header,
            rows: rows.collect(),
        }
    }

    /// Returns the height with all rows, the header and the frame.
    fn height(&self) -> u16 {
        let rows = u16::try_from(self.rows.len()).unwrap_or(u16::MAX);
        rows.saturating_add(3)
    }

    /// Draws the table; columns are as wide as their longest value.
    fn draw(self, frame: &mut Frame<'_>, area: Rect) {
        let mut widths = Vec::from_iter(self.header.iter().map(|cell| cell.chars().count()));
        for (row, _) in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let widths = widths
            .into_iter()
            .map(|width| u16::try_from(width).unwrap_or(u16::MAX));
        let rows = self.rows.into_iter();
        let rows = rows.map(|(row, color)| Row::new(row).style(Style::new().fg(color)));
        let header = Row::new(self.header.iter().copied());
        let table = Table::new(rows, widths.map(Constraint::Length))
            .column_spacing(2)
            .header(header.style(Style::new().add_modifier(Modifier::BOLD)))
            .block(Block::bordered().title(self.title));
        frame.render_widget(table, area);
    }
}

/// Draws the newest snapshot on a terminal.
pub(super) fn frame(frame: &mut Frame<'_>, window: &Window) {
    let third = frame.area().height / 3;
    let regions = window
        .now
        .regions
        .name
        .is_some()
        .then(|| region_table(window));
    let (pools, replicas) = (pool_table(window), replica_table(window));
    let layout = Layout::vertical([
        Constraint::Length(regions.as_ref().map_or(0, ColoredTable::height).min(third)),
        Constraint::Length(pools.height().min(third)),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [top, middle, bottom, status] = layout.areas(frame.area());
    if let Some(regions) = regions {
        regions.draw(frame, top);
    }
    pools.draw(frame, middle);
    replicas.draw(frame, bottom);
    let line = match &window.problem {
        Some(problem) => Line::styled(problem.as_str(), Style::new().fg(Color::Red)),
        None => Line::styled("q quits", Style::new().add_modifier(Modifier::DIM)),
    };
    frame.render_widget(line, status);
}

fn region_table(window: &Window) -> ColoredTable {
    let rows = regions::rows(&window.now.regions);
    ColoredTable::new(" regions ", &regions::HEADER, rows, |row| {
        match row.get(1).map_or("", String::as_str) {
            "this region" | "up" => Color::Green,
            "never_heard" => Color::Yellow,
            _ => Color::Red,
        }
    })
}

fn pool_table(window: &Window) -> ColoredTable {
    ColoredTable::new(" pools ", &POOL_HEADER, pool_rows(window), |row| match row
        .get(4)
        .map_or("", String::as_str)
    {
        "0" => Color::Reset,
        _ => Color::Yellow,
    })
}

fn replica_table(window: &Window) -> ColoredTable {
    let rows = window.now.replicas.iter().map(replicas::row).collect();
    ColoredTable::new(" replicas ", &replicas::HEADER, rows, |row| {
        match row.get(3).map_or("", String::as_str) {
            "available" => Color::Green,
            "probe_failed" | "stale" | "failing" => Color::Red,
            _ => Color::Yellow,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::snapshot::Snapshot;
    use super::*;
    use crate::admin::view::{CountersView, RegionsView, ReplicaView};
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
            text.contains("llama  prefix_tree  pending  1/2        3      1.5 s"),
            "{text}"
        );
        assert!(text.contains("50%"), "{text}");
        assert!(
            text.contains("10.0.0.1:80  -             pending  4"),
            "{text}"
        );
    }

    #[test]
    fn rates_cover_the_window_and_not_the_time_since_the_start() {
        let start = Instant::now();
        let mut window = Window::new(snapshot(start, 10, 0));
        window.push(Ok(snapshot(start + Duration::from_secs(2), 30, 2000)));
        let rates = window.rates(&window.now.pools[0]);
        assert!((rates.decisions_per_s - 10.0).abs() < 1e-9, "{rates:?}");
        assert_eq!(rates.hit_ratio, Some(1.0));
    }

    #[test]
    fn a_terminal_shows_the_tables_and_the_error_of_a_stopped_service() {
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
    fn regions_stand_above_pools_and_replicas() {
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
