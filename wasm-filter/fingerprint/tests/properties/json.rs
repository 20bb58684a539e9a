//! JSON with its members in order, and a writer that varies the spelling as clients do.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(i64),
    String(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    pub fn text(text: impl Into<String>) -> Self {
        Self::String(text.into())
    }

    pub fn object<const N: usize>(members: [(&str, Self); N]) -> Self {
        Self::Object(
            members
                .map(|(name, value)| (name.to_owned(), value))
                .to_vec(),
        )
    }

    /// The value as parsers read it: each member once, with the last of its values.
    pub fn last_values(self) -> Self {
        match self {
            Self::Array(values) => Self::Array(values.into_iter().map(Self::last_values).collect()),
            Self::Object(members) => {
                let mut last: Vec<(String, Self)> = Vec::new();
                for (name, value) in members {
                    let value = value.last_values();
                    match last.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, before)) => *before = value,
                        None => last.push((name, value)),
                    }
                }
                Self::Object(last)
            }
            value => value,
        }
    }

    pub fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without fractions")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value as i64))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Value::Object(members))
    }
}

/// Writes JSON; each choice of spelling takes the next of these bytes, in a cycle.
pub struct Writer<'a> {
    choices: &'a [u8],
    next: usize,
}

impl<'a> Writer<'a> {
    pub fn new(choices: &'a [u8]) -> Self {
        Self { choices, next: 0 }
    }

    fn choice(&mut self) -> u8 {
        let choice = self.choices.get(self.next % self.choices.len().max(1));
        self.next += 1;
        choice.copied().unwrap_or_default()
    }

    pub fn write(&mut self, value: &Value) -> String {
        let mut out = String::new();
        self.value(&mut out, value);
        out
    }

    fn value(&mut self, out: &mut String, value: &Value) {
        self.blank(out);
        match value {
            Value::Null => out.push_str("null"),
            Value::Bool(value) => out.push_str(&value.to_string()),
            Value::Number(value) => out.push_str(&value.to_string()),
            Value::String(text) => self.string(out, text),
            Value::Array(values) => {
                out.push('[');
                for (index, value) in values.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    self.value(out, value);
                }
                self.blank(out);
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    self.blank(out);
                    self.string(out, name);
                    self.blank(out);
                    out.push(':');
                    self.value(out, value);
                }
                self.blank(out);
                out.push('}');
            }
        }
        self.blank(out);
    }

    fn blank(&mut self, out: &mut String) {
        out.push_str(match self.choice() % 16 {
            0 => " ",
            1 => "\n  ",
            2 => "\t\r\n",
            _ => "",
        });
    }

    fn string(&mut self, out: &mut String, text: &str) {
        out.push('"');
        for char in text.chars() {
            let must = matches!(char, '"' | '\\' | '\0'..='\u{1f}');
            let choice = self.choice() % 32;
            match char {
                _ if !must && choice > 1 => out.push(char),
                '"' if choice > 3 => out.push_str("\\\""),
                '\\' if choice > 3 => out.push_str("\\\\"),
                '/' => out.push_str("\\/"),
                '\n' if choice > 3 => out.push_str("\\n"),
                '\t' if choice > 3 => out.push_str("\\t"),
                '\u{8}' if choice > 3 => out.push_str("\\b"),
                _ => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        out.push_str(&match choice % 2 {
                            0 => format!("\\u{unit:04x}"),
                            _ => format!("\\u{unit:04X}"),
                        });
                    }
                }
            }
        }
        out.push('"');
    }
}
