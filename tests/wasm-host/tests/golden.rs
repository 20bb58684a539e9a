//! The golden vectors, inside the built module: the module, the native build and the vectors agree.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::sync::Arc;

use isotherm_fingerprint::names;
use isotherm_wasm_filter_core::request::{PromptCoverage, RequestFlow};
use isotherm_wasm_filter_core::{HeaderEdit, PluginConfig, RequestConfig};
use isotherm_wasm_host::{Action, Filter, Headers, headers};
use serde::Deserialize;

/// The sources that the golden file was made with.
const CONFIGURATION: &str = r#"{
    "paths": ["*"], "role": "request",
    "session": [{"body":"session_id"},{"body":"prompt_cache_key"},{"body":"conversation"},{"body":"user"},{"body":"metadata.session_id"}],
    "tier": [{"body":"metadata.tier"}]
}"#;
/// Bodies up to here also come byte by byte; each byte is a call into the interpreter.
const BYTE_BY_BYTE_BYTES_MAX: usize = 5_000;

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    path: String,
    body: Vec<(String, usize)>,
    expected: Expectation,
}

#[derive(Debug, Default, Deserialize)]
struct Expectation {
    fingerprint: String,
    model: Option<String>,
    session: Option<String>,
    tier: Option<String>,
    tokens: String,
    complete: bool,
}

fn cases() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/golden.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

impl Case {
    fn body(&self) -> String {
        self.body
            .iter()
            .map(|(text, times)| text.repeat(*times))
            .collect()
    }

    fn headers(&self) -> Headers {
        headers(&[(":path", &self.path), ("content-type", "application/json")])
    }
}

/// The headers that the built module sets, by name.
fn in_wasm(case: &Case, piece_bytes: usize) -> Headers {
    let mut filter = Filter::configured(CONFIGURATION).unwrap();
    assert_eq!(
        filter.request_headers(case.headers(), false).unwrap(),
        Action::Pause
    );
    let body = case.body();
    for piece in body.as_bytes().chunks(piece_bytes) {
        assert_eq!(filter.request_body(piece, false).unwrap(), Action::Pause);
    }
    assert_eq!(filter.request_body(b"", true).unwrap(), Action::Continue);
    let mut headers = filter.host().request_headers.clone();
    headers.retain(|(name, _)| name.starts_with(names::PREFIX));
    headers.sort();
    headers
}

/// The headers that the native build sets, by name, and how far it could read.
fn natively(case: &Case) -> (Headers, PromptCoverage) {
    let config: Arc<RequestConfig> = match PluginConfig::parse(CONFIGURATION.as_bytes()).unwrap() {
        PluginConfig::Request(config) => config,
        PluginConfig::Response(_) | PluginConfig::Gate => unreachable!(),
    };
    let mut flow = RequestFlow::new(config, &case.headers(), true);
    let _ = flow.feed(case.body().as_bytes());
    let release = flow.release(|| 0, || None);
    let mut headers: Headers = release
        .edits
        .into_iter()
        .filter_map(|edit| match edit {
            HeaderEdit::Set(name, value) => Some((name.to_owned(), value)),
            HeaderEdit::Remove(_) => None,
        })
        .collect();
    headers.sort();
    (headers, release.coverage)
}

#[test]
fn the_built_module_agrees_with_the_native_build() {
    for case in cases() {
        let (native, _) = natively(&case);
        let body_bytes = case.body().len();
        let smallest = if body_bytes <= BYTE_BY_BYTE_BYTES_MAX {
            1
        } else {
            1_009
        };
        for piece_bytes in [smallest, 16_384, usize::MAX] {
            assert_eq!(
                in_wasm(&case, piece_bytes),
                native,
                "{} in pieces of {piece_bytes}",
                case.name
            );
        }
    }
}

/// The module has a hash of its own for leaves, the native build its library's.
#[test]
fn leaves_of_every_length_hash_alike() {
    let mut state = 1_u64;
    let text: String = (0..9_000)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            char::from(b'a' + ((state >> 33) % 26) as u8)
        })
        .collect();
    // A name counts as one leaf; more of them follow in the prompt, cut by its blocks.
    for length in (1..=1_030).chain((1_031..9_000).step_by(97)) {
        let (name, rest) = (&text[..length.min(1_100)], &text[..length]);
        let case = Case {
            name: format!("leaves of {length}"),
            path: "/v1/chat/completions".to_owned(),
            body: vec![(
                format!(
                    r#"{{"model":"{name}","messages":[{{"role":"{rest}","content":"{rest}"}},{{"content":"{name}"}}]}}"#
                ),
                1,
            )],
            expected: Expectation::default(),
        };
        assert_eq!(in_wasm(&case, usize::MAX), natively(&case).0, "{length}");
    }
}

#[test]
fn every_case_has_its_golden_result() {
    for case in cases() {
        let headers = in_wasm(&case, 16_384);
        let (_, coverage) = natively(&case);
        let value = |name: &str| {
            let found = headers.iter().find(|(candidate, _)| candidate == name);
            found.map(|(_, value)| String::from_utf8(value.clone()).unwrap())
        };
        let Expectation {
            fingerprint,
            model,
            session,
            tier,
            tokens,
            complete,
        } = &case.expected;
        assert_eq!(&value(names::MODEL), model, "{}", case.name);
        assert_eq!(&value(names::SESSION), session, "{}", case.name);
        assert_eq!(&value(names::TIER), tier, "{}", case.name);
        match coverage {
            PromptCoverage::Complete | PromptCoverage::Partial => {
                assert_eq!(
                    value(names::FINGERPRINT).as_ref(),
                    Some(fingerprint),
                    "{}",
                    case.name
                );
                let is_partial = coverage == PromptCoverage::Partial;
                let mark = if is_partial { "+" } else { "" };
                let tokens = format!("{tokens}{mark}");
                assert_eq!(value(names::TOKENS), Some(tokens), "{}", case.name);
                assert_eq!(
                    *complete,
                    coverage == PromptCoverage::Complete,
                    "{}",
                    case.name
                );
            }
            PromptCoverage::Skipped(_) | PromptCoverage::Forwarded => {
                assert_eq!(value(names::FINGERPRINT), None, "{}", case.name);
                assert!(!complete, "{}", case.name);
            }
        }
    }
}
