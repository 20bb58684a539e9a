//! Which module of a package refers to which, and the circles among them.

use std::collections::{BTreeMap, BTreeSet};

use syn::UseTree;
use syn::visit::{self, Visit};

use crate::Source;

/// The references between the modules of one package; a module is its path, such as `["policy", "isotherm"]`.
#[derive(Debug, Default)]
pub struct ModuleGraph {
    references: BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
}

impl ModuleGraph {
    /// The graph of the package whose sources these are.
    pub fn of(sources: &[&Source]) -> Self {
        let mut names = Names::default();
        let mut references = Vec::new();
        for source in sources {
            let module = module_of(&source.path);
            let mut paths = References::default();
            for item in &source.tree.items {
                paths.visit_item(item);
            }
            references.extend(paths.used.into_iter().map(|path| (module.clone(), path)));
            let exported = paths.exported.into_iter();
            names
                .exports
                .extend(exported.map(|(name, path)| ((module.clone(), name), path)));
            names.modules.insert(module);
        }
        let mut graph = Self::default();
        for (from, path) in references {
            let to = names.resolve(&from, &path, REEXPORTS_MAX);
            if let Some(to) = to.filter(|to| *to != from && !to.is_empty()) {
                graph.references.entry(from).or_default().insert(to);
            }
        }
        graph
    }

    /// Pairs of modules that reach each other although neither lies inside the other.
    pub fn circles(&self) -> Vec<(String, String)> {
        let mut circles = Vec::new();
        for from in self.references.keys() {
            for to in self.reached(from) {
                let is_family = from.starts_with(&to) || to.starts_with(from);
                if *from < to && !is_family && self.reached(&to).contains(from) {
                    circles.push((from.join("::"), to.join("::")));
                }
            }
        }
        circles
    }

    /// Every module that a module refers to, itself or through others. References to a module's own parents do not
    /// count: what a parent offers its children says nothing about its other children.
    fn reached(&self, from: &[String]) -> BTreeSet<Vec<String>> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from.to_vec()];
        while let Some(module) = open.pop() {
            for to in self.references.get(&module).into_iter().flatten() {
                if !module.starts_with(to) && reached.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        reached
    }
}

/// Longest chain of re-exports that is followed.
const REEXPORTS_MAX: usize = 8;

/// The modules of a package and what each of them re-exports.
#[derive(Debug, Default)]
struct Names {
    modules: BTreeSet<Vec<String>>,
    exports: BTreeMap<(Vec<String>, String), Vec<String>>,
}

impl Names {
    /// The module that defines what `path` names in the module `from`, if that is in this package.
    fn resolve(&self, from: &[String], path: &[String], reexports: usize) -> Option<Vec<String>> {
        let absolute = self.absolute(from, path)?;
        let ends = (0..=absolute.len()).rev();
        let end = ends
            .into_iter()
            .find(|end| self.modules.contains(&absolute[..*end]))?;
        let (module, rest) = absolute.split_at(end);
        let export = rest
            .first()
            .and_then(|name| self.exports.get(&(module.to_vec(), name.clone())));
        match export {
            Some(path) if reexports > 0 => self.resolve(module, path, reexports - 1),
            _ => Some(module.to_vec()),
        }
    }

    /// A path as seen from the root of the package, if it begins at a known place.
    fn absolute(&self, from: &[String], path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.to_vec(),
            "super" => from.split_last()?.1.to_vec(),
            _ => {
                let child = [from, std::slice::from_ref(first)].concat();
                self.modules.contains(&child).then_some(child)?
            }
        };
        for part in rest {
            if part == "super" {
                base.pop();
            } else {
                base.push(part.clone());
            }
        }
        Some(base)
    }
}

/// The paths of one module, outside of tests.
#[derive(Default)]
struct References {
    /// Paths that the module uses.
    used: BTreeSet<Vec<String>>,
    /// Names that the module re-exports, and the path of each.
    exported: Vec<(String, Vec<String>)>,
}

impl<'ast> Visit<'ast> for References {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_tests = item.ident == "tests" || item.ident.to_string().ends_with("_tests");
        if !is_tests {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut names = Vec::new();
        flatten(&item.tree, &[], &mut names);
        if matches!(item.vis, syn::Visibility::Inherited) {
            self.used.extend(names.into_iter().map(|(_, path)| path));
        } else {
            self.exported.extend(names);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let path_names = path.segments.iter().map(|part| part.ident.to_string());
        self.used.insert(path_names.collect());
        visit::visit_path(self, path);
    }
}

/// Every name that a `use` brings in, with its path; of a glob, the module.
fn flatten(tree: &UseTree, before: &[String], names: &mut Vec<(String, Vec<String>)>) {
    let longer = |last: &syn::Ident| [before, &[last.to_string()]].concat();
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &longer(&path.ident), names),
        UseTree::Name(name) => names.push((name.ident.to_string(), longer(&name.ident))),
        UseTree::Rename(name) => names.push((name.rename.to_string(), longer(&name.ident))),
        UseTree::Glob(_) => names.push(("*".to_owned(), before.to_vec())),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, before, names);
            }
        }
    }
}

/// The module that a file is: `ext-proc/src/config/value.rs` is `["config", "value"]`.
fn module_of(path: &str) -> Vec<String> {
    let inside = path.rsplit_once("/src/").map_or(path, |(_, inside)| inside);
    let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    let is_root = matches!(inside, "lib" | "main" | "mod");
    if is_root {
        Vec::new()
    } else {
        inside.split('/').map(str::to_owned).collect()
    }
}
