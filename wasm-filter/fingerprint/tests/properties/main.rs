//! The extractor against a naive model, on requests of every shape.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "a test that fails may panic, and has no readers of its documentation"
)]

mod bodies;
mod json;
mod model;

use isotherm_fingerprint::{Api, BodyError, Extraction, Extractor, Fingerprint, MemberPaths};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::json::{Value, Writer};
use crate::model::RenderedPrompt;

fn wanted() -> MemberPaths {
    MemberPaths {
        session: vec![
            "session_id".into(),
            "metadata.session_id".into(),
            "user".into(),
        ],
        tier: vec!["metadata.tier".into()],
        ..MemberPaths::default()
    }
}

/// Extracts from a body that arrives in pieces of these sizes, round and round.
fn extract(api: Api, body: &str, sizes: &[usize]) -> Extraction {
    let mut extractor = Extractor::new(api, &wanted());
    let mut rest = body.as_bytes();
    for size in sizes.iter().cycle() {
        let (piece, behind) = rest.split_at((*size).clamp(1, rest.len().max(1)).min(rest.len()));
        extractor.feed(piece);
        rest = behind;
        if rest.is_empty() {
            break;
        }
    }
    extractor.finish()
}

fn plain(value: &Value) -> String {
    Writer::new(&[99]).write(value)
}

fn whole(api: Api, request: &Value) -> Extraction {
    extract(api, &plain(request), &[usize::MAX])
}

/// Renders what a full parser reads in this body.
fn parse_and_render(api: Api, body: &str) -> RenderedPrompt {
    model::render(api, &serde_json::from_str(body).unwrap())
}

/// Asserts that two chains agree exactly as far as their prompts do.
fn agree_up_to_the_first_difference(
    one: (&RenderedPrompt, &Fingerprint),
    other: (&RenderedPrompt, &Fingerprint),
) {
    let (one_bytes, other_bytes) = (one.0.bytes(), other.0.bytes());
    let common = one_bytes
        .iter()
        .zip(&other_bytes)
        .take_while(|(one, other)| one == other)
        .count() as u32;
    let before = |chain: &Fingerprint| {
        let blocks = chain.blocks().iter().copied();
        blocks
            .take_while(|block| block.end_bytes < common)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        before(one.1),
        before(other.1),
        "equal prefixes, equal chains"
    );
    let ended = common as usize == one_bytes.len().min(other_bytes.len());
    if !ended {
        for block in one
            .1
            .blocks()
            .iter()
            .filter(|block| block.end_bytes > common)
        {
            let found = other
                .1
                .blocks()
                .iter()
                .any(|other| other.hash == block.hash);
            assert!(
                !found,
                "the difference at {common} shows at {}",
                block.end_bytes
            );
        }
    }
}

proptest! {
    #[test]
    fn equals_the_model_in_any_spelling_and_any_pieces(
        (api, request) in bodies::request(),
        choices in vec(any::<u8>(), 1..64),
        sizes in vec(prop_oneof![1..4usize, 1..400usize], 1..16),
    ) {
        let body = Writer::new(&choices).write(&request);
        let found = extract(api, &body, &sizes);
        let rendered = parse_and_render(api, &body);
        prop_assert_eq!(found.error, None);
        prop_assert!(found.is_complete);
        prop_assert_eq!(found.fingerprint.blocks(), rendered.blocks());
        prop_assert_eq!(found.fingerprint.total_bytes(), rendered.total_bytes());
        prop_assert_eq!(found.prompt_tokens, rendered.tokens());
        prop_assert_eq!(&extract(api, &body, &[1]), &found, "a byte at a time");
        prop_assert_eq!(&whole(api, &request), &found, "escaping and blanks do not matter");
    }

    #[test]
    fn a_body_with_a_fingerprint_is_one_that_parsers_read_alike(
        (api, request) in bodies::request_with_repeats(),
        choices in vec(any::<u8>(), 1..64),
        sizes in vec(prop_oneof![1..4usize, 1..400usize], 1..16),
    ) {
        let body = Writer::new(&choices).write(&request);
        let found = extract(api, &body, &sizes);
        prop_assert_eq!(&extract(api, &body, &[1]), &found, "a byte at a time");
        let last: Value = serde_json::from_str::<Value>(&body).unwrap().last_values();
        if found.error.is_none() {
            prop_assert_eq!(&whole(api, &last), &found);
            prop_assert_eq!(found.fingerprint.blocks(), model::render(api, &last).blocks());
        } else {
            prop_assert_eq!(found.error, Some(BodyError::RepeatedMember));
            prop_assert!(!found.is_complete);
            prop_assert!(found.fingerprint.blocks().is_empty());
        }
    }

    #[test]
    fn a_repeated_member_of_any_message_or_tool_is_found(
        (api, request) in bodies::request(),
        at in any::<prop::sample::Index>(),
        choices in vec(any::<u8>(), 1..64),
    ) {
        let mut request = request;
        let mut places = Vec::new();
        model::places_that_matter(api, &mut request, &mut |members| places.push(members.len()));
        if places.is_empty() {
            return Ok(());
        }
        let at = at.index(places.len());
        let mut place = 0;
        model::places_that_matter(api, &mut request, &mut |members| {
            if place == at {
                let (name, _) = members[at % members.len()].clone();
                members.push((name, Value::text("hi")));
            }
            place += 1;
        });
        let found = extract(api, &Writer::new(&choices).write(&request), &[7]);
        prop_assert_eq!(found.error, Some(BodyError::RepeatedMember));
    }

    #[test]
    fn the_fingerprint_does_not_depend_on_the_order_of_members((api, request) in bodies::request()) {
        let mut reversed = request.members().to_vec();
        reversed.reverse();
        prop_assert_eq!(whole(api, &Value::Object(reversed)), whole(api, &request));
    }

    #[test]
    fn conversations_agree_exactly_as_far_as_they_are_the_same(
        tools in (bodies::text(), bodies::text(), any::<bool>()),
        messages in vec(bodies::message(), 0..6),
        tails in (vec(bodies::message(), 0..3), vec(bodies::message(), 0..3)),
    ) {
        let request = |tool: &str, tail: &[Value]| Value::object([
            ("messages", Value::Array([messages.as_slice(), tail].concat())),
            ("tools", Value::Array(vec![Value::text(tool)])),
        ]);
        let one = request(&tools.0, &tails.0);
        let other = request(if tools.2 { &tools.0 } else { &tools.1 }, &tails.1);
        let api = Api::ChatCompletions;
        agree_up_to_the_first_difference(
            (&model::render(api, &one), &whole(api, &one).fingerprint),
            (&model::render(api, &other), &whole(api, &other).fingerprint),
        );
    }

    #[test]
    fn one_changed_character_shows_in_the_block_that_holds_it(
        text in "[a-z]{300,9000}",
        at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(text.len());
        let mut changed = text.clone().into_bytes();
        changed[at] = b'#';
        let request = |text: &str| Value::object([("prompt", Value::text(text))]);
        let one = whole(Api::Completions, &request(&text)).fingerprint;
        let other = whole(Api::Completions, &request(std::str::from_utf8(&changed).unwrap())).fingerprint;
        prop_assert_eq!(one.blocks().len(), other.blocks().len());
        for (one, other) in one.blocks().iter().zip(other.blocks()) {
            prop_assert_eq!(one.hash == other.hash, one.end_bytes as usize <= at, "{} against {}", one.end_bytes, at);
        }
    }

    #[test]
    fn another_model_adapter_or_salt_shares_nothing(
        (api, request) in bodies::request(),
        name in prop::sample::select(vec!["model", "lora_path", "cache_salt"]),
        value in "[a-z]{13,20}",
    ) {
        let mut members = request.members().to_vec();
        members.retain(|(member, _)| member != name);
        members.push((name.to_owned(), Value::String(value)));
        let (one, other) = (whole(api, &request).fingerprint, whole(api, &Value::Object(members)).fingerprint);
        prop_assert_eq!(one.blocks().len(), other.blocks().len());
        for block in one.blocks() {
            prop_assert!(!other.blocks().iter().any(|other| other.hash == block.hash));
        }
    }

    #[test]
    fn a_cut_body_yields_the_prefix_that_was_read(
        messages in vec(bodies::message(), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let body = plain(&Value::object([("model", Value::text("m")), ("messages", Value::Array(messages))]));
        let whole = extract(Api::ChatCompletions, &body, &[usize::MAX]).fingerprint;
        let mut extractor = Extractor::new(Api::ChatCompletions, &wanted());
        extractor.feed(&body.as_bytes()[..cut.index(body.len())]);
        let found = extractor.finish();
        prop_assert!(!found.is_complete);
        prop_assert_eq!(found.error, None);
        if found.model.is_some() {
            let count = found.fingerprint.blocks().len();
            prop_assert_eq!(found.fingerprint.blocks(), &whole.blocks()[..count]);
        }
    }

    #[test]
    fn every_fingerprint_survives_its_header((api, request) in bodies::request()) {
        let fingerprint = whole(api, &request).fingerprint;
        let header = fingerprint.encode();
        prop_assert!(header.len() <= 2048);
        prop_assert_eq!(Fingerprint::decode(header.as_bytes()), Ok(fingerprint));
    }

    #[test]
    fn any_bytes_are_survived(body in vec(any::<u8>(), 0..600), sizes in vec(1..40usize, 1..8)) {
        let text = format!("{{\"messages\":[{{\"content\":\"{}", String::from_utf8_lossy(&body));
        let one = extract(Api::ChatCompletions, &text, &[usize::MAX]);
        prop_assert_eq!(extract(Api::ChatCompletions, &text, &sizes), one);
    }

    #[test]
    fn accepts_the_structures_that_a_full_parser_accepts(
        tokens in vec(prop::sample::select(vec!["{", "}", "[", "]", ",", ":", "\"a\"", "\"a\":", "true", "null", "1", " "]), 0..12),
        sizes in vec(1..4usize, 1..4),
    ) {
        let body = format!("{{{}", tokens.concat());
        let accepted = matches!(serde_json::from_str(&body), Ok(Value::Object(_)));
        let found = extract(Api::ChatCompletions, &body, &sizes);
        prop_assert_eq!(found.is_complete, accepted, "{}", body);
        let repaired = format!("{{\"a\":[{}]}}", tokens.concat());
        let accepted = serde_json::from_str::<Value>(&repaired).is_ok();
        prop_assert_eq!(extract(Api::ChatCompletions, &repaired, &sizes).is_complete, accepted, "{}", repaired);
    }
}
