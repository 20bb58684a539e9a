//! The contents of requests: conversations with applications, and bodies that are wrong in one way.

use isotherm_harness::{MODEL, synthetic_text};
use rand::Rng as _;
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};

use super::kind::RequestKind;

/// Applications, each with a system prompt.
const APPLICATIONS: u64 = 4;
/// Length of a system prompt in tokens.
const SYSTEM_TOKENS: u32 = 600;
/// Length of a question in tokens.
const QUESTION_TOKENS: (u32, u32) = (20, 80);
/// Bound on the length of an answer in tokens.
const ANSWER_TOKENS_MAX: u32 = 48;
/// Output of a request whose client goes away: long enough that some answers are cut.
const ABORTED_TOKENS: u32 = 200;
/// Turns in one conversation.
const TURNS: (usize, usize) = (6, 12);

/// A conversation so far.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub(super) session: String,
    pub(super) turns_left: usize,
    /// Turns that have an answer.
    pub(super) answered: usize,
    messages: Vec<Value>,
}

impl Conversation {
    pub(super) fn new(random: &mut Pcg64Mcg, session: String) -> Self {
        let application = random.random_range(0..APPLICATIONS);
        let system = synthetic_text::tokens(application, SYSTEM_TOKENS);
        Self {
            session,
            turns_left: random.random_range(TURNS.0..=TURNS.1),
            answered: 0,
            messages: vec![json!({ "role": "system", "content": system })],
        }
    }

    /// Adds a question.
    pub(super) fn ask(&mut self, random: &mut Pcg64Mcg) {
        let question = question(random);
        self.messages.push(question);
        self.turns_left = self.turns_left.saturating_sub(1);
    }

    /// Adds the answer to the last question.
    pub(super) fn answer(&mut self, text: &str) {
        let answer = json!({ "role": "assistant", "content": text });
        self.messages.push(answer);
        self.answered += 1;
    }

    /// The body of the request for the next answer.
    pub(super) fn body(&self, is_streamed: bool) -> Value {
        let mut body = json!({
            "model": MODEL, "messages": self.messages, "max_tokens": ANSWER_TOKENS_MAX,
        });
        if is_streamed && let Some(body) = body.as_object_mut() {
            body.insert("stream".into(), true.into());
            let options = json!({ "include_usage": true });
            body.insert("stream_options".into(), options);
        }
        body
    }
}

/// The body of a request that is no turn of a conversation.
pub(super) fn odd_body(kind: RequestKind, random: &mut Pcg64Mcg) -> String {
    let question = question(random);
    match kind {
        RequestKind::NotJson => format!(r#"{{"model":"{MODEL}","messages":[{question},"#),
        RequestKind::DoubledMember => {
            format!(r#"{{"model":"{MODEL}","max_tokens":2,"messages":[],"messages":[{question}]}}"#)
        }
        RequestKind::Aborted => json!({
            "model": MODEL, "messages": [question], "stream": true,
            "stream_options": { "include_usage": true },
            "max_tokens": ABORTED_TOKENS, "ignore_eos": true,
        })
        .to_string(),
        _ => json!({ "model": MODEL, "messages": [question], "max_tokens": 2 }).to_string(),
    }
}

fn question(random: &mut Pcg64Mcg) -> Value {
    let tokens = random.random_range(QUESTION_TOKENS.0..=QUESTION_TOKENS.1);
    json!({ "role": "user", "content": synthetic_text::tokens(random.random(), tokens) })
}
