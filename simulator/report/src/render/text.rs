//! A report without pictures: Markdown and terminal text.

use core::fmt::Write as _;

use crate::chart::Chart;
use crate::report::{Conclusion, Content, KeyFigure, Report};

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
            text += &match content {
                Content::Link(path) => format!("[{path}]({path})\n"),
                Content::Conclusions(conclusions) => {
                    list("- ", conclusions, |one| match one.mark().trim_end() {
                        "" => one.statement(),
                        mark => format!("**{mark}** {}", one.statement()),
                    })
                }
                Content::KeyFigures(figures) => list("- ", figures, key_figure),
                Content::Charts(charts) => {
                    let tables = charts.iter().filter_map(chart_as_table);
                    tables.collect::<Vec<_>>().join("\n")
                }
                Content::Table(table) => table.markdown(),
                Content::Text(paragraph) => format!("{paragraph}\n"),
            };
        }
    }
    if !report.footer.is_empty() {
        let _ = writeln!(text, "\n{}", report.footer);
    }
    text
}

pub(crate) fn terminal(report: &Report) -> String {
    let statement = |one: &Conclusion| format!("{}{}", one.mark(), one.statement());
    let mut text = format!("{}\n", report.title);
    for section in report.sections.iter().filter(|section| !section.is_detail) {
        if !section.title.is_empty() {
            let _ = writeln!(text, "\n{}", section.title);
        }
        for content in &section.content {
            text += &match content {
                Content::Text(paragraph) => format!("{paragraph}\n"),
                Content::Conclusions(conclusions) => list("  ", conclusions, statement),
                // The table below has them.
                Content::KeyFigures(_) | Content::Charts(_) | Content::Link(_) => String::new(),
                Content::Table(table) => table.text(),
            };
        }
    }
    text
}

fn key_figure(figure: &KeyFigure) -> String {
    let KeyFigure {
        name,
        value,
        comparison,
        ..
    } = figure;
    match comparison.as_str() {
        "" => format!("{name}: {value}"),
        comparison => format!("{name}: {value}, {comparison}"),
    }
}

fn chart_as_table(chart: &Chart) -> Option<String> {
    let table = chart.table()?.markdown();
    Some(format!("{}. {}\n\n{table}", chart.title, chart.caption))
}

fn list<T>(bullet: &str, items: &[T], text: impl Fn(&T) -> String) -> String {
    let line = |item| format!("{bullet}{}\n", text(item));
    items.iter().map(line).collect()
}
