//! Chat requests as clients in Python write them: prose with a line end every 80 characters or so, a question in another
//! script now and then, `messages` first.

use std::fmt::Write as _;

use isotherm_fingerprint::{Api, Extraction, Extractor, MemberPaths};

/// Bytes that Envoy reads at once.
const PIECE_BYTES: usize = 16 * 1024;
/// The longest message.
const MESSAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 80;

/// Members that `envoy/standalone.yaml` makes the filter look for.
#[must_use]
pub fn wanted() -> MemberPaths {
    MemberPaths {
        session: [
            "session_id",
            "prompt_cache_key",
            "conversation",
            "user",
            "metadata.session_id",
            "metadata.user_id",
        ]
        .map(String::from)
        .to_vec(),
        tier: vec!["metadata.tier".into()],
        ..MemberPaths::default()
    }
}

/// A chat request of about this length.
#[must_use]
pub fn chat(bytes: usize) -> String {
    let mut body =
        String::from(r#"{"messages":[{"role":"system","content":"You are a helpful assistant."}"#);
    let mut turn = 0;
    while body.len() < bytes {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        let _ = write!(body, r#",{{"role":"{role}","content":""#);
        for line in 0..bytes.min(MESSAGE_BYTES) / LINE_BYTES {
            let _ = write!(
                body,
                r"Line {line:>3} of turn {turn:>3}: the quick brown fox jumps over the lazy dog again\n"
            );
        }
        body.push_str(r#"caf\u00e9 \"quoted\""}"#);
        turn += 1;
    }
    body.push_str(r#"],"model":"llama-3.1-8b","stream":true,"user":"u-42"}"#);
    body
}

/// Reads a request in pieces of the size that Envoy hands over.
#[must_use]
pub fn extract(body: &str, wanted: &MemberPaths) -> Extraction {
    let mut extractor = Extractor::new(Api::ChatCompletions, wanted);
    for piece in body.as_bytes().chunks(PIECE_BYTES) {
        extractor.feed(piece);
    }
    extractor.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_about_their_length_and_are_read_to_the_end() {
        for kilobytes in [4, 64, 400] {
            let body = chat(kilobytes << 10);
            let over = body.len() - (kilobytes << 10);
            assert!(over < 2 * MESSAGE_BYTES, "{over}");
            let read = extract(&body, &wanted());
            assert!(read.fingerprint.blocks().len() >= 12, "{read:?}");
        }
    }
}
