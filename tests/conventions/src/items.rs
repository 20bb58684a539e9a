//! Items of a source file: doc comments, named types and functions, with their lines.

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Meta, Visibility};

use crate::Source;

/// A doc comment.
#[derive(Debug)]
pub struct Doc {
    /// Line of its start.
    pub line: usize,
    /// First line of the text, without the comment mark.
    pub text: String,
}

/// A struct, enum, trait, union or type alias.
#[derive(Debug)]
pub struct PublicType {
    /// Line of the definition.
    pub line: usize,
    /// Name.
    pub name: String,
    /// Whether it is `pub` without restriction.
    pub is_public: bool,
}

/// A function or method.
#[derive(Debug)]
pub struct Function {
    /// Line of the signature.
    pub line: usize,
    /// Name.
    pub name: String,
    /// Length in lines, from the signature to the closing brace.
    pub lines: usize,
}

/// The doc comments of a file, tests included.
pub fn docs(text: &str) -> impl Iterator<Item = Doc> {
    let mark = |line: &str| {
        ["///", "//!"]
            .into_iter()
            .find(|mark| line.starts_with(mark))
    };
    let mut previous = None;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let line = line.trim();
        let is_first = mark(line) != previous;
        previous = mark(line);
        let text = line.strip_prefix(previous.filter(|_| is_first)?)?;
        Some(Doc {
            line: number + 1,
            text: text.trim().to_owned(),
        })
    })
}

/// The types and functions of a file without its tests.
#[derive(Debug, Default)]
pub struct Items {
    /// Types.
    pub types: Vec<PublicType>,
    /// Functions.
    pub functions: Vec<Function>,
}

impl Items {
    /// Collects the items of a file.
    pub fn of(source: &Source) -> Self {
        let mut items = Self::default();
        items.visit_file(&source.tree);
        items
    }

    fn add_function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = signature.span().start().line;
        self.functions.push(Function {
            line,
            name: signature.ident.to_string(),
            lines: block.span().end().line - line + 1,
        });
    }
}

/// Whether an item is compiled for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = |list: &syn::MetaList| list.tokens.to_string() == "test";
        match &attribute.meta {
            Meta::Path(path) => path.is_ident("test"),
            Meta::List(list) => list.path.is_ident("cfg") && is_test(list),
            Meta::NameValue(_) => false,
        }
    })
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let named_type = match item {
            syn::Item::Struct(item) => Some((&item.ident, &item.vis)),
            syn::Item::Enum(item) => Some((&item.ident, &item.vis)),
            syn::Item::Union(item) => Some((&item.ident, &item.vis)),
            syn::Item::Trait(item) => Some((&item.ident, &item.vis)),
            syn::Item::Type(item) => Some((&item.ident, &item.vis)),
            syn::Item::Mod(item) if is_for_tests(&item.attrs) => return,
            syn::Item::Fn(item) if is_for_tests(&item.attrs) => return,
            syn::Item::Fn(item) => {
                self.add_function(&item.sig, &item.block);
                None
            }
            _ => None,
        };
        self.types
            .extend(named_type.map(|(name, visibility)| PublicType {
                line: name.span().start().line,
                name: name.to_string(),
                is_public: matches!(visibility, Visibility::Public(_)),
            }));
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add_function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add_function(&item.sig, block);
        }
    }
}
