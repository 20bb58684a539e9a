//! What an experiment writes: `data.csv` (a line for each run), `data.json` (the same, with the paper's numbers and what
//! was found), `report.html` (charts).

use std::path::{Path, PathBuf};

use isotherm_report::chart::Chart;
use isotherm_report::{self as report, Conclusion, Format, Report};
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
    pub findings: Vec<Conclusion>,
    /// Charts and tables.
    #[serde(skip)]
    pub sections: Vec<Section>,
    /// The runs.
    pub rows: Rows,
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
            self.findings.insert(0, Conclusion::claim(text, false));
        }
    }

    /// Writes the three files into a directory of its name, which is made; returns the page's path.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, output: &Path) -> anyhow::Result<PathBuf> {
        let names = [
            ("data.csv", Format::Csv),
            ("data.json", Format::Json),
            ("report.html", Format::Html),
        ];
        let [_, _, page] = self.report()?.write(&output.join(self.name), names)?;
        Ok(page)
    }

    /// The document as a report.
    ///
    /// # Errors
    /// When a figure has no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let about = self
            .about
            .iter()
            .fold(report::Section::new(""), |section, paragraph| {
                section.text(paragraph)
            });
        let paper = "The paper's numbers beside ours";
        let report = Report::new(&self.title)
            .section(about.conclusions(self.findings.clone()))
            .section(report::Section::new(paper).table(beside(&self.paper)))
            .sections(self.sections.iter().map(part))
            .footer(format!(
                "Every run is in data.csv and data.json beside this page. `cargo xtask experiment {}` makes all three again; \
                 the same seed gives the same bytes. Simulated: the routing core as shipped, the engine model of \
                 simulator/engine, clients and network in virtual time.",
                self.name
            ))
            .with_rows(self.rows.table());
        report.with_data(self)
    }
}

fn beside(paper: &[Against]) -> report::Table {
    let row = |one: &Against| {
        [
            one.what.clone(),
            one.paper.to_string(),
            one.ours_shown(),
            one.place().to_owned(),
            one.paper.source.to_owned(),
        ]
    };
    report::Table::new(["figure", "paper", "here", "ours is", "from"])
        .with_rows(paper.iter().map(row))
}

fn part(section: &Section) -> report::Section {
    let mut charts = section.charts.clone();
    if let Some(first) = charts.first_mut() {
        first.series.clone_from(&section.key);
    }
    let part = report::Section::detail(&section.title)
        .text(&section.text)
        .charts(charts);
    match &section.table {
        Some(table) => {
            part.table(report::Table::new(&table.heads).with_rows(table.lines.iter().cloned()))
        }
        None => part,
    }
}

/// A page that leads to the reports of several experiments.
///
/// # Errors
/// When it cannot be written.
pub fn write_index(output: &Path, documents: &[Document]) -> anyhow::Result<PathBuf> {
    let section = |document: &Document| {
        report::Section::new(&document.title)
            .text(format!("{}/report.html", document.name))
            .conclusions(document.findings.clone())
    };
    let report = Report::new("Isotherm: experiments").sections(documents.iter().map(section));
    let [path] = report.write(output, [("index.html", Format::Html)])?;
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
            findings: vec![
                Conclusion::claim("It gains.", false),
                Conclusion::note("It ran."),
            ],
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
        let page = document().report().unwrap().render(Format::Html).unwrap();
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
        let text = document().report().unwrap().text();
        assert!(text.contains("1.27 ×  1.05 ×    below") && text.contains("\n  It ran."));
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
        let text = document.report().unwrap().text();
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
