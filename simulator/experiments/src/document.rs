//! The result of an experiment, and the files in which it is written: `data.csv` (a line for each run), `data.json` (the
//! runs, the paper's numbers and the conclusions), and the page of results with its tables.

use std::path::{Path, PathBuf};

use isotherm_report::{Conclusion, Format, Report, RunFacts, Section};
use isotherm_simulator::setup::LIMIT;
use serde::Serialize;

use crate::context::CUT;
use crate::paper::{PaperComparison, table};
use crate::rows::Rows;

/// The result of an experiment; its JSON form is `data.json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Document {
    /// Name and title of the experiment; the registry sets both.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Name of the result page, if it is not that of the experiment.
    #[serde(skip)]
    pub(crate) page: Option<&'static str>,
    /// Paragraphs about the set-up.
    pub(crate) about: Vec<String>,
    pub(crate) paper: Vec<PaperComparison>,
    #[serde(rename = "findings")]
    pub(crate) conclusions: Vec<Conclusion>,
    #[serde(skip)]
    pub(crate) sections: Vec<Section>,
    pub(crate) rows: Rows,
}

impl Document {
    /// Puts a warning first if runs were cut at their limit: their figures leave out later requests.
    pub(crate) fn warn_of_cut_runs(&mut self) {
        let runs = self.rows.0.iter();
        let cut = runs.filter(|row| row.more.contains_key(CUT)).count();
        if cut > 0 {
            let text = format!(
                "Every run came to its end: {cut} of {} were cut after {} days of virtual time ({CUT} in data.csv).",
                self.rows.0.len(),
                LIMIT.as_secs() / (24 * 3_600)
            );
            self.conclusions.insert(0, Conclusion::claim(text, false));
        }
    }

    /// Writes the files into a directory of the experiment's name; returns the path of the page.
    pub(crate) fn write(&self, output: &Path) -> anyhow::Result<PathBuf> {
        let directory = output.join(self.name);
        let report = self.report()?;
        let names = [("data.csv", Format::Csv), ("data.json", Format::Json)];
        report.write(&directory, names)?;
        let page = directory.join(self.page_name());
        report.write_page(&page)?;
        Ok(page)
    }

    fn page_name(&self) -> String {
        format!("{}.md", self.page.unwrap_or(self.name))
    }

    /// Writes the result page with the circumstances of the run, which the other files leave out to be the same bytes every time.
    pub(crate) fn write_markdown(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let report = Report {
            facts: Some(RunFacts::collect("cargo xtask")),
            ..self.report()?
        };
        let path = directory.join(self.page_name());
        report.write_page(&path)?;
        Ok(path)
    }

    pub(crate) fn report(&self) -> anyhow::Result<Report> {
        let about = self.about.iter().fold(Section::new(""), Section::text);
        let about = about.conclusions(self.conclusions.clone());
        let paper = Section::new("Figures of the paper and of this run").table(table(&self.paper));
        let sections = [about, paper].into_iter().chain(self.sections.clone());
        let report = Report {
            rows: self.rows.runs(),
            ..Report::new(self.title, sections)
        };
        report.with_data(self)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use isotherm_report::Table;

    use super::*;
    use crate::paper::Source;
    use crate::rows::tests::row;

    fn document() -> Document {
        let gain = Source("A paper, Figure 9").times("gain", (1.27, 1.27), &[1.05]);
        let table = Table::new(["system"]).with_rows([["ours"]]);
        Document {
            name: "tiny",
            page: None,
            title: "A <tiny> one",
            about: vec!["What was run.".into()],
            paper: vec![gain],
            conclusions: vec![
                Conclusion::claim("It gains.", false),
                Conclusion::note("It ran."),
            ],
            sections: vec![Section::detail("Numbers").table(table)],
            rows: Rows(vec![row("w", "a", 0.0, 1, 10.0)]),
        }
    }

    #[test]
    fn the_page_compares_with_the_papers_figures_and_marks_missed_claims() {
        let page = document().report().unwrap().page("tiny").markdown;
        let has = |text: &str| assert!(page.contains(text), "{text} in {page}");
        has("# A <tiny> one");
        has("| gain | 1.27 × | 1.05 × | below |");
        has("[tiny-figures-of-the-paper.csv]");
        has("**Does not hold:** It gains.");
        let text = document().report().unwrap().text();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(
            words.join(" ").contains("1.27 × 1.05 × below A paper"),
            "{text}"
        );
        assert!(text.contains("\n  It ran."), "{text}");
    }

    #[test]
    fn cut_runs_are_the_first_conclusion() {
        let mut document = document();
        document.warn_of_cut_runs();
        assert_eq!(document.conclusions.len(), 2, "no run was cut");
        let mut cut = row("w", "b", 0.0, 1, 1.0);
        cut.more.insert(CUT, 1.0);
        document.rows.0.push(cut);
        document.warn_of_cut_runs();
        let first = &document.conclusions[0].text;
        assert!(
            first.starts_with("Every run came to its end: 1 of 2 were cut after 7 days"),
            "{first}"
        );
    }

    #[test]
    fn an_experiment_writes_its_runs_and_a_page_with_the_circumstances_where_it_is_asked_to() {
        let output = std::env::temp_dir().join(format!("isotherm-document-{}", std::process::id()));
        let page = document().write(&output).unwrap();
        let read = |name: &str| fs::read_to_string(page.with_file_name(name)).unwrap();
        assert!(read("data.csv").lines().count() == 2);
        let json: serde_json::Value = serde_json::from_str(&read("data.json")).unwrap();
        assert_eq!(json["rows"][0]["summary"]["throughput_tokens_per_s"], 10.0);
        assert_eq!(json["paper"][0]["paper"]["unit"], "times");
        assert_eq!(json["findings"][0]["holds"], false);
        assert!(!read("tiny.md").contains("- Commit: `"));
        let result = document().write_markdown(&output).unwrap();
        let markdown = fs::read_to_string(result).unwrap();
        assert!(markdown.contains("- Commit: `") && markdown.contains("| gain | 1.27 ×"));
        fs::remove_dir_all(output).unwrap();
    }
}
