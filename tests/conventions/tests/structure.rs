//! Structure: packages carry their folders' names, modules form no circles, shipped functions fit on a screen.

use std::collections::BTreeMap;

use isotherm_conventions::{Items, ModuleGraph, Source, files, is_shipped, is_test, report, text};

const FUNCTION_LINES_MAX: usize = 60;

#[test]
fn a_package_is_named_after_its_folder() {
    let mut violations = Vec::new();
    for manifest in files(&["Cargo.toml"]) {
        let Some(folder) = manifest.strip_suffix("/Cargo.toml") else {
            continue;
        };
        let manifest_text = text(&manifest);
        let name = manifest_text
            .lines()
            .find_map(|line| line.strip_prefix("name = \""))
            .and_then(|rest| rest.strip_suffix('"'))
            .unwrap_or_default();
        let last = folder.rsplit('/').next().unwrap_or(folder);
        if name != last && !name.ends_with(&format!("-{last}")) {
            violations.push(format!("{manifest}: `{name}` does not end in `{last}`"));
        }
    }
    report("a package is named after its folder", &violations);
}

#[test]
fn modules_form_no_circles_other_than_parent_and_child() {
    let sources = Source::all(|path| path.contains("/src/") && !is_test(path));
    let mut packages: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in &sources {
        packages.entry(source.package()).or_default().push(source);
    }
    let violations: Vec<String> = packages
        .iter()
        .flat_map(|(package, sources)| {
            let circles = ModuleGraph::of(sources).circles().into_iter();
            circles.map(move |(one, other)| format!("{package}: {one} <-> {other}"))
        })
        .collect();
    report("modules form no circles", &violations);
}

#[test]
fn shipped_functions_fit_on_a_screen() {
    let mut violations = Vec::new();
    for source in Source::all(is_shipped) {
        for function in Items::of(&source).functions {
            if function.lines > FUNCTION_LINES_MAX {
                violations.push(format!(
                    "{}:{}: `{}` has {} lines",
                    source.path, function.line, function.name, function.lines
                ));
            }
        }
    }
    report("a shipped function has at most 60 lines", &violations);
}
