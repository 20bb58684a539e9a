//! A row of a table of hazards.

use super::manifests::{Document, Manifests};

/// A known hazard.
pub(super) struct Rule {
    /// The hazard's name, as the documents use it.
    pub(super) name: &'static str,
    /// Consequence of the hazard.
    pub(super) hazard: &'static str,
    /// Instruction for the operator.
    pub(super) remedy: &'static str,
    /// Finds the documents that have the hazard.
    pub(super) find: for<'a> fn(&'a Manifests) -> Vec<Occurrence<'a>>,
}

/// A document that has a hazard.
pub(super) struct Occurrence<'a> {
    pub(super) document: &'a Document,
    /// Text after the hazard's own: the values that are at odds.
    pub(super) detail: String,
}

impl<'a> Occurrence<'a> {
    pub(super) fn new(document: &'a Document, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { document, detail }
    }
}

impl<'a> From<&'a Document> for Occurrence<'a> {
    fn from(document: &'a Document) -> Self {
        Self::new(document, "")
    }
}
