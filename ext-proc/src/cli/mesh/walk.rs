//! Paths and searches in JSON values.

use isotherm_envoy_config::camel_case;
use serde_json::{Map, Value};

/// The value at a dotted path.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(value, |value, name| value.get(name))
}

/// The text at a dotted path.
pub(super) fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    at(value, path)?.as_str()
}

/// The object at a dotted path.
pub(super) fn map<'a>(value: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
    at(value, path)?.as_object()
}

/// The entries of the list at a dotted path; none where there is no list.
pub(super) fn list<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    let list = at(value, path).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// A member of a protobuf message in JSON, which may be written in either of two ways: `message_timeout`, `messageTimeout`.
pub(super) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).or_else(|| value.get(camel_case(name)))
}

/// Every object inside a value, the value itself first, in order.
pub(super) fn objects(value: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(members) => {
                found.push(value);
                rest.extend(members.values().rev());
            }
            Value::Array(entries) => rest.extend(entries.iter().rev()),
            _ => {}
        }
    }
    found
}

/// Whether an object is a message of this type: by `@type`, or by `type_url` of a `TypedStruct`.
pub(super) fn is_message(object: &Value, message: &str) -> bool {
    let names = ["@type", "type_url", "typeUrl"];
    let mut names = names.into_iter().filter_map(|name| text(object, name));
    names.any(|name| name.rsplit('/').next() == Some(message))
}

/// A number that protobuf's JSON writes as a number or, if it has 64 bits, as a text.
pub(super) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// A duration in milliseconds: `200ms`, `0.5s`, `1m30s`.
pub(super) fn millis(text: &str) -> Option<f64> {
    let mut sum = 0.0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (count, unit_and_rest) = rest.split_at(digits);
        let end = unit_and_rest.find(|letter: char| letter.is_ascii_digit());
        let (unit, next) = unit_and_rest.split_at(end.unwrap_or(unit_and_rest.len()));
        let millis = match unit {
            "ms" => 1.0,
            "s" => 1e3,
            "m" => 60e3,
            "h" => 3_600e3,
            _ => return None,
        };
        sum += count.parse::<f64>().ok()? * millis;
        rest = next;
    }
    Some(sum)
}

/// A quantity of Kubernetes in bytes: `32768`, `50Mi`, `1M`.
pub(super) fn bytes(value: &Value) -> Option<u64> {
    let Some(text) = value.as_str() else {
        return value.as_u64();
    };
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    let (count, unit) = text.split_at(end.unwrap_or(text.len()));
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_and_quantities_are_read_in_the_units_of_kubernetes() {
        assert_eq!(millis("1m30s"), Some(90e3));
        assert_eq!(millis("0.5s"), Some(500.0));
        assert_eq!(millis("5 parsecs"), None);
        assert_eq!(bytes(&json!("4Mi")), Some(4 << 20));
        assert_eq!(bytes(&json!(32768)), Some(32768));
        assert_eq!(bytes(&json!("much")), None);
    }

    #[test]
    fn a_field_of_a_message_may_be_written_in_either_case() {
        let message = json!({"messageTimeout": "1s", "status_on_error": 1});
        assert!(field(&message, "message_timeout").is_some());
        assert!(field(&message, "status_on_error").is_some());
        assert!(field(&message, "processing_mode").is_none());
    }
}
