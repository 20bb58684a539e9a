//! A report without pictures: Markdown, terminal text, and its tables as CSV.

use core::fmt::Write as _;

use crate::chart::Chart;
use crate::report::{Conclusion, Content, Report};

pub(crate) fn markdown(report: &Report) -> String {
    let mut text = format!("# {}\n", report.title);
    if let Some(facts) = &report.facts {
        text.push('\n');
        for (name, value) in facts.pairs() {
            let _ = writeln!(text, "- {name}: `{value}`");
        }
    }
    for section in &report.sections {
        if !section.title.is_empty() {
            let _ = writeln!(text, "\n## {}", section.title);
        }
        for content in &section.content {
            text.push('\n');
            match content {
                Content::Text(paragraph) => {
                    let _ = writeln!(text, "{paragraph}");
                }
                Content::Link(path) => {
                    let _ = writeln!(text, "[{path}]({path})");
                }
                Content::List(items) => push_list(&mut text, "- ", items.iter().cloned()),
                Content::Conclusions(conclusions) => {
                    let line = |one: &Conclusion| match one.mark() {
                        "" => one.statement(),
                        mark => format!("**{}** {}", mark.trim_end(), one.statement()),
                    };
                    push_list(&mut text, "- ", conclusions.iter().map(line));
                }
                Content::Charts(charts) => {
                    let tables = charts.iter().filter_map(chart_as_table);
                    text += &tables.collect::<Vec<_>>().join("\n");
                }
                Content::Table(table) => text += &table.markdown(),
            }
        }
    }
    if !report.footer.is_empty() {
        let _ = writeln!(text, "\n{}", report.footer);
    }
    text
}

pub(crate) fn terminal(report: &Report) -> String {
    let mut text = format!("{}\n", report.title);
    for section in report.sections.iter().filter(|section| !section.is_detail) {
        if !section.title.is_empty() {
            let _ = writeln!(text, "\n{}", section.title);
        }
        for content in &section.content {
            match content {
                Content::Text(paragraph) => {
                    let _ = writeln!(text, "{paragraph}");
                }
                Content::List(items) => push_list(&mut text, "  ", items.iter().cloned()),
                Content::Conclusions(conclusions) => {
                    let line = |one: &Conclusion| format!("{}{}", one.mark(), one.statement());
                    push_list(&mut text, "  ", conclusions.iter().map(line));
                }
                Content::Charts(_) | Content::Link(_) => {}
                Content::Table(table) => text += &table.text(),
            }
        }
    }
    text
}

pub(crate) fn csv(report: &Report) -> String {
    let content = report.sections.iter().flat_map(|section| &section.content);
    let tables = content.filter_map(|content| match content {
        Content::Table(table) => Some(table.csv()),
        _ => None,
    });
    tables.collect::<Vec<_>>().join("\n")
}

fn chart_as_table(chart: &Chart) -> Option<String> {
    let table = chart.table()?.markdown();
    Some(format!("{}. {}\n\n{table}", chart.title, chart.caption))
}

fn push_list(text: &mut String, bullet: &str, items: impl Iterator<Item = String>) {
    for item in items {
        let _ = writeln!(text, "{bullet}{item}");
    }
}
