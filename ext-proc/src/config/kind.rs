//! Kinds of values that an option can have.
//!
//! A [`Kind`] parses a value into something valid, describes what it accepts (for messages and for the reference alike),
//! and shows a default. So the range of an option stands in one place.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::errors::Reader;
use super::json_schema::Shape;
use super::tree::{Data, Node};

/// The longest text that an option takes, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// A section of the file: a struct that the macro `section!` declares.
pub(super) trait Section: Sized {
    /// Parses the section `option`; `None` if `node` is not a section.
    fn parse(node: &Node, option: &str, reader: &mut Reader) -> Option<Self>;

    /// Adds a row for each option of the section `option`.
    fn describe(option: &str, rows: &mut Vec<Row>);

    /// Returns the JSON Schema of the section.
    fn schema() -> Value;
}

/// A row of the reference: one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The option with its section, such as `pools[].probe.interval_ms`.
    pub option: String,
    /// The accepted values, with their unit and range.
    pub accepts: String,
    /// The default.
    pub default: String,
    /// The meaning.
    pub meaning: String,
}

type Parse<T> = dyn Fn(&Node, &str, &mut Reader) -> Option<T>;

pub(super) struct Kind<T> {
    /// The accepted values, for editors.
    pub(super) shape: Shape,
    /// The accepted values, such as `milliseconds, 10 to 60000`.
    pub(super) accepts: String,
    pub(super) is_required: bool,
    /// Parses the value of an option; records every mistake, and returns `None` if there is one.
    pub(super) parse: Box<Parse<T>>,
    /// Formats a value as it stands in a file.
    pub(super) show: Box<dyn Fn(&T) -> String>,
    /// Adds the rows of the options inside a section.
    describe: Option<fn(&str, &mut Vec<Row>)>,
    is_list: bool,
}

impl<T: 'static> Kind<T> {
    fn new(
        shape: Shape,
        accepts: String,
        parse: impl Fn(&Node, &str, &mut Reader) -> Option<T> + 'static,
        show: impl Fn(&T) -> String + 'static,
    ) -> Self {
        Self {
            shape,
            accepts,
            is_required: false,
            parse: Box::new(parse),
            show: Box::new(show),
            describe: None,
            is_list: false,
        }
    }

    /// Adds the rows of the options inside `option`.
    pub(super) fn describe(&self, option: &str, rows: &mut Vec<Row>) {
        let entry = if self.is_list { "[]" } else { "" };
        if let Some(describe) = self.describe {
            describe(&format!("{option}{entry}"), rows);
        }
    }

    /// Converts the values of a kind.
    fn map<U: 'static>(
        self,
        into: impl Fn(T) -> U + 'static,
        back: impl Fn(&U) -> T + 'static,
    ) -> Kind<U> {
        let (parse, show) = (self.parse, self.show);
        let mut kind = Kind::new(
            self.shape,
            self.accepts,
            move |node, option, reader| parse(node, option, reader).map(&into),
            move |value| show(&back(value)),
        );
        kind.describe = self.describe;
        kind
    }
}

/// Records that a value is not of the kind that the option accepts.
fn reject<T>(node: &Node, option: &str, accepts: &str, reader: &mut Reader) -> Option<T> {
    let hint = hint(&node.data, option, accepts).unwrap_or_default();
    let message = format!("expected {accepts}; found {}{hint}", node.data.describe());
    reader.error_at(Some(node.location), option, message);
    None
}

/// Says what to write instead of text that stands for a number or a truth value.
fn hint(found: &Data, option: &str, accepts: &str) -> Option<String> {
    let Data::Text(text) = found else { return None };
    if accepts == "true or false" {
        let is_boolean = matches!(
            text.as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off"
        );
        return is_boolean.then(|| ": remove the quotes".to_owned());
    }
    if text.parse::<f64>().is_ok_and(f64::is_finite) {
        return Some(": remove the quotes".to_owned());
    }
    if !accepts.starts_with("milliseconds") {
        return None;
    }
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.')?;
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = match unit.trim() {
        "ms" => 1.0,
        "s" => 1e3,
        "m" | "min" => 60e3,
        "h" => 3_600e3,
        _ => return None,
    };
    let milliseconds = number.parse::<f64>().ok()? * factor;
    let name = option.rsplit('.').next()?;
    Some(format!(": give `{name}: {milliseconds:.0}`"))
}

pub(super) fn boolean() -> Kind<bool> {
    let accepts = "true or false";
    let parse = move |node: &Node, option: &str, reader: &mut Reader| match node.data {
        Data::Bool(value) => Some(value),
        _ => reject(node, option, accepts, reader),
    };
    Kind::new(Shape::Boolean, accepts.into(), parse, bool::to_string)
}

/// A whole number in a range, with its unit.
pub(super) fn number<T>(unit: &str, range: RangeInclusive<T>) -> Kind<T>
where
    T: Copy + Display + PartialOrd + TryFrom<u64> + 'static,
{
    let accepts = format!("{unit}, {} to {}", range.start(), range.end());
    // Each whole number of the ranges fits; the bound stands in for one that does not.
    let bound = |value: &T, other| value.to_string().parse().unwrap_or(other);
    let shape = Shape::Integer(bound(range.start(), 0), bound(range.end(), u64::MAX));
    let message = accepts.clone();
    let parse = move |node: &Node, option: &str, reader: &mut Reader| match node.data {
        Data::Number(value) => T::try_from(value)
            .ok()
            .filter(|value| range.contains(value))
            .or_else(|| reject(node, option, &message, reader)),
        _ => reject(node, option, &message, reader),
    };
    Kind::new(shape, accepts, parse, T::to_string)
}

/// A number with decimals in a range, converted into a value and back.
pub(super) fn decimal_of<T: 'static>(
    range: RangeInclusive<f64>,
    into: impl Fn(f64) -> T + 'static,
    back: impl Fn(&T) -> f64 + 'static,
) -> Kind<T> {
    let accepts = format!("number, {} to {}", range.start(), range.end());
    let shape = Shape::Number(*range.start(), *range.end());
    let message = accepts.clone();
    let parse = move |node: &Node, option: &str, reader: &mut Reader| {
        let number = match &node.data {
            Data::Number(number) => Some(*number as f64),
            Data::OtherNumber(number) => number.parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| range.contains(number)).map(&into);
        number.or_else(|| reject(node, option, &message, reader))
    };
    Kind::new(shape, accepts, parse, move |value| back(value).to_string())
}

pub(super) fn millis(range: RangeInclusive<u64>) -> Kind<Duration> {
    let to_millis = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    number("milliseconds", range).map(Duration::from_millis, to_millis)
}

/// Text that `check` converts, or rejects with a message.
pub(super) fn text<T: Display + 'static>(
    accepts: impl Into<String>,
    check: impl Fn(&str) -> Result<T, String> + 'static,
) -> Kind<T> {
    text_shown(accepts, check, |value| format!("`{value}`"))
}

/// A number in a range, or text that `check` converts.
pub(super) fn number_or_text<T: Display + 'static>(
    accepts: impl Into<String>,
    range: RangeInclusive<u64>,
    from_number: impl Fn(u64) -> T + 'static,
    check: impl Fn(&str) -> Result<T, String> + 'static,
) -> Kind<T> {
    let text = text(accepts, check);
    let shape = Shape::IntegerOrText(*range.start(), *range.end());
    let (parse, message) = (text.parse, text.accepts.clone());
    let parse_both = move |node: &Node, option: &str, reader: &mut Reader| match node.data {
        Data::Number(value) if range.contains(&value) => Some(from_number(value)),
        Data::Number(_) => reject(node, option, &message, reader),
        _ => parse(node, option, reader),
    };
    Kind::new(shape, text.accepts, parse_both, T::to_string)
}

fn text_shown<T: 'static>(
    accepts: impl Into<String>,
    check: impl Fn(&str) -> Result<T, String> + 'static,
    show: impl Fn(&T) -> String + 'static,
) -> Kind<T> {
    let accepts = accepts.into();
    let message = accepts.clone();
    let parse = move |node: &Node, option: &str, reader: &mut Reader| {
        let checked = match &node.data {
            Data::Text(text) if text.len() > TEXT_BYTES_MAX => {
                Err(format!("longer than {TEXT_BYTES_MAX} bytes"))
            }
            Data::Text(text) => check(text),
            Data::Number(_) | Data::OtherNumber(_) | Data::Bool(_) => Err(format!(
                "expected {message}; found {} (put text that looks like a number or a truth value in quotes)",
                node.data.describe()
            )),
            Data::Null | Data::List(_) | Data::Section(_) => {
                return reject(node, option, &message, reader);
            }
        };
        checked
            .map_err(|message| reader.error_at(Some(node.location), option, message))
            .ok()
    };
    Kind::new(Shape::Text, accepts, parse, show)
}

pub(super) fn path() -> Kind<PathBuf> {
    let check = |text: &str| match text {
        "" => Err("expected a path; found the empty text".into()),
        _ => Ok(text.into()),
    };
    text_shown("path", check, |path: &PathBuf| {
        format!("`{}`", path.display())
    })
}

/// A section, or text that stands for a section with nothing else in it.
pub(super) fn text_or_section<T: 'static, S: Section + From<T> + 'static>(
    text: Kind<T>,
) -> Kind<S> {
    let (parse, accepts) = (text.parse, format!("{} or section", text.accepts));
    let parse_both = move |node: &Node, option: &str, reader: &mut Reader| match node.data {
        Data::Section(_) => S::parse(node, option, reader),
        _ => parse(node, option, reader).map(S::from),
    };
    Kind {
        describe: Some(S::describe),
        ..Kind::new(Shape::TextOrSection(S::schema), accepts, parse_both, |_| {
            String::new()
        })
    }
}

/// A value out of a closed set, by its name.
pub(super) fn choice<T: Copy + PartialEq + 'static>(
    choices: impl IntoIterator<Item = (&'static str, T)>,
) -> Kind<T> {
    let choices = Vec::from_iter(choices);
    let names = choices.iter().map(|(name, _)| format!("`{name}`"));
    let accepts = Vec::from_iter(names).join(", ");
    let shape = Shape::Choice(choices.iter().map(|(name, _)| *name).collect());
    let (message, known) = (accepts.clone(), choices.clone());
    let check = move |text: &str| match known.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => Err(format!("`{text}` is not one of {message}")),
    };
    // YAML reads `off` without quotes as a truth value.
    let off = choices.iter().find(|(name, _)| *name == "off");
    let off = off.map(|(_, value)| *value);
    let text = text_shown(accepts, check, move |value| {
        let chosen = choices.iter().find(|(_, known)| known == value);
        chosen.map_or_else(String::new, |(name, _)| format!("`{name}`"))
    });
    let (parse, show) = (text.parse, text.show);
    let parse_both = move |node: &Node, option: &str, reader: &mut Reader| match (&node.data, off) {
        (Data::Bool(false), Some(off)) => Some(off),
        _ => parse(node, option, reader),
    };
    Kind::new(shape, text.accepts, parse_both, show)
}

pub(super) fn optional<T: 'static>(kind: Kind<T>) -> Kind<Option<T>> {
    let (parse, show) = (kind.parse, kind.show);
    let mut optional = Kind::new(
        kind.shape,
        kind.accepts,
        move |node, option, reader| parse(node, option, reader).map(Some),
        move |value: &Option<T>| value.as_ref().map_or_else(|| "none".into(), &show),
    );
    optional.describe = kind.describe;
    optional
}

pub(super) fn required<T>(kind: Kind<T>) -> Kind<T> {
    Kind {
        is_required: true,
        ..kind
    }
}

/// A list of at most `len_max` values.
pub(super) fn list<T: 'static>(kind: Kind<T>, len_max: usize) -> Kind<Vec<T>> {
    let accepts = match kind.accepts.as_str() {
        "section" => "list of sections".to_owned(),
        accepts => format!("list of {accepts}"),
    };
    let shape = Shape::List(Box::new(kind.shape), len_max);
    let (parse, show, message) = (kind.parse, kind.show, accepts.clone());
    let parse_all = move |node: &Node, option: &str, reader: &mut Reader| {
        let Data::List(items) = &node.data else {
            return reject(node, option, &message, reader);
        };
        if items.len() > len_max {
            let message = format!("{} entries; at most {len_max} are allowed", items.len());
            reader.error_at(Some(node.location), option, message);
            return None;
        }
        let parsed = items.iter().enumerate().filter_map(|(index, item)| {
            let entry = format!("{option}[{index}]");
            reader.found(&entry, item.location);
            let value = parse(item, &entry, reader)?;
            reader.found_entry(option, entry);
            Some(value)
        });
        Some(parsed.collect())
    };
    let show_all = move |items: &Vec<T>| match items.as_slice() {
        [] => "none".to_owned(),
        items => Vec::from_iter(items.iter().map(&show)).join(", "),
    };
    Kind {
        describe: kind.describe,
        is_list: true,
        ..Kind::new(shape, accepts, parse_all, show_all)
    }
}

/// A section whose members have names of one kind and values of another, at most `len_max` of them.
pub(super) fn map_of<T: 'static>(
    names: Kind<String>,
    values: Kind<T>,
    len_max: usize,
) -> Kind<BTreeMap<String, T>> {
    let accepts = format!("section of {}: {}", names.accepts, values.accepts);
    let message = accepts.clone();
    let shape = Shape::Map(Box::new(values.shape), len_max);
    let (parse_name, parse, show) = (names.parse, values.parse, values.show);
    let parse_all = move |node: &Node, option: &str, reader: &mut Reader| {
        let Data::Section(members) = &node.data else {
            return reject(node, option, &message, reader);
        };
        if members.len() > len_max {
            let message = format!("{} entries; at most {len_max} are allowed", members.len());
            reader.error_at(Some(node.location), option, message);
            return None;
        }
        let parsed = members.iter().filter_map(|(name, location, value)| {
            let entry = format!("{option}.{name}");
            let written = Node {
                location: *location,
                data: Data::Text(name.clone()),
            };
            let name = parse_name(&written, &entry, reader);
            let value = parse(value, &entry, reader);
            Some((name?, value?))
        });
        Some(parsed.collect())
    };
    let show_all = move |members: &BTreeMap<String, T>| match members.is_empty() {
        true => "none".to_owned(),
        false => {
            let members = members.iter();
            let shown = members.map(|(name, value)| format!("{name}: {}", show(value)));
            Vec::from_iter(shown).join(", ")
        }
    };
    Kind::new(shape, accepts, parse_all, show_all)
}

pub(super) fn section<S: Section + 'static>() -> Kind<S> {
    Kind {
        describe: Some(S::describe),
        ..Kind::new(
            Shape::Section(S::schema),
            "section".into(),
            S::parse,
            |_| String::new(),
        )
    }
}
