//! `docs/headers.md` is the table of headers; `UPDATE_DOCS=1` writes it.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fmt::Write as _;
use std::fs;

use isotherm_fingerprint::names;

const HEAD: &str = "# Headers

The filter removes every header that begins with `x-isotherm-`, and the headers of the Gateway API Inference Extension, from
the requests of clients.

This page is generated from the table in `wasm-filter/fingerprint/src/names.rs`:
`UPDATE_DOCS=1 cargo test -p isotherm-fingerprint --test headers_reference`.

| header | from | to | bound | content |
| --- | --- | --- | --- | --- |
";

#[test]
fn the_header_reference_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/headers.md");
    let mut text = HEAD.to_owned();
    for header in names::ALL {
        let names::Header {
            name,
            sender,
            receiver,
            bound,
            content,
        } = header;
        writeln!(
            text,
            "| `{name}` | {sender} | {receiver} | {bound} | {content} |"
        )
        .unwrap();
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, &text).unwrap();
    }
    let written = fs::read_to_string(path).unwrap();
    assert!(
        written == text,
        "docs/headers.md is out of date: run this test with UPDATE_DOCS=1"
    );
}
