//! Generated documents: a test regenerates each and compares it with the file in the tree.

use std::path::Path;

/// Compares a document with `text`, or writes it when `UPDATE_DOCS` is set. `path` is relative to the repository.
pub(crate) fn assert_generated(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(file, text).unwrap();
    }
    let found = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        found == text,
        "{path} is out of date; `UPDATE_DOCS=1 cargo test -p isotherm-ext-proc --lib` regenerates it"
    );
}
