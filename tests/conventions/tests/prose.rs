//! Prose: doc comments stand alone and name their subject; comments and documents name actors.

use isotherm_conventions::{docs, files, is_generated, report, text};
use regex::Regex;

/// Beginnings of doc comments that leave the subject to the reader.
const BEGINNINGS: &str = concat!(
    r"^(The same|The other|The others|The rest|As above|As in|As it|As they|How many\b|How much\b|How often\b|",
    r"How long\b|How far\b|Those|Whoever|Whom|Whose|Who|Nobody|Somebody|Everybody|Anybody|It|Its|They|Their|Them|",
    r"He|His|This one|That|Such|What|Which|One of|One that|One more|So many|So much|Ditto|Likewise|And|Or|But|Of these|Of them)\b"
);

/// Words that hide an actor or are not the field's.
const WORDS: &str = concat!(
    r"\b([Ww]hoever|[Ww]hom|[Ss]omebody|[Nn]obody|[Ee]verybody|[Aa]nybody|[Tt]hereof|[Ww]hereby|[Tt]hose who|",
    r"[Tt]hose that|[Oo]ne who|[Hh]e who|[Ww]hence|[Tt]hither|[Aa]lbeit|[Tt]herein|as it were)\b"
);

/// Descriptions of settings, which a macro turns into the reference of the configuration.
const SETTINGS: &str = "ext-proc/src/config/options.rs";

#[test]
fn doc_comments_name_their_subject() {
    let beginning = Regex::new(BEGINNINGS).expect("valid");
    let mut violations = Vec::new();
    for path in files(&[".rs"]) {
        let text = text(&path);
        let is_exempt = path.starts_with("tests/conventions/") || path == SETTINGS;
        let is_checked = !is_exempt && !is_generated(&text);
        for doc in docs(&text).filter(|_| is_checked) {
            if beginning.is_match(&doc.text) {
                violations.push(format!("{path}:{}: {}", doc.line, doc.text));
            }
        }
    }
    report("a doc comment names its subject", &violations);
}

#[test]
fn comments_and_documents_name_their_actors() {
    let word = Regex::new(WORDS).expect("valid");
    let mut violations = Vec::new();
    for path in files(&[".rs", ".md", ".yaml", ".proto", ".toml", ".sh"]) {
        if path.starts_with("tests/conventions/") {
            continue;
        }
        for (number, line) in text(&path).lines().enumerate() {
            if let Some(found) = word.find(line) {
                violations.push(format!("{path}:{}: `{}`", number + 1, found.as_str()));
            }
        }
    }
    report("comments and documents name their actors", &violations);
}
