//! A report in every format.

use isotherm_report::chart::{Chart, Curve, CurveStyle, Lines, Plot};
use isotherm_report::{Cell, Conclusion, Format, KeyFigure, Report, RunFacts, Section, Table};

fn report() -> Report {
    let line = Curve {
        series: 0,
        points: vec![(1.0, 2.0), (2.0, 1.0)],
        style: CurveStyle::Plain,
    };
    let lines = Lines {
        lines: vec![line],
        ..Lines::default()
    };
    let mut table = Table::new(["policy", "failed"]);
    table.push([Cell::from("isotherm"), Cell::zero_expected(2)]);
    let conclusions = vec![
        Conclusion::claim("x > y", false).measured("1 against 2"),
        Conclusion::note("z"),
    ];
    let chart = Chart::new(
        "TTFT, s",
        "Less is better.",
        ["a<b", "c"],
        Plot::Lines(lines),
    );
    let sections = [
        Section::new("").text("What ran.").conclusions(conclusions),
        Section::new("TTFT").charts(vec![chart]).table(table),
        Section::detail("More").text("one"),
        Section::new("left out: nothing in it"),
    ];
    Report {
        facts: Some(RunFacts {
            command: "cargo xtask demo".into(),
            commit: "abc".into(),
            date: "2026-11-22".into(),
            machine: "2 processors".into(),
        }),
        footer: "The end.".into(),
        ..Report::new("A & B", sections)
    }
}

#[test]
fn a_page_needs_nothing_else_and_escapes_text() {
    let page = report().render(Format::Html).unwrap();
    assert!(page.contains("<title>A &amp; B</title>") && page.contains("a&lt;b"));
    assert!(page.contains("<dt>Commit</dt><dd>abc</dd>") && page.contains("The end."));
    let missed = r#"<li class="missed"><strong>Does not hold: </strong>x &gt; y: 1 against 2</li>"#;
    assert!(page.contains(missed) && page.contains("<li>z</li>"));
    assert_eq!(page.matches(r#"class="missed""#).count(), 1);
    assert!(page.contains(r#"<td class="alert">2</td>"#) && !page.contains("left out"));
    assert_eq!(page.matches("<svg").count(), 1);
    let links = page.matches("http").count();
    assert_eq!(links, page.matches("http://www.w3.org").count());
    assert!(!page.contains("<script"));
}

#[test]
fn key_figures_are_large_and_say_who_is_better() {
    let figure = KeyFigure {
        name: "p90 TTFT".into(),
        value: "170 ms".into(),
        comparison: "5.0 times sooner than Round robin".into(),
        is_better: Some(true),
        others: vec![("Round robin".into(), "850 ms".into())],
    };
    let plain = KeyFigure {
        comparison: String::new(),
        is_better: None,
        ..figure.clone()
    };
    let section = Section::new("").key_figures(vec![figure, plain]);
    let report = Report::new("A", [section]);
    let page = report.render(Format::Html).unwrap();
    assert!(page.contains(r#"<div class="value better">170 ms</div>"#));
    assert!(page.contains(r#"<div class="value">170 ms</div>"#));
    assert!(page.contains("<dt>Round robin</dt><dd>850 ms</dd>"));
    let markdown = report.page("a").markdown;
    let line = "- p90 TTFT: 170 ms, 5.0 times sooner than Round robin\n- p90 TTFT: 170 ms\n";
    assert!(markdown.contains(line), "{markdown}");
}

#[test]
fn a_page_follows_the_colours_and_the_width_of_the_reader() {
    let mut table = Table::new(["policy", "p50", "p90"]).with_group("TTFT", 1..3);
    let best = Cell {
        is_best: true,
        ..Cell::from("7")
    };
    table.push([Cell::from("isotherm"), best, Cell::from("9")]);
    let page = Report::new("A", [Section::new("").table(table)]);
    let page = page.render(Format::Html).unwrap();
    assert!(
        page.contains("color-scheme: light dark") && page.contains("prefers-color-scheme: dark")
    );
    assert!(page.contains(r#"<div class="scroll"><table>"#) && page.contains("max-width: 600px"));
    assert!(page.contains(r#"<tr><th></th><th class="group" colspan="2">TTFT</th></tr>"#));
    assert!(page.contains(r#"<td class="best">7</td>"#));
}

#[test]
fn a_page_of_results_has_the_facts_the_texts_and_the_verdicts() {
    let markdown = report().page("a").markdown;
    let facts = "# A & B\n\n- Command: `cargo xtask demo`\n- Commit: `abc`\n";
    assert!(markdown.starts_with(facts), "{markdown}");
    assert!(markdown.contains("\nWhat ran.\nMore: one\n"));
    assert!(markdown.contains("- **Does not hold:** x > y: 1 against 2\n- z\n"));
    assert!(markdown.contains("| policy | failed |\n") && markdown.ends_with("\nThe end.\n"));
}

#[test]
fn terminal_text_has_no_charts_and_no_details() {
    let text = report().text();
    assert!(text.starts_with("A & B\nWhat ran.\n  Does not hold: x > y: 1 against 2\n  z\n"));
    assert!(text.ends_with("\nTTFT\npolicy    failed\nisotherm       2\n"));
}

#[test]
fn measurements_replace_the_document_in_json_and_csv() {
    let plain = report();
    assert!(
        plain
            .render(Format::Json)
            .unwrap()
            .contains(r#""title": "A & B""#)
    );
    let rows = Table::new(["x"]).with_rows([[1]]);
    let measured = Report { rows, ..plain };
    let measured = measured.with_data(&[1.5]).unwrap();
    assert_eq!(measured.render(Format::Json).unwrap(), "[\n  1.5\n]\n");
    assert_eq!(measured.render(Format::Csv).unwrap(), "x\n1\n");
}

#[test]
fn files_are_written_side_by_side() {
    let directory = std::env::temp_dir().join(format!("isotherm-report-{}", std::process::id()));
    let names = [("a.html", Format::Html), ("a.json", Format::Json)];
    let paths = report().write(&directory, names).unwrap();
    assert!(paths.iter().all(|path| path.exists()));
    let names = [("3.html", Format::Html)];
    let error = report().write(&paths[0], names).unwrap_err();
    assert!(error.to_string().starts_with("cannot create "), "{error}");
    std::fs::create_dir(directory.join("3.html")).unwrap();
    let error = report().write(&directory, names).unwrap_err();
    assert!(error.to_string().starts_with("cannot write "), "{error}");
    std::fs::remove_dir_all(directory).unwrap();
}
