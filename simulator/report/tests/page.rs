//! Pages of results: their bound, what stands in the page, and what in the files beside it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops where something is wrong"
)]

use isotherm_report::{Conclusion, LINES_MAX, Report, RunFacts, Section, Table};

fn facts() -> RunFacts {
    RunFacts {
        command: "cargo xtask demo".into(),
        commit: "abc".into(),
        date: "2026-11-22".into(),
        machine: "2 processors".into(),
    }
}

/// A table of so many rows; every other one is in its headline.
fn table(rows: usize) -> Table {
    let cells = (0..rows).map(|row| [row.to_string(), "12.5 %".into(), "a, b".into()]);
    Table::new(["row", "hits", "more"]).with_rows(cells)
}

#[test]
fn a_page_has_its_bound_whatever_the_report_holds() {
    let many = |count: usize| (0..count).map(|number| format!("{number}."));
    let claims = many(50).map(|text| Conclusion::claim(text, false));
    let texts = many(50).fold(
        Section::new("").conclusions(claims.collect()),
        Section::text,
    );
    let small = (0..50).map(|number| {
        let columns = ["x".to_owned(), number.to_string()];
        Section::new("t").table(Table::new(columns).with_rows([["1", "2"]; 6]))
    });
    let report = Report {
        facts: Some(facts()),
        footer: "The end.".into(),
        ..Report::new("Much", [texts].into_iter().chain(small))
    };
    let page = report.page("much");
    let lines = page.markdown.lines().count();
    assert!(
        (30..=LINES_MAX).contains(&lines),
        "{lines}: {}",
        page.markdown
    );
    assert!(page.markdown.contains("49.") && page.markdown.ends_with("The end.\n"));
    let shown = page.markdown.matches("| x |").count();
    assert_eq!(
        page.tables.len(),
        51 - shown,
        "what is not in the page is beside it"
    );
    let mut names: Vec<&String> = page.tables.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), page.tables.len());
}

#[test]
fn a_small_table_stands_in_the_page_and_the_headline_of_a_large_one() {
    let large = table(20).headline(&["row", "hits"], |row| row.text(0).ends_with('7'));
    let small = Table::new(["", "ms"]).with_rows([["a", "1"]]);
    let sections = [
        Section::new("Small").table(small),
        Section::new("Large").table(large),
    ];
    let page = Report::new("A", sections).page("a");
    assert!(page.markdown.contains("| Small | ms |\n"));
    assert!(
        page.markdown
            .contains("| row | hits |\n| --- | ---: |\n| 7 | 12.5 % |\n| 17 | 12.5 % |\n\n")
    );
    assert!(
        page.markdown
            .contains("Tables: [a-large.csv](a-large.csv) (20 rows).")
    );
    let [(_, csv)] = page.tables.as_slice() else {
        panic!("{:?}", page.tables);
    };
    assert!(
        csv.csv()
            .unwrap()
            .starts_with("row,\"hits, %\",more\n0,12.5,\"a, b\"\n")
    );
}

#[test]
fn tables_of_the_same_columns_are_one_file() {
    let sections = ["4 KB: cost", "64 KB: cost"].map(|name| Section::new(name).table(table(9)));
    let other = Section::new("Memory").table(Table::new(["x"]).with_rows([[1]; 9]));
    let page = Report::new("A", sections.into_iter().chain([other])).page("a");
    let names: Vec<&str> = page.tables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a-kb-cost.csv", "a-memory.csv"]);
    let merged = page.tables[0].1.csv().unwrap();
    assert_eq!(merged.lines().count(), 19);
    assert!(merged.contains("\n64 KB: cost,8,"), "{merged}");
}

#[test]
fn verdicts_on_one_expectation_are_one_line_that_names_what_misses_it() {
    let claim = |case: u32| {
        let claim = Conclusion::claim("p90 is at most 1.2", case > 4);
        claim
            .in_case(format!("load {case}"))
            .measured(format!("1.{case}"))
    };
    let all = Conclusion::claim("no request failed", true);
    let kept = [0, 1].map(|case| Conclusion::claim("hits", true).in_case(format!("load {case}")));
    let conclusions = (0..10).map(claim).chain([all]).chain(kept).collect();
    let page = Report::new("A", [Section::new("").conclusions(conclusions)]).page("a");
    let line = "- **Holds in 5 of 10 cases:** p90 is at most 1.2. Not in load 0; load 1; load 2; and 2 more.\n";
    assert!(page.markdown.contains(line), "{}", page.markdown);
    assert!(
        page.markdown
            .contains("- **Holds:** no request failed\n- **Holds in all 2 cases:** hits.\n")
    );
    let (name, each) = &page.tables[0];
    assert_eq!((name.as_str(), each.rows.len()), ("a-verdicts.csv", 13));
    assert!(
        each.csv()
            .unwrap()
            .contains("\ndoes not hold,load 4,p90 is at most 1.2,1.4\n")
    );
}

#[test]
fn a_page_and_its_tables_are_written_side_by_side() {
    let folder = std::env::temp_dir().join(format!("isotherm-page-{}", std::process::id()));
    let path = folder.join("new/a.md");
    let report = Report::new("A", [Section::new("Large").table(table(20))]);
    let written = report.write_page(&path).unwrap();
    assert_eq!(written, [path.clone(), folder.join("new/a.csv")]);
    assert!(written.iter().all(|path| path.exists()));
    let error = report
        .write_page(&folder.join("new/a.csv/b.md"))
        .unwrap_err();
    assert!(error.to_string().starts_with("cannot create "), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}
