//! Names: types are nouns, a public type's name is unique within its package, retired terms stay retired.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use isotherm_conventions::{Items, PublicType, Source, files, is_test, report, text};
use regex::Regex;

/// Names that are no nouns.
const NO_NOUNS: [&str; 52] = [
    "Abroad", "Along", "Asked", "Away", "Back", "Beside", "Behind", "Broken", "Down", "Found",
    "Given", "Going", "Gone", "Having", "Held", "Here", "His", "How", "Its", "Kept", "Known",
    "Left", "Lost", "Made", "Mine", "Now", "Other", "Others", "Out", "Over", "Own", "Ours",
    "Passed", "Said", "Seen", "Sent", "Settled", "Such", "Taken", "Theirs", "Then", "These",
    "Those", "Told", "Under", "Wanted", "What", "Whatever", "Which", "Who", "Whom", "Whose",
];

/// Nouns that look like participles.
const NOUNS_IN_ING_OR_ED: [&str; 9] = [
    "Ping",      // a message that asks for a reply
    "Ring",      // consistent hashing's
    "Encoding",  // a way to write data
    "Embedding", // a vector
    "Embed",     // the request for one
    "String",    // a text
    "Seed",      // of a random number generator
    "Sibling",   // another service of the same region
    "Recording", // a recorded trace
];

/// Policies, which carry their configured names.
const POLICIES: [&str; 2] = ["LeastLoaded", "LeastOutstanding"];

/// Types of a source file.
struct FileTypes {
    path: String,
    package: String,
    types: Vec<PublicType>,
}

/// Every source file, parsed once for all tests: parsing takes longer than any check.
static FILES: LazyLock<Vec<FileTypes>> = LazyLock::new(|| {
    let sources = Source::all(|_| true).into_iter();
    let files = sources.map(|source| FileTypes {
        package: source.package().to_owned(),
        types: Items::of(&source).types,
        path: source.path,
    });
    files.collect()
});

#[test]
fn types_are_nouns() {
    let mut violations = Vec::new();
    for file in FILES.iter() {
        for item in &file.types {
            let last = last_word(&item.name);
            let is_participle = last.len() > 4 && (last.ends_with("ing") || last.ends_with("ed"));
            let is_noun = !is_participle
                || NOUNS_IN_ING_OR_ED.contains(&last)
                || POLICIES.contains(&item.name.as_str());
            if !is_noun || NO_NOUNS.contains(&item.name.as_str()) {
                violations.push(format!("{}:{}: `{}`", file.path, item.line, item.name));
            }
        }
    }
    report("a type is named by a noun", &violations);
}

/// `Block` of `PrefixBlock`.
fn last_word(name: &str) -> &str {
    let start = name.rfind(char::is_uppercase).unwrap_or_default();
    &name[start..]
}

#[test]
fn a_public_type_has_a_name_of_its_own_within_its_package() {
    let mut places: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for file in FILES.iter().filter(|file| !is_test(&file.path)) {
        for item in file.types.iter().filter(|item| item.is_public) {
            let key = (file.package.clone(), item.name.clone());
            let place = format!("{}:{}", file.path, item.line);
            places.entry(key).or_default().push(place);
        }
    }
    let violations: Vec<String> = places
        .into_iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|((package, name), places)| format!("{package}: `{name}` at {}", places.join(", ")))
        .collect();
    report(
        "a public type's name is unique within its package",
        &violations,
    );
}

/// Terms that were replaced: in each line a regular expression over a line of a file, and the term to use.
const RETIRED: &str = include_str!("../retired-terms.tsv");

/// Files that name retired terms: the rules themselves, and the record of what was renamed.
const HISTORY: [&str; 3] = ["tests/conventions/", "docs/decisions/", "CHANGELOG.md"];

#[test]
fn retired_terms_are_gone() {
    let terms: Vec<(Regex, &str)> = RETIRED
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(term, replacement)| (Regex::new(term).expect(term), replacement))
        .collect();
    assert!(!terms.is_empty(), "retired-terms.tsv has no terms");
    let mut violations = Vec::new();
    for path in files(&[".rs", ".md", ".yaml", ".proto", ".toml", ".sh"]) {
        if HISTORY.iter().any(|history| path.starts_with(history)) {
            continue;
        }
        for (number, line) in text(&path).lines().enumerate() {
            for (term, replacement) in &terms {
                if let Some(found) = term.find(line) {
                    let place = format!("{path}:{}", number + 1);
                    violations.push(format!("{place}: `{}`: use {replacement}", found.as_str()));
                }
            }
        }
    }
    report("retired terms are gone", &violations);
}
