//! A YAML document as a tree in which every member and every value has its location.
//!
//! Each section checks itself against the tree and does not stop at the first mistake: an operator who learns one mistake per
//! attempt restarts a service once per mistake. The YAML parser resolves anchors, aliases and merge keys, within its own budget
//! against alias bombs.
//!
//! Rejected: derived structs with `serde-saphyr` and `garde`, which stop at the first value of a wrong type and at the first
//! unknown option, and a JSON schema with a validator, which knows no lines.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Location, Spanned, UserMessageFormatter};

use super::errors::{Reader, SourceLocation};

#[derive(Debug)]
pub(super) struct Node {
    pub(super) location: SourceLocation,
    pub(super) data: Data,
}

#[derive(Debug)]
pub(super) enum Data {
    /// Nothing: as if the member were absent.
    Null,
    Bool(bool),
    /// A whole number that is not negative.
    Number(u64),
    /// A negative, fractional or very large number, as written.
    OtherNumber(String),
    Text(String),
    List(Vec<Node>),
    /// A section: its members in the order of the file, with the location of each name.
    Section(Vec<(String, SourceLocation, Node)>),
}

impl Data {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".into(),
            Self::Bool(value) => format!("`{value}`"),
            Self::Number(value) => format!("the number {value}"),
            Self::OtherNumber(value) => format!("the number {value}"),
            Self::Text(value) => format!("the text `{value}`"),
            Self::List(_) => "a list".into(),
            Self::Section(_) => "a section".into(),
        }
    }
}

/// Parses `text` into a tree; `None` if its syntax is too broken for one.
pub(super) fn read(text: &str, reader: &mut Reader) -> Option<Node> {
    let strict = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::Error };
    let error = match serde_saphyr::from_str_with_options::<Node>(text, strict) {
        Ok(node) => return Some(node),
        Err(error) => error,
    };
    reader.error_at(error.location().map(source_location), "", message(&error));
    // A duplicate member is a mistake, but no reason to leave the rest unchecked.
    let lenient = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    serde_saphyr::from_str_with_options(text, lenient).ok()
}

fn message(error: &serde_saphyr::Error) -> String {
    let error = error.without_snippet();
    if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } = error {
        return format!("`{key}` is given twice; the file must say which one counts");
    }
    let text = error.render_with_formatter(&UserMessageFormatter);
    // The parser appends the location, which stands in front of every message here.
    let text = text
        .rsplit_once(" at line ")
        .map_or(&*text, |(text, _)| text);
    text.lines().next().unwrap_or(text).to_owned()
}

fn source_location(location: Location) -> SourceLocation {
    SourceLocation {
        line: location.line(),
        column: location.column(),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Data>::deserialize(deserializer)?;
        Ok(Self {
            location: source_location(spanned.referenced),
            data: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DataVisitor)
    }
}

struct DataVisitor;

impl<'de> Visitor<'de> for DataVisitor {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Data, E> {
        Ok(Data::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Data, E> {
        Ok(Data::Number(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Data, E> {
        let other = |_| Data::OtherNumber(value.to_string());
        Ok(u64::try_from(value).map_or_else(other, Data::Number))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Data, E> {
        // Debug, since Display writes 1e3 as a whole number.
        Ok(Data::OtherNumber(format!("{value:?}")))
    }

    fn visit_str<E>(self, value: &str) -> Result<Data, E> {
        Ok(Data::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Data, E> {
        Ok(Data::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Data, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Node>()? {
            list.push(item);
        }
        Ok(Data::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Data, A::Error> {
        let mut section = Vec::new();
        while let Some((name, value)) = members.next_entry::<Spanned<String>, Node>()? {
            section.push((name.value, source_location(name.referenced), value));
        }
        Ok(Data::Section(section))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_values_have_their_lines() {
        let mut reader = Reader::default();
        let root = read("a:\n  - b: 1\n    c: x\nd: -3\n", &mut reader).unwrap();
        reader.finish(()).unwrap();
        let Data::Section(members) = root.data else {
            panic!("not a section")
        };
        assert_eq!((members[0].0.as_str(), members[0].1.line), ("a", 1));
        let Data::List(items) = &members[0].2.data else {
            panic!("not a list")
        };
        let Data::Section(item) = &items[0].data else {
            panic!("not a section")
        };
        assert_eq!(
            (item[1].0.as_str(), item[1].1.line, item[1].1.column),
            ("c", 3, 5)
        );
        assert_eq!((item[1].2.location.line, item[1].2.location.column), (3, 8));
        assert!(matches!(&members[1].2.data, Data::OtherNumber(n) if n == "-3"));
    }

    #[test]
    fn a_duplicate_member_is_a_mistake_with_its_line_and_the_rest_is_still_read() {
        let mut reader = Reader::default();
        assert!(read("a: 1\nb: 2\na: 3\n", &mut reader).is_some());
        let errors = reader.finish(()).unwrap_err().errors;
        let text = "line 3, column 1: `a` is given twice; the file must say which one counts";
        assert_eq!(errors[0].to_string(), text);
    }

    #[test]
    fn broken_syntax_has_a_line() {
        let mut reader = Reader::default();
        assert!(read("a: 1\nb: [1, 2\nc: }\n", &mut reader).is_none());
        let errors = reader.finish(()).unwrap_err().errors;
        let text = errors[0].to_string();
        assert!(
            text.starts_with("line 3, column 2: illegal placement"),
            "{text}"
        );
        assert!(!text.ends_with("column 2"), "{text}");
    }
}
