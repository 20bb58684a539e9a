//! Items of a source file: doc comments, named types and functions, with their lines.

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Lit, Meta, Visibility};

use crate::Source;

/// A doc comment.
#[derive(Debug)]
pub struct Doc {
    /// Line of its start.
    pub line: usize,
    /// Text without the comment marks, lines joined by line ends.
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

/// Everything that the checks look at in one file; code under `#[cfg(test)]` is left out.
#[derive(Debug, Default)]
pub struct Item {
    /// Doc comments, those of the file included.
    pub docs: Vec<Doc>,
    /// Types.
    pub types: Vec<PublicType>,
    /// Functions.
    pub functions: Vec<Function>,
}

impl Item {
    /// Collects the items of a file.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        let mut items = Self::default();
        items.visit_file(&source.tree);
        items
    }

    fn add_type(&mut self, name: &syn::Ident, visibility: &Visibility) {
        self.types.push(PublicType {
            line: name.span().start().line,
            name: name.to_string(),
            is_public: matches!(visibility, Visibility::Public(_)),
        });
    }

    fn add_function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = signature.span().start().line;
        self.functions.push(Function {
            line,
            name: signature.ident.to_string(),
            lines: block.span().end().line - line + 1,
        });
    }

    fn add_docs(&mut self, attributes: &[Attribute]) {
        let mut doc: Option<Doc> = None;
        for attribute in attributes {
            let Meta::NameValue(pair) = &attribute.meta else {
                continue;
            };
            let Expr::Lit(syn::ExprLit {
                lit: Lit::Str(text),
                ..
            }) = &pair.value
            else {
                continue;
            };
            if !pair.path.is_ident("doc") {
                continue;
            }
            let text = text.value();
            match &mut doc {
                Some(doc) => {
                    doc.text.push('\n');
                    doc.text.push_str(text.trim());
                }
                None => {
                    doc = Some(Doc {
                        line: attribute.span().start().line,
                        text: text.trim().to_owned(),
                    });
                }
            }
        }
        self.docs.extend(doc);
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

impl<'ast> Visit<'ast> for Item {
    fn visit_file(&mut self, file: &'ast syn::File) {
        self.add_docs(&file.attrs);
        for item in &file.items {
            self.visit_item(item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add_docs(&item.attrs);
        self.add_type(&item.ident, &item.vis);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add_docs(&item.attrs);
        self.add_type(&item.ident, &item.vis);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.add_docs(&item.attrs);
        self.add_type(&item.ident, &item.vis);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add_docs(&item.attrs);
        self.add_type(&item.ident, &item.vis);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add_docs(&item.attrs);
        self.add_type(&item.ident, &item.vis);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.add_docs(&item.attrs);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.add_docs(&item.attrs);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.add_docs(&item.attrs);
        self.add_function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add_docs(&item.attrs);
        self.add_function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.add_docs(&item.attrs);
        if let Some(block) = &item.default {
            self.add_function(&item.sig, block);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.add_docs(&field.attrs);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.add_docs(&variant.attrs);
        visit::visit_variant(self, variant);
    }
}
