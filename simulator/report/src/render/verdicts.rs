//! The verdicts of a report in few lines: verdicts on one expectation are one line, which names the cases that miss it.

use crate::report::{Conclusion, Content, Section};
use crate::table::Table;

/// Most lines of verdicts; the last one names the rest.
const LINES_MAX: usize = 8;
/// Most cases that a line names.
const CASES_MAX: usize = 3;

/// The verdicts for a page.
pub(super) struct Verdicts {
    /// Lines of the page.
    pub(super) lines: Vec<String>,
    /// Each verdict, where the lines do not have it.
    pub(super) table: Option<Table>,
}

impl Verdicts {
    /// The verdicts of all sections, in their order; where there are too many, the missed ones come first.
    pub(super) fn new(sections: &[Section]) -> Self {
        let content = sections.iter().flat_map(|section| &section.content);
        let all: Vec<&Conclusion> = content
            .flat_map(|content| match content {
                Content::Conclusions(conclusions) => conclusions.as_slice(),
                _ => &[],
            })
            .collect();
        let mut groups: Vec<Vec<&Conclusion>> = Vec::new();
        for &one in &all {
            let is_alike = |group: &&mut Vec<&Conclusion>| {
                let first = group.first();
                first.is_some_and(|first| !one.case.is_empty() && first.text == one.text)
            };
            match groups.iter_mut().find(is_alike) {
                Some(group) => group.push(one),
                None => groups.push(vec![one]),
            }
        }
        if groups.len() > LINES_MAX {
            groups.sort_by_key(|group| {
                let has = |holds| group.iter().any(|one| one.holds == Some(holds));
                (!has(false), !has(true))
            });
        }
        let figures = sections.iter().flat_map(|section| &section.content);
        let figures = figures.flat_map(|content| match content {
            Content::KeyFigures(figures) => figures.as_slice(),
            _ => &[],
        });
        let figures = figures.map(|figure| format!("- {}", super::text::key_figure(figure)));
        let lines = groups.iter().map(|group| line(group));
        let mut lines: Vec<String> = figures.chain(lines).collect();
        let is_complete = groups.len() == all.len() && lines.len() <= LINES_MAX;
        if lines.len() > LINES_MAX {
            let rest = lines.len() - LINES_MAX + 1;
            lines.truncate(LINES_MAX - 1);
            lines.push(format!(
                "- {rest} more statements: in the table of the verdicts."
            ));
        }
        let table = (!is_complete).then(|| table(&all));
        Self { lines, table }
    }
}

/// The line for the verdicts on one expectation.
fn line(group: &[&Conclusion]) -> String {
    let [first, _, ..] = group else {
        return group
            .first()
            .map_or_else(String::new, |one| match one.mark().trim_end() {
                "" => format!("- {}", one.statement()),
                mark => format!("- **{mark}** {}", one.statement()),
            });
    };
    let missed = group.iter().filter(|one| one.holds == Some(false));
    let missed: Vec<&str> = missed.map(|one| one.case.as_str()).collect();
    let (text, all) = (first.text.trim_end_matches('.'), group.len());
    let held = group.iter().filter(|one| one.holds == Some(true)).count();
    if missed.is_empty() {
        return match held {
            0 => format!("- {all} cases: {text}."),
            _ => format!("- **Holds in all {all} cases:** {text}."),
        };
    }
    let (named, rest) = missed.split_at(missed.len().min(CASES_MAX));
    let more = match rest.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!(
        "- **Holds in {held} of {all} cases:** {text}. Not in {}{more}.",
        named.join("; ")
    )
}

/// Each verdict in a row.
fn table(all: &[&Conclusion]) -> Table {
    Table::new(["verdict", "case", "statement", "measured"]).with_rows(all.iter().map(|one| {
        let verdict = match one.holds {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "",
        };
        let measured = one.measured.as_deref().unwrap_or_default();
        [verdict, one.case.as_str(), one.text.as_str(), measured]
    }))
}
