//! Requests of one conversation.

use isotherm_e2e::MODEL;
use serde_json::{Value, json};

/// The request of a conversation's turn: all earlier messages and one more.
pub(crate) fn request_of_turn(topic: &str, turn: usize) -> Value {
    let system = format!("You know all there is to know about {topic}. ").repeat(60);
    let mut messages = vec![json!({ "role": "system", "content": system })];
    for number in 0..=turn {
        let question = format!("Question {number} about {topic}: where is it warm? ").repeat(4);
        messages.push(json!({ "role": "user", "content": question }));
        if number < turn {
            let answer = format!("Answer {number} about {topic}: there. ").repeat(4);
            messages.push(json!({ "role": "assistant", "content": answer }));
        }
    }
    json!({ "model": MODEL, "messages": messages, "max_tokens": 8 })
}
