//! Tables of pages that say what tests found: compared with what they find now, or written.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

/// A row of a table.
pub(crate) fn row(cells: &[&str]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// The first two lines of a table.
pub(crate) fn heading(titles: &[&str]) -> Vec<String> {
    vec![row(titles), row(&vec!["---"; titles.len()])]
}

/// The text of a page, and where its table with this first title stands among the lines.
fn find<'a>(
    text: &'a str,
    page: &str,
    title: &str,
) -> anyhow::Result<(Vec<&'a str>, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let start = format!("| {title} |");
    let start = lines.iter().position(|line| line.starts_with(&start));
    let start = start.with_context(|| format!("{page} has no table of each {title}"))?;
    let is_row = |line: &&&str| line.starts_with('|');
    let length = lines.iter().skip(start).take_while(is_row).count();
    Ok((lines, start, length))
}

fn read(root: &Path, page: &str) -> anyhow::Result<String> {
    fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {page}"))
}

/// The rows of the page's table with this first title, without its heading.
pub(crate) fn rows(root: &Path, page: &str, title: &str) -> anyhow::Result<Vec<String>> {
    let text = read(root, page)?;
    let (lines, start, length) = find(&text, page, title)?;
    let rows = lines.into_iter().skip(start).take(length).skip(2);
    Ok(rows.map(str::to_owned).collect())
}

/// Compares the page's table that has the same first title, and with `UPDATE_DOCS=1` writes it. `command` found the table.
pub(crate) fn compare_or_write(
    root: &Path,
    page: &str,
    table: &[String],
    command: &str,
) -> anyhow::Result<()> {
    let text = read(root, page)?;
    let heading = table.first().map(String::as_str).unwrap_or_default();
    let title = heading.split('|').nth(1).unwrap_or_default().trim();
    let (lines, start, length) = find(&text, page, title)?;
    let before = lines.iter().take(start).copied();
    let after = lines.iter().skip(start + length).copied();
    let table = table.iter().map(String::as_str);
    let lines: Vec<&str> = before.chain(table).chain(after).collect();
    let found = format!("{}\n", lines.join("\n"));
    if env::var_os("UPDATE_DOCS").is_some() {
        return fs::write(root.join(page), found).with_context(|| format!("cannot write {page}"));
    }
    ensure!(
        found == text,
        "{page} does not say what was found; UPDATE_DOCS=1 {command} writes it. It would be:\n{found}"
    );
    Ok(())
}
