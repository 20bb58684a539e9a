//! Constants of the routing core: each has a row in the ablation, or a comment that names its outside source or what it guards.

use std::collections::BTreeSet;

use isotherm_conventions::{files, is_test, report, text};

const CORE: &str = "ext-proc/router/src/";
const ABLATION: &str = "docs/results/ablation.csv";
/// The words of a comment that stand for a row.
const REASONS: [&str; 2] = ["Source: ", "Guards: "];

/// A constant that `constants!` declares.
struct Constant {
    /// Top module and name: a constant keeps its row when it moves between the files of its module.
    name: String,
    doc: String,
}

/// The name in a declaration such as `pub(super) ROUNDS: u32 = 8;`.
fn declared(line: &str) -> Option<&str> {
    let (before, _) = line.split_once(": ")?;
    let name = before.rsplit(' ').next()?;
    let is_of_name = |letter: char| matches!(letter, 'A'..='Z' | '0'..='9' | '_');
    (name.starts_with(is_of_name) && name.chars().all(is_of_name)).then_some(name)
}

/// The top module and the name in a path such as `replica::capacity::QUEUED_MAX`.
fn short(path: &str) -> String {
    let module = path.split("::").next().unwrap_or(path);
    let name = path.rsplit("::").next().unwrap_or(path);
    format!("{module}::{name}")
}

/// The constants of a file.
fn constants_of(path: &str) -> Vec<Constant> {
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
                } else if let Some(name) = declared(line) {
                    constants.push(Constant {
                        name: short(&format!("{module}::{name}")),
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
    let rows: BTreeSet<String> = ablation
        .lines()
        .filter_map(|row| row.split(',').next())
        .map(short)
        .collect();
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
    assert!(constants.len() > 40, "only {} found", constants.len());
    let has_reason = |doc: &str| REASONS.iter().any(|reason| doc.contains(reason));
    let violations: Vec<String> = constants
        .iter()
        .filter(|(_, constant)| !rows.contains(&constant.name) && !has_reason(&constant.doc))
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
