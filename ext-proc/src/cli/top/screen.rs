//! The screen of `isotherm top`: pools, failures and replicas, in 80 columns or more.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::Window;
use super::colours::Colours;
use super::keys::{HELP, Keys, SortKey};
use crate::admin::view::{PoolView, ReplicaView};
use crate::cli::learned;
use crate::cli::output::{or_dash, percent};

/// Width from which on the replicas have further columns.
const WIDE: u16 = 110;
/// Characters of a bar.
const BAR_WIDTH: usize = 10;
/// Most failures with their reasons; the table has all.
const FAILURES_MAX: usize = 5;
/// Least rows for the replicas with their heading.
const REPLICA_ROWS_MIN: u16 = 4;

/// Draws the newest snapshot.
pub(super) fn draw(frame: &mut Frame<'_>, window: &Window, keys: &mut Keys, colours: Colours) {
    let [title, body, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title_line(window, colours), title);
    frame.render_widget(Line::styled(HELP, colours.dim()), footer);
    if keys.shows_tables {
        draw_tables(frame, body, window, keys);
        return;
    }
    let pools = pool_table(window, colours);
    let notes = notes(window, keys, colours, body.width);
    let pools_height = u16::try_from(window.now.pools.len()).unwrap_or(u16::MAX);
    let notes_height = u16::try_from(notes.len()).unwrap_or(u16::MAX);
    let [pools_area, notes_area, replicas_area] = Layout::vertical([
        Constraint::Length(pools_height.saturating_add(2)),
        Constraint::Length(notes_height),
        Constraint::Min(REPLICA_ROWS_MIN),
    ])
    .areas(body);
    frame.render_widget(pools, pools_area);
    frame.render_widget(Text::from(notes), notes_area);
    draw_replicas(frame, replicas_area, window, keys, colours);
}

fn title_line(window: &Window, colours: Colours) -> Line<'static> {
    let status = match &window.problem {
        Some(problem) => Span::styled(problem.clone(), colours.bad()),
        None => Span::styled("live", colours.good()),
    };
    Line::from(vec![Span::styled("Isotherm  ", colours.heading()), status])
}

/// Every table of `--once`, which is wider than a terminal may be.
fn draw_tables(frame: &mut Frame<'_>, area: Rect, window: &Window, keys: &mut Keys) {
    let text = window.text();
    let scrolled = keys.scroll_within(text.lines().count(), area.height.into());
    let rows = u16::try_from(scrolled).unwrap_or(u16::MAX);
    frame.render_widget(Paragraph::new(text).scroll((rows, keys.shifted)), area);
}

fn pool_table(window: &Window, colours: Colours) -> Table<'static> {
    let header = [
        "POOL",
        "POLICY",
        "AVAIL",
        "REQ/S",
        "QUEUE",
        "OLDEST",
        "FLIGHT",
        "CACHE HITS",
    ];
    let rows = window.now.pools.iter();
    let rows = rows.map(|pool| pool_row(window, pool, colours));
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(12),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(5),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(15),
    ];
    Table::new(rows, widths).header(Row::new(header).style(colours.heading()))
}

fn pool_row(window: &Window, pool: &PoolView, colours: Colours) -> Row<'static> {
    let (decisions_per_s, hit_ratio) = window.rates(pool);
    let available = format!("{}/{}", pool.available_replicas, pool.replicas);
    let state = match pool.available_replicas {
        0 => colours.bad(),
        _ => Style::new(),
    };
    Row::new([
        Cell::from(pool.pool.clone()),
        Cell::from(pool.policy.clone()),
        Cell::from(available).style(state),
        Cell::from(format!("{decisions_per_s:.1}")),
        Cell::from(pool.queue_length.to_string()),
        Cell::from(format!("{:.1} s", pool.oldest_wait_ms as f64 / 1000.0)),
        Cell::from(pool.in_flight.to_string()),
        Cell::from(bar(hit_ratio, colours)),
    ])
}

/// A bar with its percentage; a dash for an unknown share.
fn bar(share: Option<f64>, colours: Colours) -> Line<'static> {
    let Some(share) = share else {
        return Line::from("-");
    };
    // A cast from float saturates.
    let filled = ((share * BAR_WIDTH as f64).round() as usize).min(BAR_WIDTH);
    Line::from(vec![
        Span::styled("█".repeat(filled), colours.bar()),
        Span::styled("░".repeat(BAR_WIDTH - filled), colours.dim()),
        Span::raw(format!(" {:>4}", percent(share))),
    ])
}

/// Lines between the tables: problems, and what each pool has learned.
fn notes(window: &Window, keys: &Keys, colours: Colours, width: u16) -> Vec<Line<'static>> {
    let now = &window.now;
    let mut lines = Vec::new();
    let mut note = |text: &str, style| {
        // A note may be longer than a line, and all of it matters.
        let letters: Vec<char> = text.chars().collect();
        let pieces = letters.chunks(usize::from(width).max(1));
        lines.extend(pieces.map(|piece| Line::styled(String::from_iter(piece), style)));
    };
    if keys.shows_learned {
        for pool in &now.pools {
            let learned = learned::line(&pool.learned);
            note(&format!("{} learned {learned}", pool.pool), Style::new());
        }
    }
    for pool in &now.pools {
        if let Some(problem) = &pool.source_problem {
            note(&format!("{}: {problem}", pool.pool), colours.bad());
        }
    }
    let replicas = now.replicas.iter();
    let failures = replicas.filter_map(|replica| describe_failure(replica, now.taken_unix_ms));
    let failures: Vec<String> = failures.collect();
    for failure in failures.iter().take(FAILURES_MAX) {
        note(failure, colours.bad());
    }
    if failures.len() > FAILURES_MAX {
        let more = failures.len() - FAILURES_MAX;
        note(&format!("{more} more replicas fail"), colours.bad());
    }
    if !lines.is_empty() {
        lines.push(Line::default());
    }
    lines
}

/// Says since when a replica fails, and why.
fn describe_failure(replica: &ReplicaView, now_unix_ms: u64) -> Option<String> {
    let failure = replica.failure.as_ref()?;
    let seconds = failure.since_unix_ms / 1_000;
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let lasted = now_unix_ms.saturating_sub(failure.since_unix_ms) / 1_000;
    let lasted = match lasted {
        0..120 => format!("{lasted} s"),
        120..7_200 => format!("{} min", lasted / 60),
        _ => format!("{} h", lasted / 3_600),
    };
    Some(format!(
        "{} fails since {hour:02}:{minute:02}:{second:02} UTC ({lasted}): {}",
        replica.address, failure.reason
    ))
}

fn draw_replicas(
    frame: &mut Frame<'_>,
    area: Rect,
    window: &Window,
    keys: &mut Keys,
    colours: Colours,
) {
    let is_wide = area.width >= WIDE;
    let replicas = keys.sorted(&window.now.replicas);
    let height = usize::from(area.height.saturating_sub(1));
    let first = keys.scroll_within(replicas.len(), height);
    let rows = replicas.iter().skip(first).take(height);
    let rows = rows.map(|replica| replica_row(replica, is_wide, colours));
    let mark = |name: &str, sort: SortKey| match keys.sort == sort {
        true => format!("{name}▾"),
        false => name.to_owned(),
    };
    let mut header = vec![
        mark("REPLICA", SortKey::Address),
        mark("STATE", SortKey::State),
        mark("FLIGHT", SortKey::InFlight),
        "QUEUED".to_owned(),
        "RUNNING".to_owned(),
        mark("KV CACHE", SortKey::Cache),
    ];
    let mut widths = vec![
        Constraint::Fill(1),
        Constraint::Length(12),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(15),
    ];
    if is_wide {
        header.extend(["MAY TAKE", "PROBE", "POOL"].map(str::to_owned));
        widths.extend([8, 9, 20].map(Constraint::Length));
    }
    let table = Table::new(rows, widths).header(Row::new(header).style(colours.heading()));
    frame.render_widget(table, area);
}

fn replica_row(replica: &ReplicaView, is_wide: bool, colours: Colours) -> Row<'static> {
    let (state, style) = state(replica, colours);
    let row_style = match replica.failure {
        Some(_) => colours.bad(),
        None => Style::new(),
    };
    let mut cells = vec![
        Cell::from(replica.address.clone()),
        Cell::from(state).style(style),
        Cell::from(replica.outstanding.to_string()),
        Cell::from(or_dash(replica.pending)),
        Cell::from(or_dash(replica.running)),
        Cell::from(bar(replica.kv_usage.map(f64::from), colours)),
    ];
    if is_wide {
        let probe = replica.probe_age_ms.map(|age| format!("{age} ms"));
        cells.push(Cell::from(
            replica
                .headroom
                .map_or_else(|| "any".to_owned(), |headroom| headroom.to_string()),
        ));
        cells.push(Cell::from(or_dash(probe)));
        cells.push(Cell::from(replica.pool.clone()));
    }
    Row::new(cells).style(row_style)
}

/// The state of a replica in a word or two, and its colour.
fn state(replica: &ReplicaView, colours: Colours) -> (String, Style) {
    match replica.availability.as_str() {
        _ if replica.draining => ("draining".to_owned(), colours.busy()),
        "available" => ("available".to_owned(), colours.good()),
        "pending" => ("has a queue".to_owned(), colours.busy()),
        "no_headroom" => ("has its fill".to_owned(), colours.busy()),
        other if replica.failure.is_some() => (other.replace('_', " "), colours.bad()),
        other => (other.replace('_', " "), colours.busy()),
    }
}

#[cfg(test)]
mod tests;
