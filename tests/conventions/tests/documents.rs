//! Documents: their length, their links, their YAML blocks, and where figures may stand.

use std::collections::BTreeSet;
use std::path::Path;

use isotherm_conventions::{files, report, root, text};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use regex::Regex;

/// Files with a bound on their length, in lines.
const LINES_MAX: [(&str, usize); 3] = [
    ("README.md", 150),
    ("ARCHITECTURE.md", 200),
    ("CONTRIBUTING.md", 200),
];

/// Folder of the pages of results, and most lines of a page.
const RESULTS: &str = "docs/results/";
const RESULT_LINES_MAX: usize = 40;

/// Most terms that the glossary may hold.
const TERMS_MAX: usize = 12;

/// Where measured figures stand, and the file of the engine model that cites published measurements with their sources.
const FIGURES: [&str; 2] = ["docs/results/", "simulator/engine/src/model/presets.rs"];

fn parse(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH)
}

#[test]
fn documents_keep_their_bounds() {
    let mut violations = Vec::new();
    for (path, lines_max) in LINES_MAX {
        let lines = text(path).lines().count();
        if lines > lines_max {
            violations.push(format!("{path}: {lines} lines, at most {lines_max}"));
        }
    }
    for path in files(&[".md"])
        .iter()
        .filter(|path| path.starts_with(RESULTS))
    {
        let lines = text(path).lines().count();
        if lines > RESULT_LINES_MAX {
            violations.push(format!(
                "{path}: {lines} lines, at most {RESULT_LINES_MAX}; wide tables are CSV files beside it"
            ));
        }
    }
    let glossary = text("docs/glossary.md");
    let rows = glossary
        .lines()
        .filter(|line| line.starts_with("| "))
        .count();
    let terms = rows.saturating_sub(2); // the heading and the rule below it
    if terms > TERMS_MAX {
        violations.push(format!(
            "docs/glossary.md: {terms} terms, at most {TERMS_MAX}"
        ));
    }
    report("documents keep their bounds", &violations);
}

#[test]
fn every_table_of_results_is_linked_from_its_page() {
    let pages: Vec<String> = files(&[".md"])
        .iter()
        .filter(|path| path.starts_with(RESULTS))
        .map(|path| text(path))
        .collect();
    let tables = files(&[".csv"]);
    let tables = tables.iter().filter_map(|path| path.strip_prefix(RESULTS));
    let violations: Vec<String> = tables
        .filter(|name| !pages.iter().any(|page| page.contains(&format!("({name})"))))
        .map(|name| format!("{RESULTS}{name}: no page links it; remove it"))
        .collect();
    report("every table of results is linked from a page", &violations);
}

#[test]
fn every_page_that_the_results_name_exists() {
    let page = Regex::new(&format!(r"--markdown ({RESULTS}[\w.-]+\.md)")).expect("valid");
    let contents = text(&format!("{RESULTS}README.md"));
    let named: Vec<&str> = page
        .captures_iter(&contents)
        .filter_map(|found| found.get(1))
        .map(|found| found.as_str())
        .collect();
    assert!(named.len() >= 5, "{named:?}");
    let violations: Vec<String> = named
        .into_iter()
        .filter(|path| !root().join(path).exists())
        .map(|path| format!("{path}: run its command, or remove its row"))
        .collect();
    report("the results name pages that exist", &violations);
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut violations = Vec::new();
    for path in files(&[".md"]) {
        let text_of_page = text(&path);
        for event in parse(&text_of_page) {
            let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event
            else {
                continue;
            };
            if dest_url.contains("://") || dest_url.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = dest_url.split_once('#').unwrap_or((&dest_url, ""));
            let folder = Path::new(&path).parent().unwrap_or(Path::new(""));
            let target = if file.is_empty() {
                root().join(&path)
            } else {
                root().join(folder).join(file)
            };
            let exists = target.exists()
                && (heading.is_empty()
                    || headings(&std::fs::read_to_string(&target).unwrap_or_default())
                        .contains(heading));
            if !exists {
                violations.push(format!("{path}: {dest_url}"));
            }
        }
    }
    report(
        "a link leads to a file and a heading that exist",
        &violations,
    );
}

/// The anchors of a page's headings, as code hosts and mdBook make them.
fn headings(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in parse(page) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                anchors.extend(heading.take().map(|title| anchor(&title)));
            }
            Event::Text(part) | Event::Code(part) => {
                if let Some(title) = &mut heading {
                    title.push_str(&part);
                }
            }
            _ => {}
        }
    }
    anchors
}

fn anchor(title: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let lower = title.to_lowercase();
    lower
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

#[test]
fn yaml_blocks_are_yaml() {
    let mut violations = Vec::new();
    for path in files(&[".md"]) {
        for (block, code) in code_blocks(&text(&path)) {
            if block != "yaml" {
                continue;
            }
            if let Err(error) = serde_saphyr::from_str::<serde_json::Value>(&code) {
                violations.push(format!("{path}: {error}\n{code}"));
            }
        }
    }
    report("a YAML block is YAML", &violations);
}

#[test]
fn code_blocks_of_documents_name_their_language() {
    const LANGUAGES: [&str; 8] = ["sh", "yaml", "json", "python", "text", "rust", "", "proto"];
    let mut violations = Vec::new();
    for path in files(&[".md"]) {
        for (language, code) in code_blocks(&text(&path)) {
            if !LANGUAGES.contains(&language.as_str()) {
                violations.push(format!("{path}: `{language}`\n{code}"));
            }
        }
    }
    report("a code block has a known language", &violations);
}

/// The fenced code blocks of a page: language and content.
fn code_blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for event in parse(page) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                open = Some((language.into_string(), String::new()));
            }
            Event::Text(part) => {
                if let Some((_, code)) = &mut open {
                    code.push_str(&part);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            _ => {}
        }
    }
    blocks
}

#[test]
fn measured_figures_stand_in_the_results_only() {
    let figure = Regex::new(
        r"\b\d[\d.,]* ?(µs|us|microseconds?|nanoseconds?|GB/s|requests/s|instructions)\b",
    )
    .expect("valid");
    let mut violations = Vec::new();
    for path in files(&[".rs", ".md", ".yaml"]) {
        if FIGURES.iter().any(|figures| path.starts_with(figures)) {
            continue;
        }
        for (number, line) in text(&path).lines().enumerate() {
            let is_prose = path.ends_with(".md") || line.trim_start().starts_with("//");
            if let Some(found) = figure.find(line).filter(|_| is_prose) {
                violations.push(format!("{path}:{}: {}", number + 1, found.as_str()));
            }
        }
    }
    report("a measured figure stands in docs/results only", &violations);
}
