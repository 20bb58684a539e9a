//! Constants of the routing core: each has a row in the ablation, or a comment that names its outside source or what it guards.

use std::collections::BTreeSet;

use isotherm_conventions::{files, is_test, report, text};
use regex::Regex;

const CORE: &str = "ext-proc/router/src/";
const ABLATION: &str = "docs/results/ablation.md";
/// The words of a comment that stand for a row.
const REASONS: [&str; 2] = ["Source: ", "Guards: "];

/// A constant that `constants!` declares.
struct Constant {
    /// Module and name, as the ablation writes them.
    name: String,
    doc: String,
}

/// The constants of a file.
fn constants_of(path: &str) -> Vec<Constant> {
    let declaration = Regex::new(r"^(?:pub(?:\([a-z]+\))? )?([A-Z][A-Z0-9_]*): ").expect("a regex");
    let module = path.trim_start_matches(CORE).trim_end_matches(".rs");
    let module = module.trim_end_matches("/mod").replace('/', "::");
    let mut constants = Vec::new();
    let (mut is_inside, mut doc) = (false, String::new());
    for line in text(path).lines() {
        match line {
            "constants! {" => is_inside = true,
            "}" => is_inside = false,
            _ if !is_inside => {}
            line => {
                let line = line.trim();
                if let Some(comment) = line.strip_prefix("///") {
                    doc.push_str(comment);
                } else if let Some(found) = declaration.captures(line) {
                    constants.push(Constant {
                        name: format!("{module}::{}", &found[1]),
                        doc: std::mem::take(&mut doc),
                    });
                }
            }
        }
    }
    constants
}

#[test]
fn every_constant_of_the_core_was_ablated_or_names_its_reason() {
    let ablation = text(ABLATION);
    let rows = ablation.lines().filter_map(|line| line.strip_prefix("| "));
    let rows: BTreeSet<&str> = rows.filter_map(|row| row.split(" |").next()).collect();
    let is_core = |path: &&String| path.starts_with(CORE) && !is_test(path);
    let paths = files(&[".rs"]);
    let constants: Vec<(&String, Constant)> = paths
        .iter()
        .filter(is_core)
        .flat_map(|path| {
            constants_of(path)
                .into_iter()
                .map(move |found| (path, found))
        })
        .collect();
    assert!(constants.len() > 100, "only {} found", constants.len());
    let has_reason = |doc: &str| REASONS.iter().any(|reason| doc.contains(reason));
    let violations: Vec<String> = constants
        .iter()
        .filter(|(_, constant)| !rows.contains(&*constant.name) && !has_reason(&constant.doc))
        .map(|(path, constant)| {
            let name = &constant.name;
            format!("{path}: {name} has no row in {ABLATION}; say `Source: ...` or `Guards: ...` in its comment")
        })
        .collect();
    report(
        "every constant was ablated or names its reason",
        &violations,
    );
}
