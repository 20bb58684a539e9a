use isotherm_fingerprint::Fingerprint;

use proptest::prelude::*;

use super::*;
use crate::Plugin;
use crate::headers::from_pairs;

const CHAT: &str = r#"{"model":"llama","user":"u-1","max_tokens":64,"messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;

fn config(json: &str) -> Rc<RequestConfig> {
    match Plugin::parse(json.as_bytes()).unwrap() {
        Plugin::Request(config) => config,
        Plugin::Response(_) => panic!("another role"),
    }
}

fn usual() -> Rc<RequestConfig> {
    config(
        r#"{"role":"request","pools":[{"models":["llama"],"cluster":"llama-pool"}],"default_cluster":"rest"}"#,
    )
}

fn chat_with(more: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    let usual = [
        (":path", "/v1/chat/completions"),
        ("content-type", "application/json"),
    ];
    from_pairs(&[&usual, more].concat())
}

fn set<'a>(release: &'a Release, name: &str) -> Option<&'a str> {
    release.edits.iter().find_map(|edit| match edit {
        Edit::Set(candidate, value) if *candidate == name => str::from_utf8(value).ok(),
        _ => None,
    })
}

/// Sends one body in pieces of `piece_bytes` and lets it go at its end, or when the flow says so.
fn send(config: Rc<RequestConfig>, headers: &Headers, body: &[u8], piece_bytes: usize) -> Release {
    let mut flow = RequestFlow::start(config, headers, !body.is_empty());
    if flow.holds_back() {
        for piece in body.chunks(piece_bytes) {
            if flow.body(piece) {
                break;
            }
        }
    }
    flow.release(|| Some("192.0.2.7:50000".to_owned()))
}

#[test]
fn a_chat_request_gets_every_header() {
    let release = send(
        usual(),
        &chat_with(&[("x-tier", "interactive-fast")]),
        CHAT.as_bytes(),
        10,
    );
    assert_eq!(release.prompt, Prompt::Whole);
    assert_eq!(release.body_bytes, CHAT.len());
    assert_eq!(set(&release, names::MODEL), Some("llama"));
    assert_eq!(set(&release, names::SESSION), Some("u-1"));
    assert_eq!(set(&release, names::TIER), Some("interactive-fast"));
    assert_eq!(set(&release, names::CLUSTER), Some("llama-pool"));
    let tokens = tokens::parse(set(&release, names::TOKENS).unwrap().as_bytes()).unwrap();
    assert_eq!(tokens.output_max, Some(64));
    let fingerprint =
        Fingerprint::decode(set(&release, names::FINGERPRINT).unwrap().as_bytes()).unwrap();
    assert!(fingerprint.total_bytes() > 0);
}

#[test]
fn the_pieces_of_the_body_do_not_matter() {
    let whole = send(usual(), &chat_with(&[]), CHAT.as_bytes(), usize::MAX);
    let bytes = send(usual(), &chat_with(&[]), CHAT.as_bytes(), 1);
    assert_eq!(whole.edits, bytes.edits);
}

#[test]
fn a_body_is_let_go_at_the_limit_with_the_fingerprint_of_its_beginning() {
    let config = config(r#"{"role":"request","buffer_bytes_max":4096,"default_cluster":"rest"}"#);
    let body = format!(
        r#"{{"model":"llama","messages":[{{"role":"user","content":"{}"}}]}}"#,
        "word ".repeat(4000)
    );
    let release = send(config, &chat_with(&[]), body.as_bytes(), 1000);
    assert_eq!(release.prompt, Prompt::Beginning);
    assert_eq!(release.body_bytes, 5000);
    assert_eq!(set(&release, names::MODEL), Some("llama"));
    let fingerprint =
        Fingerprint::decode(set(&release, names::FINGERPRINT).unwrap().as_bytes()).unwrap();
    assert!(!fingerprint.blocks().is_empty());
}

#[test]
fn a_body_that_outgrows_the_buffer_can_be_let_go_at_once() {
    let announcing = |config: Rc<RequestConfig>, bytes: &str| {
        RequestFlow::start(config, &chat_with(&[("content-length", bytes)]), true)
    };
    let with_room = config(r#"{"role":"request","request_body_buffer_limit":4194304}"#);
    assert!(!announcing(usual(), "1048576").outgrows_the_buffer());
    assert!(!announcing(with_room, "30000000").outgrows_the_buffer());
    let mut flow = announcing(usual(), "30000000");
    assert!(flow.outgrows_the_buffer());
    flow.let_go_with_the_first_piece();
    assert!(flow.body(CHAT.as_bytes()));
    let release = flow.release(|| None);
    assert_eq!(set(&release, names::MODEL), Some("llama"));
}

#[test]
fn what_only_isotherm_may_set_is_stripped() {
    let headers = from_pairs(&[
        ("x-isotherm-fingerprint", "forged"),
        ("x-isotherm-new", "1"),
        ("x-isotherm-new", "2"),
        ("x-gateway-destination-endpoint", "10.0.0.1:80"),
        ("x-session-id", "s"),
    ]);
    let removed: Vec<Edit> = [
        "x-gateway-destination-endpoint",
        "x-isotherm-fingerprint",
        "x-isotherm-new",
    ]
    .map(|name| Edit::Remove(name.to_owned()))
    .into();
    assert_eq!(strip(&usual(), &headers), removed);
}

#[test]
fn forged_headers_never_become_values() {
    let forged = [
        ("x-isotherm-session", "forged"),
        ("x-isotherm-model", "forged"),
        ("x-isotherm-fingerprint", "AA"),
    ];
    let release = send(usual(), &chat_with(&forged), CHAT.as_bytes(), 100);
    assert_eq!(release.prompt, Prompt::Whole);
    assert_eq!(set(&release, names::SESSION), Some("u-1"));
    assert_eq!(set(&release, names::MODEL), Some("llama"));
}

#[test]
fn a_trusted_peers_words_are_kept_but_not_its_routing() {
    let trusting = config(
        r#"{"role":"request","trusted_origin":true,"pools":[{"models":["llama"],"cluster":"llama-pool"}]}"#,
    );
    let headers = chat_with(&[
        ("x-isotherm-fingerprint", "AA"),
        ("x-isotherm-model", "llama"),
        ("x-isotherm-session", "s"),
        ("x-isotherm-origin", "eu"),
        ("x-isotherm-tried", "asia,us"),
        ("x-isotherm-cluster", "gateway-us"),
        ("x-gateway-destination-endpoint", "10.0.0.1:80"),
    ]);
    let removed = ["x-gateway-destination-endpoint", "x-isotherm-cluster"]
        .map(|name| Edit::Remove(name.to_owned()));
    assert_eq!(strip(&trusting, &headers), removed);
    let flow = RequestFlow::start(trusting.clone(), &headers, true);
    assert!(!flow.holds_back(), "its prompt was read already");
    let release = flow.release(|| None);
    assert_eq!(release.prompt, Prompt::Kept);
    assert_eq!(set(&release, names::CLUSTER), Some("llama-pool"));
    assert_eq!(set(&release, names::SESSION), Some("s"));
    assert_eq!(set(&release, names::FINGERPRINT), None, "the peer's stays");

    let release = send(
        trusting,
        &chat_with(&[("x-isotherm-session", "s")]),
        CHAT.as_bytes(),
        9,
    );
    assert_eq!(
        release.prompt,
        Prompt::Whole,
        "a peer without a filter sends no fingerprint"
    );
    assert_eq!(set(&release, names::SESSION), Some("s"));
}

#[test]
fn what_cannot_be_read_goes_on_with_what_is_known() {
    let chat = ("content-type", "application/json");
    for (headers, body, pass) in [
        (vec![(":path", "/v1/models")], "", Pass::UnknownPath),
        (vec![(":path", "/v1/files"), chat], CHAT, Pass::UnknownPath),
        (vec![(":path", "/v1/chat/completions")], "", Pass::NoBody),
        (
            vec![
                (":path", "/v1/chat/completions"),
                chat,
                ("content-encoding", "gzip"),
            ],
            CHAT,
            Pass::ContentEncoding,
        ),
        (
            vec![
                (":path", "/v1/chat/completions"),
                ("content-type", "text/plain"),
            ],
            CHAT,
            Pass::ContentType,
        ),
        (
            vec![(":path", "/v1/chat/completions"), chat],
            "not json",
            Pass::NotJson,
        ),
        (
            vec![(":path", "/v1/chat/completions"), chat],
            "{\"model\":\"llama\",]",
            Pass::Malformed,
        ),
    ] {
        let headers = from_pairs(&[headers.as_slice(), &[("x-session-id", "s")]].concat());
        let release = send(usual(), &headers, body.as_bytes(), 5);
        assert_eq!(release.prompt, Prompt::Unknown(pass));
        assert_eq!(set(&release, names::SESSION), Some("s"), "{pass:?}");
        assert_eq!(set(&release, names::FINGERPRINT), None, "{pass:?}");
        assert!(set(&release, names::CLUSTER).is_some(), "{pass:?}");
    }
}

#[test]
fn the_client_address_is_the_last_session_key() {
    let body = br#"{"model":"llama","prompt":"x"}"#;
    let headers = from_pairs(&[(":path", "/v1/completions")]);
    let release = send(usual(), &headers, body, 9);
    assert_eq!(set(&release, names::SESSION), Some("192.0.2.7"));

    let told = chat_with(&[("x-envoy-external-address", "2001:db8::7")]);
    let release = RequestFlow::start(usual(), &told, false).release(|| panic!("it is known"));
    assert_eq!(set(&release, names::SESSION), Some("2001:db8::7"));

    let flow = RequestFlow::start(usual(), &chat_with(&[("x-session-id", "s")]), false);
    let _ = flow.release(|| panic!("nobody has to look it up"));
    let none = config(r#"{"role":"request","session":[]}"#);
    let flow = RequestFlow::start(none, &chat_with(&[]), false);
    assert_eq!(
        set(&flow.release(|| panic!("nobody wants it")), names::SESSION),
        None
    );
}

#[test]
fn nothing_in_a_body_can_break_a_header() {
    let body = br#"{"model":"a\r\nx-evil: 1","session_id":"\u0000\n","messages":[]}"#;
    let release = send(usual(), &chat_with(&[]), body, 3);
    for name in [names::MODEL, names::SESSION] {
        let value = set(&release, name).unwrap();
        assert!(
            value.bytes().all(|byte| byte.is_ascii_graphic()),
            "{name}: {value}"
        );
    }
}

proptest! {
    #[test]
    fn whatever_comes_goes_on_with_headers_that_are_headers(
        path in "/v1/chat/completions|/generate|/v1/models|.*",
        names in prop::collection::vec("x-session-id|cookie|x-tier|content-length|content-encoding|x-isotherm-[a-z]{1,3}", 0..4),
        value in prop::collection::vec(any::<u8>(), 0..40),
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "\\{(\"(model|user|messages|stream)\":(\"[^\"]{0,9}\"|\\[|\\{|1|null)[,\\]}]?){0,6}".prop_map(String::into_bytes),
        ],
        piece_bytes in 1..50_usize,
    ) {
        let mut headers = from_pairs(&[(":path", path.as_ref())]);
        headers.extend(names.into_iter().map(|name| (name, value.clone())));
        let release = send(usual(), &headers, &body, piece_bytes);
        for edit in release.edits {
            let Edit::Set(name, value) = edit else { continue };
            prop_assert!(!value.is_empty(), "{name}");
            prop_assert!(value.iter().all(u8::is_ascii_graphic), "{name}");
        }
    }
}
