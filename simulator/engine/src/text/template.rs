//! The chat template: messages to one stream of bytes.
//!
//! Its marks are shorter than a real model's, but it has the property that matters for caching: the rendering of a
//! conversation with one more turn begins with the rendering of the conversation before, reply included.

use serde_json::Value;
use twox_hash::XxHash3_64;

use super::{MEDIA_TOKENS, TOKEN_BYTES};

/// A prompt as bytes.
#[derive(Debug, Clone, Default)]
pub struct RenderedPrompt {
    bytes: Vec<u8>,
}

impl RenderedPrompt {
    /// Appends text: ASCII as it is, any other character as the four bytes of its number.
    pub fn text(&mut self, text: &str) {
        if text.is_ascii() {
            self.bytes.extend_from_slice(text.as_bytes());
            return;
        }
        for character in text.chars() {
            match u8::try_from(character) {
                Ok(byte) if byte.is_ascii() => self.bytes.push(byte),
                _ => self
                    .bytes
                    .extend_from_slice(&u32::from(character).to_le_bytes()),
            }
        }
    }

    /// Appends a whole message.
    pub fn message(&mut self, role: &str, content: &Value) {
        self.open(role);
        self.content(content);
        self.close();
    }

    /// Begins a message. An assistant's begins on a whole cell, since its text was generated token by token.
    pub fn open(&mut self, role: &str) {
        self.text("<|");
        self.text(role);
        self.text("|>");
        if role == "assistant" {
            while !self.bytes.len().is_multiple_of(TOKEN_BYTES) {
                self.bytes.push(b'\n');
            }
        }
    }

    /// Ends a message.
    pub fn close(&mut self) {
        self.text("<|end|>");
    }

    /// Appends the content of a message: a string, or a list of parts in the form of any of the APIs.
    pub fn content(&mut self, content: &Value) {
        match content {
            Value::Null => {}
            Value::String(text) => self.text(text),
            Value::Array(parts) => parts.iter().for_each(|part| self.part(part)),
            other => self.json(other),
        }
    }

    /// Appends any JSON value in a canonical form (tools, tool calls).
    pub fn json(&mut self, value: &Value) {
        self.text(&value.to_string());
    }

    /// Appends an image, a sound or a file: a fixed number of tokens that depend on all of its data.
    pub fn media(&mut self, data: &str) {
        let digest = XxHash3_64::oneshot(data.as_bytes());
        for index in 0..(MEDIA_TOKENS * TOKEN_BYTES / 8) as u64 {
            self.bytes
                .extend_from_slice(&digest.wrapping_add(index).to_le_bytes());
        }
    }

    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn part(&mut self, part: &Value) {
        if let Value::String(text) = part {
            return self.text(text);
        }
        if let Some(text) = part.get("text").and_then(Value::as_str) {
            return self.text(text);
        }
        if let Some(data) = media_of(part) {
            return self.media(data);
        }
        // A tool result holds parts of its own.
        match part.get("content") {
            Some(inner @ (Value::String(_) | Value::Array(_))) => self.content(inner),
            _ => self.json(part),
        }
    }
}

/// The URL or data of a media part: OpenAI's chat and responses forms, and Anthropic's.
fn media_of(part: &Value) -> Option<&str> {
    const PLACES: [&str; 9] = [
        "/image_url/url",
        "/image_url",
        "/input_audio/data",
        "/audio_url/url",
        "/video_url/url",
        "/file/file_data",
        "/file_data",
        "/source/data",
        "/source/url",
    ];
    PLACES
        .iter()
        .find_map(|place| part.pointer(place).and_then(Value::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Prompt, Reply, Selector};
    use serde_json::json;

    fn render(messages: &[(&str, &str)]) -> RenderedPrompt {
        let mut rendered = RenderedPrompt::default();
        for (role, text) in messages {
            rendered.message(role, &json!(text));
        }
        rendered.open("assistant");
        rendered
    }

    #[test]
    fn the_next_turn_continues_the_blocks_of_prompt_and_reply() {
        let selector = Selector::default();
        for filler in 0..8 {
            let question = format!("{}{}", "why? ".repeat(40), "x".repeat(filler));
            let first = Prompt::new(&selector, render(&[("user", &question)]));
            let reply = Reply::new(first.digest());
            let tokens = first.tokens() + 100;
            let answer = reply.text(0, 100);
            let before = first.blocks(&reply, 100, 16);
            assert_eq!(before.len(), (tokens / 16) as usize);
            let second = Prompt::new(
                &selector,
                render(&[
                    ("user", &question),
                    ("assistant", &answer),
                    ("user", "and then?"),
                ]),
            );
            let after = second.blocks(&reply, 0, 16);
            assert_eq!(after[..before.len()], before[..]);
        }
    }

    #[test]
    fn a_character_outside_ascii_is_a_token() {
        let tokens = |text: &str| {
            let mut rendered = RenderedPrompt::default();
            rendered.text(text);
            Prompt::new(&Selector::default(), rendered).tokens()
        };
        let chinese = "\u{4f60}\u{597d}".repeat(150);
        assert_eq!((chinese.len(), tokens(&chinese)), (900, 300));
        assert_eq!(tokens(&"x".repeat(900)), 225);
        assert_ne!(tokens("caf\u{e9}"), 0);
    }

    #[test]
    fn an_image_counts_the_same_whatever_its_size() {
        let size = |data: &str| {
            let mut rendered = RenderedPrompt::default();
            rendered.content(&json!([{"type": "image_url", "image_url": {"url": data}}]));
            rendered.into_bytes().len()
        };
        assert_eq!(size("a"), MEDIA_TOKENS * TOKEN_BYTES);
        assert_eq!(size("a"), size(&"b".repeat(10_000)));
    }
}
