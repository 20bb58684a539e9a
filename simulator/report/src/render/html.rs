//! A report as one HTML page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::Chart;
use crate::palette::{style_sheet, variable};
use crate::report::{Conclusion, Content, KeyFigure, Report, Section};
use crate::table::{Cell, Table};

/// The colours of series come from [`crate::palette`]; the colours of the page are here.
const STYLE: &str = "
:root { color-scheme: light dark; --text: #222222; --muted: #5a5a5a; --page: #fff; --line: #8883; --good: #007a58; --good-fill: #eef7f3; --bad: #b00020; --bad-fill: #fbeef0; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --muted: #a2a7ae; --page: #16191d; --line: #fff3; --good: #4fc99b; --good-fill: #17302a; --bad: #ff8a90; --bad-fill: #3a1f24; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); margin: 2rem auto; max-width: 1120px; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin-bottom: .2rem; }
h2, h3 { font-size: 1.05rem; margin: 0; }
h3 { font-size: 1rem; }
dl { color: var(--muted); font-size: .88rem; display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; overflow-wrap: anywhere; }
dd { margin: 0; }
.key-figures dd { text-align: right; }
.key-figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 250px), 1fr)); gap: 1rem; margin: 1rem 0; }
.key-figures > div { border: 1px solid var(--line); border-radius: 8px; padding: .9rem 1.1rem; }
.key-figures h3 { font-weight: 500; color: var(--muted); font-size: .95rem; }
.key-figures .value { font-size: 2.5rem; line-height: 1.2; font-weight: 650; font-variant-numeric: tabular-nums; }
.key-figures p { margin: .1rem 0 .5rem; font-weight: 600; }
.key-figures .better { color: var(--good); }
.key-figures .worse { color: var(--bad); }
.key-figures dl { margin: 0; grid-template-columns: 1fr max-content; font-variant-numeric: tabular-nums; }
.legend span { display: inline-block; margin-right: 1.4rem; }
.legend i { display: inline-block; width: .9em; height: .9em; margin-right: .4em; vertical-align: -.05em; border-radius: 2px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 1rem; margin-top: .8rem; }
.charts:has(> :nth-child(3):last-child) { grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); }
figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: .8rem; min-width: 0; }
figcaption { color: var(--muted); font-size: .9rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: system-ui, sans-serif; font-size: 13px; }
.scroll { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: right; padding: .35rem .5rem; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--muted); vertical-align: bottom; }
th.group { text-align: center; white-space: nowrap; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.leading td { font-weight: 600; border-top: 2px solid var(--line); }
.best { color: var(--good); font-weight: 650; }
.alert { color: var(--bad); font-weight: 600; }
p, li { text-wrap: pretty; }
ul.conclusions { list-style: none; padding: 0; }
ul.conclusions li { padding: .35rem 1rem; margin: .3rem 0; border-left: 4px solid var(--good); background: var(--good-fill); }
ul.conclusions li.missed { border-color: var(--bad); background: var(--bad-fill); }
section { margin-top: 2.2rem; }
footer { color: var(--muted); font-size: .88rem; margin-top: 2rem; }
@media (max-width: 600px) { body { margin-top: 1rem; } svg text { font-size: 15px; } figure { padding: .5rem; } }
";

pub(crate) fn page(report: &Report) -> anyhow::Result<String> {
    let sections = report
        .sections
        .iter()
        .map(section)
        .collect::<anyhow::Result<Vec<Markup>>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (report.title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style_sheet())) }
            }
            body {
                h1 { (report.title) }
                @if let Some(facts) = &report.facts {
                    dl { @for (name, value) in facts.pairs() { dt { (name) } dd { (value) } } }
                }
                @for section in sections { (section) }
                @if !report.footer.is_empty() { footer { (report.footer) } }
            }
        }
    };
    Ok(page.into_string())
}

fn section(section: &Section) -> anyhow::Result<Markup> {
    let content = section
        .content
        .iter()
        .map(block)
        .collect::<anyhow::Result<Vec<Markup>>>()?;
    Ok(html! {
        section {
            @if !section.title.is_empty() { h2 { (section.title) } }
            @for block in content { (block) }
        }
    })
}

fn block(content: &Content) -> anyhow::Result<Markup> {
    Ok(match content {
        Content::Text(paragraph) => html! { p { (paragraph) } },
        Content::Conclusions(conclusions) => html! {
            ul.conclusions { @for one in conclusions { (conclusion(one)) } }
        },
        Content::KeyFigures(figures) => html! {
            div.key-figures { @for figure in figures { (key_figure(figure)) } }
        },
        Content::Charts(charts) => {
            let figures = charts
                .iter()
                .map(figure)
                .collect::<anyhow::Result<Vec<Markup>>>()?;
            html! {
                @if let Some(first) = charts.first() { (legend(&first.series)) }
                div.charts { @for figure in figures { (figure) } }
            }
        }
        Content::Table(one) => table(one),
    })
}

fn key_figure(figure: &KeyFigure) -> Markup {
    let (is_better, is_worse) = (
        figure.is_better == Some(true),
        figure.is_better == Some(false),
    );
    html! {
        div {
            h3 { (figure.name) }
            div.value.better[is_better].worse[is_worse] { (figure.value) }
            @if !figure.comparison.is_empty() {
                p.better[is_better].worse[is_worse] { (figure.comparison) }
            }
            @if !figure.others.is_empty() {
                dl { @for (name, value) in &figure.others { dt { (name) } dd { (value) } } }
            }
        }
    }
}

fn conclusion(conclusion: &Conclusion) -> Markup {
    let mark = conclusion.mark();
    html! {
        li class=[(conclusion.holds == Some(false)).then_some("missed")] {
            @if !mark.is_empty() { strong { (mark) } }
            (conclusion.statement())
        }
    }
}

fn figure(chart: &Chart) -> anyhow::Result<Markup> {
    let svg = chart.svg()?;
    Ok(html! {
        figure { h3 { (chart.title) } (PreEscaped(svg)) figcaption { (chart.caption) } }
    })
}

fn legend(series: &[String]) -> Markup {
    html! {
        @if !series.is_empty() {
            p.legend { @for (index, name) in series.iter().enumerate() {
                span { i style={ "background:" (variable(index)) } {} (name) }
            } }
        }
    }
}

fn table(table: &Table) -> Markup {
    html! {
        div.scroll { table {
            thead {
                @if !table.groups.is_empty() { (group_headings(table)) }
                tr { @for column in &table.columns { th { (column) } } }
            }
            tbody { @for row in &table.rows {
                tr class=[row.is_leading.then_some("leading")] { @for cell in &row.cells {
                    td class=[class_of(cell)] { (cell.text) }
                } }
            } }
        } }
    }
}

fn class_of(cell: &Cell) -> Option<&'static str> {
    match (cell.is_alert, cell.is_best) {
        (true, _) => Some("alert"),
        (false, true) => Some("best"),
        (false, false) => None,
    }
}

fn group_headings(table: &Table) -> Markup {
    html! {
        tr { @for index in 0..table.columns.len() {
            @match table.group_of(index) {
                Some(group) if group.first == index => { th.group colspan=(group.columns) { (group.name) } },
                Some(_) => {},
                None => { th {} },
            }
        } }
    }
}
