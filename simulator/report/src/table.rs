//! Tables: rows of cells under column names. A table renders itself as terminal text, as Markdown and as CSV.

use core::ops::Range;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement};
use serde::Serialize;

/// Rows of cells under column names. The first column is aligned left, every other one right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Headings above several columns, from left to right; none of them overlap.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ColumnGroup>,
    /// Rows from top to bottom.
    pub rows: Vec<Row>,
    /// Columns of the headline: the part of a large table that a page of results shows. Empty without one.
    #[serde(skip)]
    pub(crate) shown_columns: Vec<usize>,
}

/// A heading above several columns. Text without such headings names each column with its group: `TTFT p50`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ColumnGroup {
    /// The heading.
    pub name: String,
    /// Index of its first column.
    pub first: usize,
    /// Number of its columns.
    pub columns: usize,
}

/// A row of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Cells from left to right.
    pub cells: Vec<Cell>,
    /// Whether the row leads a group of rows; a page shows it in bold.
    pub is_leading: bool,
    /// Whether the row is in the headline.
    #[serde(skip)]
    pub(crate) is_shown: bool,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Text of the cell.
    pub text: String,
    /// Whether a page shows the cell as an alert.
    pub is_alert: bool,
    /// Whether the cell has the best value of its column.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub is_best: bool,
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.to_string(),
            is_alert: false,
            is_best: false,
        }
    }
}

impl Row {
    /// Text of a cell; empty where there is none.
    pub fn text(&self, column: usize) -> &str {
        self.cells.get(column).map_or("", |cell| &cell.text)
    }
}

impl Cell {
    /// A count that ought to be zero, such as failed requests; an alert when it is not.
    pub fn zero_expected(count: usize) -> Self {
        Self {
            text: count.to_string(),
            is_alert: count > 0,
            is_best: false,
        }
    }
}

impl Table {
    /// A table without rows.
    pub fn new<S: ToString>(columns: impl IntoIterator<Item = S>) -> Self {
        Self {
            columns: columns.into_iter().map(|name| name.to_string()).collect(),
            ..Self::default()
        }
    }

    /// Puts a heading above columns.
    pub fn with_group(mut self, name: &str, columns: Range<usize>) -> Self {
        self.groups.push(ColumnGroup {
            name: name.to_owned(),
            first: columns.start,
            columns: columns.len(),
        });
        self
    }

    /// The heading above a column.
    pub fn group_of(&self, column: usize) -> Option<&ColumnGroup> {
        let mut groups = self.groups.iter();
        groups.find(|group| (group.first..group.first + group.columns).contains(&column))
    }

    /// Marks the headline: the named columns of the rows that the predicate selects.
    pub fn headline(mut self, columns: &[&str], is_shown: impl Fn(&Row) -> bool) -> Self {
        let names = self.full_names();
        let is_named = |index: &usize| {
            names
                .get(*index)
                .is_some_and(|name| columns.contains(&name.as_str()))
        };
        self.shown_columns = (0..names.len()).filter(is_named).collect();
        for row in &mut self.rows {
            row.is_shown = is_shown(row);
        }
        self
    }

    /// The headline, of at most so many rows.
    pub(crate) fn headline_alone(&self, rows_max: usize) -> Self {
        let columns = || self.shown_columns.iter().copied();
        let names = self.full_names();
        let rows = self.rows.iter().filter(|row| row.is_shown).take(rows_max);
        Self::new(columns().filter_map(|column| names.get(column))).with_rows(
            rows.map(|row| columns().filter_map(move |column| row.cells.get(column).cloned())),
        )
    }

    /// Letters of the longest cell.
    pub(crate) fn letters_max(&self) -> usize {
        let cells = self.rows.iter().flat_map(|row| &row.cells);
        cells
            .map(|cell| cell.text.chars().count())
            .max()
            .unwrap_or(0)
    }

    /// The names of the columns, each with its group.
    pub(crate) fn full_names(&self) -> Vec<String> {
        let columns = self.columns.iter().enumerate();
        let name = |(index, column): (usize, &String)| match self.group_of(index) {
            Some(group) => format!("{} {column}", group.name),
            None => column.clone(),
        };
        columns.map(name).collect()
    }

    /// A table with these rows.
    pub fn with_rows<R, C>(mut self, rows: impl IntoIterator<Item = R>) -> Self
    where
        R: IntoIterator<Item = C>,
        C: Into<Cell>,
    {
        for row in rows {
            self.push(row);
        }
        self
    }

    /// Appends a row.
    pub fn push<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(Row {
            cells: cells.into_iter().map(Into::into).collect(),
            ..Row::default()
        });
    }

    /// Appends a row that leads the group of rows below it.
    pub fn push_leading<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.push(cells);
        if let Some(row) = self.rows.last_mut() {
            row.is_leading = true;
        }
    }

    /// Terminal text: columns as wide as their widest cell, two spaces apart, without lines.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_style(NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(self.full_names());
        for row in &self.rows {
            table.add_row(row.cells.iter().map(|cell| cell.text.as_str()));
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((if index == 0 { 0 } else { 2 }, 0));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines = table.lines().map(|line| format!("{}\n", line.trim_end()));
        lines.collect()
    }

    /// Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let escaped = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
            format!("| {} |\n", escaped.collect::<Vec<_>>().join(" | "))
        };
        let mut text = line(&mut self.full_names().iter().map(String::as_str));
        let alignments = ["---"].into_iter().chain(core::iter::repeat("---:"));
        text += &line(&mut alignments.take(self.columns.len()));
        for row in &self.rows {
            text += &line(&mut row.cells.iter().map(|cell| cell.text.as_str()));
        }
        text
    }

    /// Comma-separated values (RFC 4180) under the column names. A unit that all values of a column share stands in its name.
    pub fn csv(&self) -> anyhow::Result<String> {
        let units: Vec<&str> = (0..self.columns.len())
            .map(|column| self.unit(column))
            .collect();
        let names = self.full_names();
        let names = names.iter().zip(&units).map(|(name, unit)| match *unit {
            "" => name.clone(),
            unit => format!("{name}, {unit}"),
        });
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(names)?;
        for row in &self.rows {
            writer.write_record(units.iter().enumerate().map(|(column, unit)| {
                let text = row.text(column);
                text.strip_suffix(unit).map_or(text, str::trim_end)
            }))?;
        }
        Ok(String::from_utf8(writer.into_inner()?)?)
    }

    /// The unit of a column of numbers: what stands after each number; empty where they differ.
    fn unit(&self, column: usize) -> &str {
        let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
        let texts = cells.map(|cell| cell.text.as_str());
        let mut texts = texts.filter(|text| !matches!(*text, "" | "-" | "∞"));
        let Some(first) = texts.next().and_then(unit_of) else {
            return "";
        };
        match texts.all(|text| unit_of(text) == Some(first)) {
            true => first,
            false => "",
        }
    }
}

/// The unit in a cell such as `91.4 %`.
fn unit_of(text: &str) -> Option<&str> {
    let (number, unit) = text.split_once(' ')?;
    (number.parse::<f64>().is_ok() && !unit.contains(' ')).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(["name", "ms"]).with_rows([["a", "12.5"], ["long, x|y", "7"]])
    }

    #[test]
    fn text_columns_are_as_wide_as_their_widest_cell() {
        let text = "name         ms\na          12.5\nlong, x|y     7\n";
        assert_eq!(table().text(), text);
    }

    #[test]
    fn markdown_escapes_bars_and_csv_quotes_commas() {
        let markdown = "| name | ms |\n| --- | ---: |\n| a | 12.5 |\n| long, x\\|y | 7 |\n";
        assert_eq!(table().markdown(), markdown);
        assert_eq!(table().csv().unwrap(), "name,ms\na,12.5\n\"long, x|y\",7\n");
    }

    #[test]
    fn a_column_has_the_name_of_its_group_where_no_heading_can_stand() {
        let table = Table::new(["policy", "p50", "p99", "failed"]).with_group("TTFT", 1..3);
        assert_eq!(table.csv().unwrap(), "policy,TTFT p50,TTFT p99,failed\n");
        assert!(table.markdown().starts_with("| policy | TTFT p50 |"));
        assert!(table.text().contains("TTFT p99"));
    }

    #[test]
    fn a_unit_that_all_values_share_stands_in_the_name_of_the_column() {
        let rows = [
            ["1 %", "1 s", "1 to 2 s"],
            ["-", "2 ms", "2 s"],
            ["3 %", "", "x"],
        ];
        let csv = Table::new(["hits", "time", "text"]).with_rows(rows).csv();
        assert_eq!(
            csv.unwrap(),
            "\"hits, %\",time,text\n1,1 s,1 to 2 s\n-,2 ms,2 s\n3,,x\n"
        );
        let mut short = Table::new(["a", "b"]);
        short.push(["1"]);
        assert_eq!(
            short.csv().unwrap(),
            "a,b\n1,\n",
            "a row has a cell for each column"
        );
    }

    #[test]
    fn a_leading_row_and_an_unexpected_count_are_marked() {
        let mut table = Table::new(["", "failed"]);
        table.push_leading([Cell::from("all"), Cell::zero_expected(2)]);
        table.push([Cell::from("one"), Cell::zero_expected(0)]);
        assert!(table.rows[0].is_leading && table.rows[0].cells[1].is_alert);
        assert!(!table.rows[1].is_leading && !table.rows[1].cells[1].is_alert);
    }
}
