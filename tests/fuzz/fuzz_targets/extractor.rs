//! Any body, in any pieces, of any shape: the extractor survives, the pieces leave no trace, what a full parser accepts is
//! read to its end, and the fingerprint survives its header.
#![no_main]

use arbitrary::Arbitrary;
use isotherm_fingerprint::{Api, BodyError, Extraction, Extractor, Fingerprint, MemberPaths};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The longest run of bytes that the extractor reads as one number.
const NUMBER_BYTES_MAX: usize = 64;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    api: u8,
    sizes: [u8; 4],
    body: &'a [u8],
}

fn api(choice: u8) -> Api {
    match choice % 6 {
        0 => Api::ChatCompletions,
        1 => Api::Completions,
        2 => Api::Responses,
        3 => Api::Embeddings,
        4 => Api::Messages,
        _ => Api::Generate,
    }
}

fn wanted() -> MemberPaths {
    MemberPaths {
        session: ["session_id", "conversation", "user", "metadata.session_id"]
            .map(String::from)
            .to_vec(),
        tier: vec!["metadata.tier".into()],
        ..MemberPaths::default()
    }
}

fn in_pieces(input: &Input<'_>) -> Extraction {
    let mut extractor = Extractor::new(api(input.api), &wanted());
    let mut rest = input.body;
    for size in input.sizes.iter().cycle() {
        let (piece, behind) = rest.split_at(usize::from(*size).max(1).min(rest.len()));
        extractor.feed(piece);
        rest = behind;
        if rest.is_empty() {
            break;
        }
    }
    extractor.finish()
}

fn at_once(input: &Input<'_>) -> Extraction {
    let mut extractor = Extractor::new(api(input.api), &wanted());
    extractor.feed(input.body);
    extractor.finish()
}

fn has_a_long_number(body: &[u8]) -> bool {
    body.split(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E'))
        .any(|number| number.len() > NUMBER_BYTES_MAX)
}

fuzz_target!(|input: Input<'_>| {
    let found = at_once(&input);
    assert_eq!(in_pieces(&input), found, "the pieces leave a trace");
    let header = found.fingerprint.encode();
    assert_eq!(
        Fingerprint::decode(header.as_bytes()).as_ref(),
        Ok(&found.fingerprint)
    );
    assert!(!(found.is_complete && found.error.is_some()));
    if !has_a_long_number(input.body)
        && let Ok(Value::Object(_)) = serde_json::from_slice(input.body)
    {
        assert!(
            found.is_complete || found.error == Some(BodyError::RepeatedMember),
            "a full parser accepts it: {:?}",
            found.error
        );
    }
});
