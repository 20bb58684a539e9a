//! A report as terminal text.

use core::fmt::Write as _;

use crate::report::{Conclusion, Content, KeyFigure, Report};

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
                Content::KeyFigures(_) | Content::Charts(_) => String::new(),
                Content::Table(table) => table.text(),
            };
        }
    }
    text
}

/// A key figure in words.
pub(super) fn key_figure(figure: &KeyFigure) -> String {
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

fn list<T>(bullet: &str, items: &[T], text: impl Fn(&T) -> String) -> String {
    let line = |item| format!("{bullet}{}\n", text(item));
    items.iter().map(line).collect()
}
