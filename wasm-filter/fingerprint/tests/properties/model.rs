//! The naive model: parse the whole body, render the whole prompt, then hash it.
//!
//! Written from the description, not from the extractor: whole texts in memory, no state machine, no streaming.

use isotherm_fingerprint::{Api, BlockHash};
use twox_hash::XxHash3_64;

use crate::json::Value;

/// The rendering of a request.
#[derive(Debug, Default)]
pub struct RenderedPrompt {
    /// The sections in the order of rendering, each as it is hashed.
    pub sections: [Vec<u8>; 7],
    /// Model, adapter, salt, previous, template.
    pub selectors: [Option<u64>; 5],
    /// The sum over the options of rendering.
    pub options: u64,
    pub token_ids: u64,
    pub media: u64,
}

impl RenderedPrompt {
    /// Each byte of the prompt with the section that it is in.
    pub fn bytes(&self) -> Vec<(usize, u8)> {
        let sections = self.sections.iter().enumerate();
        sections
            .flat_map(|(number, bytes)| bytes.iter().map(move |byte| (number, *byte)))
            .collect()
    }

    pub fn total_bytes(&self) -> u32 {
        self.sections
            .iter()
            .map(|section| section.len() as u32)
            .sum()
    }

    pub fn tokens(&self) -> u32 {
        let text = u64::from(self.total_bytes()) - 4 * self.token_ids;
        (text.div_ceil(4) + self.token_ids + 576 * self.media) as u32
    }

    /// The chain, block by block.
    pub fn blocks(&self) -> Vec<BlockHash> {
        let mut hash = self
            .selectors
            .iter()
            .fold(0, |seed, digest| fold(seed, digest.unwrap_or(0)));
        if self.options != 0 {
            hash = fold(hash, self.options);
        }
        let mut blocks: Vec<BlockHash> = Vec::new();
        let mut start = 0;
        let present = self
            .sections
            .iter()
            .enumerate()
            .filter(|(_, bytes)| !bytes.is_empty());
        let last = present.clone().next_back().map(|(number, _)| number);
        for (number, section) in present {
            hash = fold(hash, number as u64);
            let mut offset = 0;
            let mut ends = Vec::new();
            while offset + width(offset) <= section.len() {
                hash = fold(hash, digest(&section[offset..offset + width(offset)]));
                offset += width(offset);
                ends.push((start + offset, hash));
            }
            if Some(number) != last {
                hash = fold(hash, digest(&section[offset..]));
                if offset < section.len() {
                    ends.push((start + section.len(), hash));
                }
            }
            for (end, hash) in ends {
                let previous = blocks.last().map_or(0, |block| block.end_bytes as usize);
                if end - previous >= width(previous) {
                    blocks.push(BlockHash {
                        hash,
                        end_bytes: end as u32,
                    });
                }
            }
            start += section.len();
        }
        blocks
    }
}

fn width(offset: usize) -> usize {
    256 * (1 + offset / (28 * 256))
}

fn fold(chain: u64, hash: u64) -> u64 {
    XxHash3_64::oneshot(&[chain.to_le_bytes(), hash.to_le_bytes()].concat())
}

fn digest(bytes: &[u8]) -> u64 {
    bytes
        .chunks(1024)
        .fold(0, |chain, leaf| fold(chain, XxHash3_64::oneshot(leaf)))
}

/// Renders a request whose members do not repeat.
pub fn render(api: Api, request: &Value) -> RenderedPrompt {
    let mut rendered = RenderedPrompt::default();
    for (name, value) in request.members() {
        member(api, name, value, &mut rendered);
    }
    rendered
}

fn member(api: Api, name: &str, value: &Value, rendered: &mut RenderedPrompt) {
    use Api::{ChatCompletions, Completions, Embeddings, Generate, Messages, Responses};
    if matches!(value, Value::Null) {
        return;
    }
    let mut text = Text::default();
    let section = match (api, name) {
        (ChatCompletions | Messages | Embeddings, "messages") | (Responses, "input") => {
            text.messages(value);
            2
        }
        (ChatCompletions | Messages | Responses, "tools") | (ChatCompletions, "functions") => {
            text.whole_json(value);
            0
        }
        (ChatCompletions, "documents") => {
            text.whole_json(value);
            1
        }
        (Messages, "system") | (Responses, "instructions") => {
            text.parts(value, &mut None);
            1
        }
        (Completions, "prompt")
        | (Embeddings, "input")
        | (Generate, "text" | "inputs" | "input_ids") => {
            text.texts(value);
            2
        }
        (Completions, "suffix") => {
            text.parts(value, &mut None);
            3
        }
        (Generate, "image_data") => {
            text.media(value, &mut None);
            4
        }
        (_, "model") => return select(&mut rendered.selectors[0], value),
        (_, "lora_path") => return select(&mut rendered.selectors[1], value),
        (_, "cache_salt") | (Generate, "extra_key") => {
            return select(&mut rendered.selectors[2], value);
        }
        (Responses, "previous_response_id" | "conversation") => {
            return select(&mut rendered.selectors[3], value);
        }
        (_, "chat_template") | (Responses, "prompt") => {
            return select(&mut rendered.selectors[4], value);
        }
        (_, "chat_template_kwargs") if is_empty(value) => return,
        (_, "chat_template_kwargs") => {
            let value = match value {
                Value::String(text) => text.clone().into_bytes(),
                _ => {
                    text.option(value);
                    text.bytes
                }
            };
            let option = fold(digest(name.as_bytes()), digest(&value));
            rendered.options = rendered.options.wrapping_add(option);
            return;
        }
        _ => return,
    };
    if !rendered.sections[section].is_empty() {
        // A second member that states the section must be empty.
        return;
    }
    rendered.token_ids += text.token_ids;
    rendered.media += text.media_count;
    rendered.sections[section] = text.bytes;
}

/// Whether engines render a member with this value as absent.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether nothing of a JSON value is hashed.
fn is_empty_json(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().all(|(name, _)| name == "cache_control"),
        other => is_empty(other),
    }
}

fn select(selector: &mut Option<u64>, value: &Value) {
    match value {
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        Value::Bool(value) => {
            *selector = Some(fold(
                selector.unwrap_or(0),
                digest(value.to_string().as_bytes()),
            ))
        }
        Value::Number(value) => {
            *selector = Some(fold(
                selector.unwrap_or(0),
                digest(value.to_string().as_bytes()),
            ))
        }
        Value::String(text) => {
            *selector = Some(fold(selector.unwrap_or(0), digest(text.as_bytes())))
        }
        Value::Array(values) => values.iter().for_each(|value| select(selector, value)),
        Value::Object(members) => members
            .iter()
            .for_each(|(_, value)| select(selector, value)),
    }
}

/// A section in the making.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    wrote: bool,
    token_ids: u64,
    media_count: u64,
}

impl Text {
    fn messages(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.message(&Value::object([
                ("role", Value::text("user")),
                ("content", Value::text(text.clone())),
            ])),
            Value::Array(messages) => messages.iter().for_each(|message| self.message(message)),
            Value::Object(_) => self.message(value),
            _ => {}
        }
    }

    fn message(&mut self, message: &Value) {
        self.wrote = false;
        let mut trailers = [None; 3];
        match message {
            Value::String(_) => self.parts(message, &mut None),
            Value::Object(members) => {
                for (name, value) in members {
                    let trailer = match name.as_str() {
                        "role" => 0,
                        "name" => 1,
                        "tool_call_id" | "call_id" => 2,
                        _ => {
                            self.item(name, value, &mut None);
                            continue;
                        }
                    };
                    if let Value::String(text) = value
                        && !text.is_empty()
                    {
                        trailers[trailer].get_or_insert(digest(text.as_bytes()));
                    }
                }
            }
            _ => return,
        }
        self.bytes.push(0xFF);
        for (number, trailer) in trailers.iter().enumerate() {
            if let Some(digest) = trailer {
                self.bytes.push(number as u8);
                self.bytes.extend(digest.to_le_bytes());
            }
        }
    }

    fn item(&mut self, name: &str, value: &Value, outer: &mut Option<String>) {
        match name {
            "content" | "text" | "output" => self.parts(value, outer),
            "reasoning_content" | "reasoning" | "thinking" | "summary" | "refusal"
            | "arguments" => {
                *outer = None;
                self.parts(value, &mut Some(name.to_owned()));
            }
            "image_url" | "image" | "input_audio" | "audio_url" | "audio" | "video_url"
            | "video" | "source" | "file" | "file_data" | "file_id" | "file_url" => {
                self.media(value, outer)
            }
            "type" | "cache_control" | "detail" | "id" | "status" | "index" | "annotations"
            | "logprobs" => {}
            _ => {
                *outer = None;
                if !is_empty_json(value) {
                    self.begin_part(&mut Some(name.to_owned()));
                    self.json(value);
                }
            }
        }
    }

    fn begin_part(&mut self, name: &mut Option<String>) {
        if self.wrote {
            self.bytes.push(0xFC);
        }
        self.wrote = true;
        if let Some(name) = name.take() {
            self.bytes.push(0xFD);
            self.bytes.extend(digest(name.as_bytes()).to_le_bytes());
        }
    }

    fn parts(&mut self, value: &Value, name: &mut Option<String>) {
        match value {
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => {
                self.begin_part(name);
                self.bytes.extend(text.as_bytes());
            }
            Value::Array(values) => values.iter().for_each(|value| self.parts(value, name)),
            Value::Object(members) => members
                .iter()
                .for_each(|(member, value)| self.item(member, value, name)),
            _ => {}
        }
    }

    fn texts(&mut self, value: &Value) {
        match value {
            Value::Number(i64::MIN..0) => {}
            Value::Number(id) => {
                self.begin_part(&mut None);
                self.bytes.push(0xC0);
                self.token(*id);
            }
            Value::Array(values) => {
                let mut begun = false;
                for value in values {
                    match value {
                        Value::Number(i64::MIN..0) => {}
                        Value::Number(id) if begun => self.token(*id),
                        _ => {
                            begun |= matches!(value, Value::Number(_));
                            self.texts(value);
                        }
                    }
                }
            }
            _ => self.parts(value, &mut None),
        }
    }

    fn token(&mut self, id: i64) {
        self.bytes.extend((id as u32).to_le_bytes());
        self.token_ids += 1;
    }

    fn media(&mut self, value: &Value, name: &mut Option<String>) {
        match value {
            Value::String(data) if data.is_empty() => {}
            Value::String(data) => {
                self.begin_part(name);
                self.bytes.push(0xFE);
                self.bytes.extend(digest(data.as_bytes()).to_le_bytes());
                self.media_count += 1;
            }
            Value::Array(values) => values.iter().for_each(|value| self.media(value, name)),
            Value::Object(members) => {
                for (member, value) in members {
                    if ![
                        "type",
                        "detail",
                        "format",
                        "media_type",
                        "filename",
                        "cache_control",
                    ]
                    .contains(&member.as_str())
                    {
                        self.media(value, name);
                    }
                }
            }
            _ => {}
        }
    }

    fn whole_json(&mut self, value: &Value) {
        if !is_empty_json(value) {
            self.json(value);
        }
    }

    fn json(&mut self, value: &Value) {
        match value {
            Value::Null => self.literal("null"),
            Value::Bool(value) => self.literal(&value.to_string()),
            Value::Number(value) => self.literal(&value.to_string()),
            Value::String(text) => {
                self.bytes.push(0xFA);
                self.bytes.extend(text.as_bytes());
            }
            Value::Array(values) => {
                self.bytes.push(0xF7);
                values.iter().for_each(|value| self.json(value));
                self.bytes.push(0xF8);
            }
            Value::Object(members) => {
                self.bytes.push(0xF5);
                for (name, value) in members {
                    if name != "cache_control" {
                        self.bytes.push(0xF9);
                        self.bytes.extend(name.as_bytes());
                        self.json(value);
                    }
                }
                self.bytes.push(0xF6);
            }
        }
    }

    /// JSON in which every member counts.
    fn option(&mut self, value: &Value) {
        match value {
            Value::Array(values) => {
                self.bytes.push(0xF7);
                values.iter().for_each(|value| self.option(value));
                self.bytes.push(0xF6);
            }
            Value::Object(members) => {
                self.bytes.push(0xF5);
                for (name, value) in members {
                    self.bytes.push(0xF9);
                    self.bytes.extend(name.as_bytes());
                    self.option(value);
                }
                self.bytes.push(0xF6);
            }
            _ => self.json(value),
        }
    }

    fn literal(&mut self, literal: &str) {
        self.bytes.push(0xFB);
        self.bytes.extend(literal.as_bytes());
    }
}

/// Calls with the members of every object of which each member matters: messages and their parts, tools.
pub fn places_that_matter(
    api: Api,
    request: &mut Value,
    visit: &mut impl FnMut(&mut Vec<(String, Value)>),
) {
    let Value::Object(members) = request else {
        return;
    };
    for (name, value) in members {
        let Value::Array(elements) = value else {
            continue;
        };
        if name == "messages" || name == "tools" && api != Api::Completions {
            // A list in place of a message is none to any engine.
            for element in elements {
                if let Value::Object(members) = element
                    && !members.is_empty()
                {
                    visit(members);
                }
            }
        }
    }
}
