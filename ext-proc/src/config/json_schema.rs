//! Parts of the JSON Schema of the configuration file: the values of an option, and the members of a section.
//!
//! A schema cannot tell every rule: two pools of one name, or an address that is no address, pass it. `isotherm check` finds
//! those.

use serde_json::{Map, Value, json};

/// The JSON values that an option takes.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Boolean,
    /// A whole number in a range.
    Integer(u64, u64),
    /// A number with decimals in a range.
    Number(f64, f64),
    Text,
    /// A whole number in a range, or text.
    IntegerOrText(u64, u64),
    /// A name out of a few.
    Choice(Vec<&'static str>),
    /// At most so many values.
    List(Box<Shape>, usize),
    /// A section with at most so many members of any name.
    Map(Box<Shape>, usize),
    Section(fn() -> Value),
    TextOrSection(fn() -> Value),
}

impl Shape {
    fn schema(&self) -> Value {
        match self {
            Self::Boolean => json!({"type": "boolean"}),
            Self::Integer(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::Number(min, max) => json!({"type": "number", "minimum": min, "maximum": max}),
            Self::Text => json!({"type": "string"}),
            Self::IntegerOrText(min, max) => {
                json!({"anyOf": [Self::Integer(*min, *max).schema(), Self::Text.schema()]})
            }
            Self::Choice(names) => {
                let mut values: Vec<Value> = names.iter().map(|name| json!(name)).collect();
                // YAML reads `off` without quotes as a truth value.
                values.extend(names.contains(&"off").then_some(Value::Bool(false)));
                json!({"enum": values})
            }
            Self::List(entry, len_max) => {
                json!({"type": "array", "items": entry.schema(), "maxItems": len_max})
            }
            Self::Map(value, len_max) => {
                let value = value.schema();
                json!({"type": "object", "additionalProperties": value, "maxProperties": len_max})
            }
            Self::Section(schema) => schema(),
            Self::TextOrSection(schema) => json!({"anyOf": [Self::Text.schema(), schema()]}),
        }
    }
}

/// The schema of a section, built member by member.
#[derive(Debug, Default)]
pub(super) struct SectionSchema {
    properties: Map<String, Value>,
    required: Vec<&'static str>,
}

impl SectionSchema {
    /// Adds an option. An option that may be absent may also be empty, as `admin:` alone is in YAML.
    pub(super) fn add(
        &mut self,
        name: &'static str,
        shape: &Shape,
        is_required: bool,
        text: String,
    ) {
        let mut schema = match is_required {
            true => shape.schema(),
            false => json!({"anyOf": [shape.schema(), {"type": "null"}]}),
        };
        if let Some(members) = schema.as_object_mut() {
            members.insert("description".to_owned(), text.into());
        }
        self.required.extend(is_required.then_some(name));
        self.properties.insert(name.to_owned(), schema);
    }

    pub(super) fn finish(self) -> Value {
        json!({
            "type": "object",
            "properties": self.properties,
            "required": self.required,
            "additionalProperties": false,
        })
    }
}
