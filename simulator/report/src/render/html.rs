//! A report as one HTML page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::Chart;
use crate::palette::css;
use crate::report::{Conclusion, Content, Report, Section};
use crate::table::Table;

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 2rem auto; max-width: 1120px; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; }
h2, h3 { font-size: 1.05rem; margin: 0; }
h3 { font-size: 1rem; }
dl { color: #666; font-size: .88rem; display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; }
dd { margin: 0; }
.legend span { display: inline-block; margin-right: 1.4rem; }
.legend i { display: inline-block; width: .9em; height: .9em; margin-right: .4em; vertical-align: -.05em; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 1rem; }
figure { margin: 0; border: 1px solid #ddd; border-radius: 6px; padding: .8rem; }
figcaption { color: #555; font-size: .9rem; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin: 1.5rem 0; font-size: .92rem; }
th, td { text-align: right; padding: .35rem .5rem; border-bottom: 1px solid #e3e3e3; }
th:first-child, td:first-child { text-align: left; }
tr.leading td { font-weight: 600; border-top: 2px solid #bbb; }
.alert { color: #b00020; font-weight: 600; }
ul.conclusions { list-style: none; padding: 0; }
ul.conclusions li { padding: .35rem 1rem; margin: .3rem 0; border-left: 4px solid #009e73; background: #eef7f3; }
ul.conclusions li.missed { border-color: #b00020; background: #fbeef0; }
section { margin-top: 2.2rem; }
footer { color: #666; font-size: .88rem; }
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
                style { (PreEscaped(STYLE)) }
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
        Content::Link(path) => html! { p { a href=(path) { (path) } } },
        Content::Conclusions(conclusions) => html! {
            ul.conclusions { @for one in conclusions { (conclusion(one)) } }
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

fn conclusion(conclusion: &Conclusion) -> Markup {
    html! {
        li.missed[conclusion.holds == Some(false)] { strong { (conclusion.mark()) } (conclusion.statement()) }
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
                span { i style={ "background:" (css(index)) } {} (name) }
            } }
        }
    }
}

fn table(table: &Table) -> Markup {
    html! {
        table {
            thead { tr { @for column in &table.columns { th { (column) } } } }
            tbody { @for row in &table.rows {
                tr.leading[row.is_leading] { @for cell in &row.cells {
                    td.alert[cell.is_alert] { (cell.text) }
                } }
            } }
        }
    }
}
