//! What an experiment writes: `data.csv` (a line for each run), `data.json` (the same, with the paper's numbers and what
//! was found), `report.html` (charts).

use std::path::{Path, PathBuf};

use isotherm_report::files;
use isotherm_report::page::{figure, key, mark, page, verdicts};
use maud::{Markup, html};
use serde::Serialize;

use super::lab::CUT;
use super::paper::Against;
use super::rows::{Row, Rows};
use crate::setup::LIMIT;

/// The result of an experiment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Document {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title.
    pub title: String,
    /// What was run: paragraphs.
    pub about: Vec<String>,
    /// The paper's numbers beside ours.
    pub paper: Vec<Against>,
    /// What the data say.
    pub findings: Vec<Finding>,
    /// Charts and tables.
    #[serde(skip)]
    pub sections: Vec<Section>,
    /// The runs.
    pub rows: Rows,
}

/// A sentence, computed from the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The sentence.
    pub text: String,
    /// Whether what was hoped for holds; nothing where the sentence only says what is.
    pub holds: Option<bool>,
}

impl Finding {
    /// What is.
    #[must_use]
    pub fn note(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            holds: None,
        }
    }

    /// What was hoped for, and whether it holds.
    #[must_use]
    pub fn claim(text: impl Into<String>, holds: bool) -> Self {
        Self {
            text: text.into(),
            holds: Some(holds),
        }
    }
}

/// A part of the page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its title.
    pub title: String,
    /// A paragraph.
    pub text: String,
    /// What the colours are.
    pub key: Vec<String>,
    /// Charts.
    pub charts: Vec<Chart>,
    /// A table, when there is one.
    pub table: Option<Table>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below it.
    pub explanation: String,
    /// Itself.
    pub svg: String,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Its head.
    pub heads: Vec<String>,
    /// Its lines.
    pub lines: Vec<Vec<String>>,
}

impl Document {
    /// Says so first, if runs were cut at their limit: what was still to come is in none of their figures.
    pub fn tell_of_cut_runs(&mut self) {
        let cut = |row: &&Row| row.more.contains_key(CUT);
        let runs = self.rows.0.iter().filter(cut).count();
        if runs > 0 {
            let text = format!(
                "Every run came to its end: {runs} of {} were cut after {} days of virtual time ({CUT} in data.csv).",
                self.rows.0.len(),
                LIMIT.as_secs() / (24 * 3_600)
            );
            self.findings.insert(0, Finding::claim(text, false));
        }
    }

    /// Writes the three files into a directory of its name, which is made; returns the page's path.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, output: &Path) -> anyhow::Result<PathBuf> {
        let mut json = serde_json::to_string_pretty(self)?;
        json.push('\n');
        let written = [
            ("data.csv", self.rows.csv()),
            ("data.json", json),
            ("report.html", self.html()),
        ];
        let [_, _, page] = files::write(&output.join(self.name), written)?;
        Ok(page)
    }

    /// The page.
    #[must_use]
    pub fn html(&self) -> String {
        let body = html! {
            h1 { (self.title) }
            @for paragraph in &self.about { p { (paragraph) } }
            @if !self.findings.is_empty() { (claims(&self.findings)) }
            @if !self.paper.is_empty() { (beside(&self.paper)) }
            @for section in &self.sections { (part(section)) }
            footer {
                "Every run is in data.csv and data.json beside this page. `cargo xtask experiment " (self.name)
                "` makes all three again; the same seed gives the same bytes. Simulated: the routing core as shipped, the "
                "engine model of simulator/engine, clients and network in virtual time."
            }
        };
        page(&self.title, "", &body)
    }

    /// The findings and the paper's numbers, for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for one in &self.paper {
            text.push_str(&format!(
                "  {}: paper {}, here {} ({})\n",
                one.what,
                one.paper,
                one.ours_shown(),
                one.place()
            ));
        }
        for finding in &self.findings {
            text.push_str(&format!("  {}{}\n", mark(finding.holds), finding.text));
        }
        text
    }
}

fn claims(findings: &[Finding]) -> Markup {
    verdicts(
        findings
            .iter()
            .map(|finding| (finding.holds, finding.text.as_str())),
    )
}

fn beside(paper: &[Against]) -> Markup {
    html! {
        section {
            h2 { "The paper's numbers beside ours" }
            table {
                thead { tr { th { "figure" } th { "paper" } th { "here" } th { "ours is" } th { "from" } } }
                tbody { @for one in paper { tr {
                    td { (one.what) }
                    td { (one.paper) }
                    td { (one.ours_shown()) }
                    td { (one.place()) }
                    td { (one.paper.source) }
                } } }
            }
        }
    }
}

fn part(section: &Section) -> Markup {
    html! {
        section {
            h2 { (section.title) }
            @if !section.text.is_empty() { p { (section.text) } }
            @if !section.key.is_empty() { (key(section.key.iter().map(String::as_str))) }
            @if !section.charts.is_empty() {
                div.charts { @for chart in &section.charts { (figure(&chart.title, &chart.explanation, &chart.svg)) } }
            }
            @if let Some(table) = &section.table {
                table {
                    thead { tr { @for head in &table.heads { th { (head) } } } }
                    tbody { @for line in &table.lines { tr { @for cell in line { td { (cell) } } } } }
                }
            }
        }
    }
}

/// A page that leads to the reports of several experiments.
///
/// # Errors
/// When it cannot be written.
pub fn write_index(output: &Path, documents: &[Document]) -> anyhow::Result<PathBuf> {
    let body = html! {
        h1 { "Isotherm: experiments" }
        @for document in documents {
            section {
                h2 { a href={ (document.name) "/report.html" } { (document.title) } }
                (claims(&document.findings))
            }
        }
    };
    let index = page("Isotherm: experiments", "", &body);
    let [path] = files::write(output, [("index.html", index)])?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::super::paper::Stated;
    use std::fs;

    use super::super::rows::tests::row;
    use super::*;

    fn document() -> Document {
        Document {
            name: "tiny",
            title: "A <tiny> one".into(),
            about: vec!["What was run.".into()],
            paper: vec![Against::one(
                "gain",
                Stated::times(1.27, "A paper, Figure 9"),
                1.05,
            )],
            findings: vec![Finding::claim("It gains.", false), Finding::note("It ran.")],
            sections: vec![Section {
                title: "Numbers".into(),
                table: Some(Table {
                    heads: vec!["system".into()],
                    lines: vec![vec!["ours".into()]],
                }),
                ..Section::default()
            }],
            rows: Rows(vec![row("w", "a", 0.0, 1, 10.0)]),
        }
    }

    #[test]
    fn the_page_shows_the_papers_numbers_beside_ours_and_what_does_not_hold() {
        let page = document().html();
        assert!(
            page.contains("A &lt;tiny&gt; one")
                && page.contains("1.27 ×")
                && page.contains("1.05 ×")
        );
        assert!(
            page.contains("Does not hold: ")
                && page.contains("below")
                && page.contains("A paper, Figure 9")
        );
        let text = document().text();
        assert!(
            text.contains("gain: paper 1.27 ×, here 1.05 × (below)")
                && text.contains("\n  It ran.")
        );
    }

    #[test]
    fn runs_that_were_cut_are_the_first_thing_said() {
        let mut document = document();
        document.tell_of_cut_runs();
        assert_eq!(document.findings.len(), 2, "nothing was cut");
        let mut cut = row("w", "b", 0.0, 1, 1.0);
        cut.more.insert(CUT, 1.0);
        document.rows.0.push(cut);
        document.tell_of_cut_runs();
        let text = document.text();
        assert!(
            text.contains("Does not hold: Every run came to its end: 1 of 2 were cut after 7 days"),
            "{text}"
        );
    }

    #[test]
    fn three_files_and_an_index() {
        let output = std::env::temp_dir().join(format!("isotherm-document-{}", std::process::id()));
        let page = document().write(&output).unwrap();
        let read = |name: &str| fs::read_to_string(page.with_file_name(name)).unwrap();
        assert!(read("data.csv").lines().count() == 2);
        let json: serde_json::Value = serde_json::from_str(&read("data.json")).unwrap();
        assert_eq!(json["rows"][0]["summary"]["throughput_tokens_per_s"], 10.0);
        assert_eq!(json["paper"][0]["paper"]["unit"], "times");
        assert_eq!(json["findings"][0]["holds"], false);
        let index = write_index(&output, &[document()]).unwrap();
        assert!(
            fs::read_to_string(index)
                .unwrap()
                .contains("tiny/report.html")
        );
        fs::remove_dir_all(output).unwrap();
    }
}
