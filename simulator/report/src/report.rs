//! The document model: a report, its sections, and what a section holds.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::chart::Chart;
use crate::facts::RunFacts;
use crate::render;
use crate::table::Table;

/// The result of an experiment, a benchmark or a demo.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Title of the report.
    pub title: String,
    /// Circumstances of the run. A report without them depends on its input alone.
    pub facts: Option<RunFacts>,
    /// Sections from top to bottom.
    pub sections: Vec<Section>,
    /// Remark at the bottom of a page.
    pub footer: String,
    /// Measurements for programs, as JSON; [`Format::Json`] writes them instead of the document.
    #[serde(skip)]
    pub data: Option<String>,
    /// Measurements for spreadsheets, which [`Format::Csv`] writes.
    #[serde(skip)]
    pub rows: Table,
}

/// A part of a report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// Heading; a section without a title continues the one above.
    pub title: String,
    /// Whether the section is left out of terminal text.
    pub is_detail: bool,
    /// Content from top to bottom.
    pub content: Vec<Content>,
}

/// A block of a section.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A paragraph.
    Text(String),
    /// Statements computed from the data.
    Conclusions(Vec<Conclusion>),
    /// The few figures that a reader takes away, large.
    KeyFigures(Vec<KeyFigure>),
    /// Charts side by side. The legend above the charts names the series of the first chart.
    Charts(Vec<Chart>),
    /// A table.
    Table(Table),
}

/// A figure that a page shows large, beside the same figure of the other series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyFigure {
    /// Name of the figure.
    pub name: String,
    /// Value of the first series, with its unit.
    pub value: String,
    /// The value beside that of another series, in words; may be empty.
    pub comparison: String,
    /// Whether the comparison favours the first series; `None` without a judgement.
    pub is_better: Option<bool>,
    /// Names and values of the other series.
    pub others: Vec<(String, String)>,
}

/// A statement computed from the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conclusion {
    /// Case for which the statement is; empty where there is only one. A page shows the verdicts on a statement together.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub case: String,
    /// The statement, or the expectation that the data meet or miss.
    pub text: String,
    /// The figures that decide, where the statement does not contain them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<String>,
    /// Whether the expectation holds; `None` for a statement that only describes.
    pub holds: Option<bool>,
}

/// File formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A page that needs nothing else: no script, no font, no network.
    Html,
    /// [`Report::data`], or the document itself.
    Json,
    /// [`Report::rows`].
    Csv,
}

impl Conclusion {
    /// A statement that only describes.
    pub fn note(text: impl Into<String>) -> Self {
        Self {
            case: String::new(),
            text: text.into(),
            measured: None,
            holds: None,
        }
    }

    /// An expectation that the data meet or miss.
    pub fn claim(text: impl Into<String>, holds: bool) -> Self {
        Self {
            holds: Some(holds),
            ..Self::note(text)
        }
    }

    /// Names the case.
    pub fn in_case(mut self, case: impl Into<String>) -> Self {
        self.case = case.into();
        self
    }

    /// Adds the figures that decide.
    pub fn measured(mut self, figures: impl Into<String>) -> Self {
        self.measured = Some(figures.into());
        self
    }

    /// The words before the statement: whether the expectation holds.
    pub(crate) const fn mark(&self) -> &'static str {
        match self.holds {
            Some(true) => "Holds: ",
            Some(false) => "Does not hold: ",
            None => "",
        }
    }

    /// The statement with its case and its figures.
    pub(crate) fn statement(&self) -> String {
        let case = Some(self.case.as_str()).filter(|case| !case.is_empty());
        let parts = case.into_iter().chain([self.text.as_str()]);
        let parts = parts.chain(self.measured.as_deref());
        parts.collect::<Vec<_>>().join(": ")
    }
}

impl Section {
    /// A section without content.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            ..Self::default()
        }
    }

    /// A section that terminal text leaves out.
    pub fn detail(title: impl Into<String>) -> Self {
        Self {
            is_detail: true,
            ..Self::new(title)
        }
    }

    /// Adds a paragraph; an empty one is left out.
    pub fn text(self, paragraph: impl Into<String>) -> Self {
        self.with(Content::Text(paragraph.into()))
    }

    /// Adds conclusions; an empty list is left out.
    pub fn conclusions(self, conclusions: Vec<Conclusion>) -> Self {
        self.with(Content::Conclusions(conclusions))
    }

    /// Adds key figures; an empty list is left out.
    pub fn key_figures(self, figures: Vec<KeyFigure>) -> Self {
        self.with(Content::KeyFigures(figures))
    }

    /// Adds charts side by side; an empty list is left out.
    pub fn charts(self, charts: Vec<Chart>) -> Self {
        self.with(Content::Charts(charts))
    }

    /// Adds a table; one without rows is left out.
    pub fn table(self, table: Table) -> Self {
        self.with(Content::Table(table))
    }

    fn with(mut self, content: Content) -> Self {
        let is_empty = match &content {
            Content::Text(text) => text.is_empty(),
            Content::Conclusions(conclusions) => conclusions.is_empty(),
            Content::KeyFigures(figures) => figures.is_empty(),
            Content::Charts(charts) => charts.is_empty(),
            Content::Table(table) => table.rows.is_empty(),
        };
        if !is_empty {
            self.content.push(content);
        }
        self
    }
}

impl Report {
    /// A report of the sections that have content.
    pub fn new(title: impl Into<String>, sections: impl IntoIterator<Item = Section>) -> Self {
        let sections = sections.into_iter();
        Self {
            title: title.into(),
            sections: sections
                .filter(|section| !section.content.is_empty())
                .collect(),
            ..Self::default()
        }
    }

    /// Attaches the measurements for programs.
    pub fn with_data(mut self, data: &impl Serialize) -> anyhow::Result<Self> {
        self.data = Some(json(data)?);
        Ok(self)
    }

    /// The report in a format.
    pub fn render(&self, format: Format) -> anyhow::Result<String> {
        Ok(match format {
            Format::Html => render::html::page(self)?,
            Format::Json => match &self.data {
                Some(data) => data.clone(),
                None => json(self)?,
            },
            Format::Csv => self.rows.csv()?,
        })
    }

    /// The report as terminal text.
    pub fn text(&self) -> String {
        render::text::terminal(self)
    }

    /// Writes the report into a directory, which is created when it is missing; returns the paths of the files.
    pub fn write<const N: usize>(
        &self,
        directory: &Path,
        names: [(&str, Format); N],
    ) -> anyhow::Result<[PathBuf; N]> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let paths = names.map(|(name, _)| directory.join(name));
        for (path, (name, format)) in paths.iter().zip(names) {
            let text = self
                .render(format)
                .with_context(|| format!("cannot render {name}"))?;
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(paths)
    }
}

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}
