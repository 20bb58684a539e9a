//! Golden vectors: the result of a request must not change by accident, here or in the module that Envoy loads.
//!
//! `tests/data/golden.json` holds a list of cases. `body` is a list of `[text, times]`, to be repeated and put together.
//! `expected` has the header values that the filter sets with the sources of [`wanted`]; `session` is null where the body has
//! no session key, `complete` says whether the body ends where its JSON does. The tests of the built module run the same file.
//!
//! After an intended change, `cargo test -p isotherm-fingerprint --test golden -- --ignored` rewrites the file. Raise
//! the fingerprint's version with it if fingerprints of old and new builds would meet.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::PathBuf;

use isotherm_fingerprint::session::SessionSecret;
use isotherm_fingerprint::tokens::{self, Tokens};
use isotherm_fingerprint::{Api, Extractor, Fingerprint, MemberPaths};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    path: String,
    body: Vec<(String, usize)>,
    expected: Expectation,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    fingerprint: String,
    model: Option<String>,
    session: Option<String>,
    tier: Option<String>,
    tokens: String,
    complete: bool,
}

fn wanted() -> MemberPaths {
    MemberPaths {
        session: [
            "session_id",
            "prompt_cache_key",
            "conversation",
            "user",
            "metadata.session_id",
        ]
        .map(String::from)
        .to_vec(),
        tier: vec!["metadata.tier".into()],
        ..MemberPaths::default()
    }
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/golden.json")
}

fn cases() -> Vec<Case> {
    serde_json::from_str(&fs::read_to_string(file()).unwrap()).unwrap()
}

impl Case {
    fn body(&self) -> String {
        self.body
            .iter()
            .map(|(text, times)| text.repeat(*times))
            .collect()
    }

    /// The result for a body that arrives in pieces of this size.
    fn extract(&self, piece_bytes: usize) -> Expectation {
        let mut extractor = Extractor::new(Api::from_path(&self.path).unwrap(), &wanted());
        for piece in self.body().as_bytes().chunks(piece_bytes) {
            extractor.feed(piece);
        }
        let found = extractor.finish();
        Expectation {
            fingerprint: found.fingerprint.encode(),
            model: found.model,
            session: found
                .session
                .map(|(_, key)| SessionSecret::default().hash(key.as_bytes())),
            tier: found.tier.map(|(_, tier)| tier.to_owned()),
            tokens: tokens::encode(Tokens {
                prompt: found.prompt_tokens,
                is_partial: false,
                output_max: found.output_tokens_max,
            }),
            complete: found.is_complete,
        }
    }
}

#[test]
fn every_case_has_its_golden_result() {
    for case in cases() {
        for piece_bytes in [1, 7, 16_384, usize::MAX] {
            assert_eq!(
                case.extract(piece_bytes),
                case.expected,
                "{} in pieces of {piece_bytes}",
                case.name
            );
        }
    }
}

#[test]
fn every_golden_header_decodes() {
    for case in cases() {
        let fingerprint = Fingerprint::decode(case.expected.fingerprint.as_bytes()).unwrap();
        assert_eq!(
            fingerprint.encode(),
            case.expected.fingerprint,
            "{}",
            case.name
        );
    }
}

#[test]
#[ignore = "writes the golden file anew"]
fn write_the_golden_file() {
    let mut cases = cases();
    for case in &mut cases {
        case.expected = case.extract(usize::MAX);
    }
    let mut text = serde_json::to_string_pretty(&cases).unwrap();
    text.push('\n');
    fs::write(file(), text).unwrap();
}
