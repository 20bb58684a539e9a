//! A report as a page of results: at most [`LINES_MAX`] lines of Markdown, and a CSV file for each table that is too large for it.
//!
//! The page has the circumstances, what was asked, the verdicts, and the rows that carry them:
//! - The verdicts on one expectation in several cases are one line. With more than a few, a file has each.
//! - Tables of the same columns are one file, with a column for the part that each row is from.
//! - A table of a few rows and columns stands in the page. Of a larger one, the page has its headline ([`Table::headline`]).
//!
//! Each kind of block has a bound, and the bounds add up to that of the page.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::verdicts::Verdicts;
use crate::report::{Content, Report, Section};
use crate::table::Table;

/// Most lines of a page.
pub const LINES_MAX: usize = 40;
/// Most paragraphs before the verdicts; the last one holds what is left.
const TEXTS_MAX: usize = 6;
/// Most rows and columns of a table in the page.
const ROWS_MAX: usize = 6;
const COLUMNS_MAX: usize = 11;
/// Most letters of a cell of a small table: a sentence makes a table wide.
const LETTERS_MAX: usize = 48;
/// Most words of the name of a file.
const SLUG_WORDS_MAX: usize = 4;

/// A page of results and the tables beside it.
#[derive(Clone, Debug)]
pub struct Page {
    /// Markdown of the page.
    pub markdown: String,
    /// Names of the files beside it, with their tables.
    pub tables: Vec<(String, Table)>,
}

/// A table with its label.
type Part<'a> = (&'a str, &'a Table);

/// Tables of the same columns.
struct TableGroup {
    labels: Vec<String>,
    table: Table,
}

impl Report {
    /// The report as a page of results; the files beside it begin with `name`.
    pub fn page(&self, name: &str) -> Page {
        Page::new(self, name)
    }

    /// Writes the page of results to a path such as `docs/results/NAME.md`, and its tables beside it; returns the paths.
    pub fn write_page(&self, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let name = path.file_stem().and_then(OsStr::to_str);
        let name = name.with_context(|| format!("{} names no file", path.display()))?;
        self.page(name).write(path)
    }
}

impl Page {
    /// The page of a report; files beside it begin with `name`.
    fn new(report: &Report, name: &str) -> Self {
        let verdicts = Verdicts::new(&report.sections);
        let groups = groups(&report.sections);
        let mut blocks = vec![format!("# {}", report.title)];
        blocks.extend(report.facts.as_ref().map(|facts| {
            let lines = facts.pairs();
            lines
                .map(|(name, value)| format!("- {name}: `{value}`"))
                .join("\n")
        }));
        blocks.push(texts(&report.sections));
        blocks.push(verdicts.lines.join("\n"));
        // The files and the footer are a line each, with an empty one before it.
        let used = 4 + blocks.iter().map(|block| lines(block)).sum::<usize>();
        let mut room = LINES_MAX.saturating_sub(used);
        let mut tables = Vec::new();
        for group in &groups {
            let shown = group.shown(room);
            if let Some(shown) = &shown {
                let block = shown.markdown();
                room = room.saturating_sub(lines(&block));
                blocks.push(block.trim_end().to_owned());
            }
            if shown.is_none_or(|shown| !group.is_whole(&shown)) {
                let file = file_name(name, group, groups.len());
                let file = unique(&tables, file);
                tables.push((file, group.table.clone()));
            }
        }
        let mut files: Vec<String> = tables
            .iter()
            .map(|(file, table)| link(file, table))
            .collect();
        if let Some(each) = verdicts.table {
            let file = format!("{name}-verdicts.csv");
            files.push(link(&file, &each));
            tables.push((file, each));
        }
        if !files.is_empty() {
            blocks.push(format!("Tables: {}.", files.join(", ")));
        }
        blocks.push(report.footer.clone());
        blocks.retain(|block| !block.is_empty());
        let markdown = format!("{}\n", blocks.join("\n\n"));
        Self { markdown, tables }
    }

    /// Writes the page to a path and its tables beside it; returns the paths of the files.
    fn write(&self, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let mut files = vec![(path.to_owned(), self.markdown.clone())];
        for (name, table) in &self.tables {
            files.push((path.with_file_name(name), table.csv()?));
        }
        for (path, text) in &files {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(files.into_iter().map(|(path, _)| path).collect())
    }
}

/// Lines of a block and the empty one after it.
fn lines(block: &str) -> usize {
    match block.lines().count() {
        0 => 0,
        lines => lines + 1,
    }
}

/// The paragraphs of all sections, a line each.
fn texts(sections: &[Section]) -> String {
    let mut texts = Vec::new();
    for section in sections {
        for content in &section.content {
            match content {
                Content::Text(text) if section.title.is_empty() => texts.push(text.clone()),
                Content::Text(text) => texts.push(format!("{}: {text}", section.title)),
                _ => {}
            }
        }
    }
    let rest = texts.split_off(texts.len().min(TEXTS_MAX - 1)).join(" ");
    texts.extend((!rest.is_empty()).then_some(rest));
    texts.join("\n")
}

/// The tables of all sections, those of the same columns together.
fn groups(sections: &[Section]) -> Vec<TableGroup> {
    let mut groups: Vec<(Vec<String>, Vec<Part<'_>>)> = Vec::new();
    for section in sections {
        for content in &section.content {
            if let Content::Table(table) = content {
                let columns = table.full_names();
                let part = (section.title.as_str(), table);
                match groups.iter_mut().find(|(known, _)| *known == columns) {
                    Some((_, parts)) => parts.push(part),
                    None => groups.push((columns, vec![part])),
                }
            }
        }
    }
    groups
        .into_iter()
        .map(|(_, parts)| TableGroup::new(&parts))
        .collect()
}

impl TableGroup {
    fn new(parts: &[Part<'_>]) -> Self {
        let labels = parts.iter().map(|(label, _)| (*label).to_owned()).collect();
        if let [(_, table)] = parts {
            let table = (*table).clone();
            return Self { labels, table };
        }
        let columns = parts
            .first()
            .map_or_else(Vec::new, |(_, table)| table.full_names());
        let mut all = Table::new(core::iter::once("part".to_owned()).chain(columns));
        for (label, table) in parts {
            all.shown_columns = table
                .shown_columns
                .iter()
                .map(|column| column + 1)
                .collect();
            for row in &table.rows {
                let mut row = row.clone();
                row.cells.insert(0, (*label).into());
                all.rows.push(row);
            }
        }
        if !all.shown_columns.is_empty() {
            all.shown_columns.insert(0, 0);
        }
        Self { labels, table: all }
    }

    /// The part of the table for a page with room for so many lines.
    fn shown(&self, room: usize) -> Option<Table> {
        let rows_max = room.saturating_sub(3).min(ROWS_MAX);
        let table = &self.table;
        let is_small = table.rows.len() <= rows_max
            && table.columns.len() <= COLUMNS_MAX
            && table.letters_max() <= LETTERS_MAX;
        let mut shown = match table.shown_columns.is_empty() {
            true if is_small => table.clone(),
            true => return None,
            false => table.headline_alone(rows_max),
        };
        let label = self.labels.first().filter(|_| self.labels.len() == 1);
        if let (Some(first), Some(label)) = (
            shown.columns.first_mut().filter(|name| name.is_empty()),
            label,
        ) {
            first.clone_from(label);
        }
        (!shown.rows.is_empty()).then_some(shown)
    }

    /// Whether the part in the page is all of the table.
    fn is_whole(&self, shown: &Table) -> bool {
        let size = |table: &Table| (table.rows.len(), table.columns.len());
        size(shown) == size(&self.table)
    }
}

/// The name of a table's file: that of the page, and where there are several tables, the words that its labels share.
fn file_name(name: &str, group: &TableGroup, groups: usize) -> String {
    let labels: Vec<Vec<String>> = group.labels.iter().map(|label| words(label)).collect();
    let first = labels.first().filter(|_| groups > 1);
    let is_shared = |word: &&String| labels.iter().all(|words| words.contains(word));
    let shared = first.into_iter().flatten().filter(is_shared);
    let slug: Vec<&str> = core::iter::once(name)
        .chain(shared.map(String::as_str).take(SLUG_WORDS_MAX))
        .collect();
    format!("{}.csv", slug.join("-"))
}

/// Lower-case words of a label.
fn words(label: &str) -> Vec<String> {
    let words = label.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect()
}

/// The name, with a number where another file has it.
fn unique(known: &[(String, Table)], name: String) -> String {
    let is_known = |name: &String| known.iter().any(|(other, _)| other == name);
    let stem = name.trim_end_matches(".csv").to_owned();
    let numbered = (2..).map(|number| format!("{stem}-{number}.csv"));
    let mut names = core::iter::once(name).chain(numbered);
    names.find(|name| !is_known(name)).unwrap_or(stem)
}

fn link(file: &str, table: &Table) -> String {
    format!("[{file}]({file}) ({} rows)", table.rows.len())
}
