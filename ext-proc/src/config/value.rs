//! The types that an option's value can have.
//!
//! Each one parses into something that cannot be wrong, says what it accepts (for messages and for the reference
//! alike), and knows its unit; so a range stands in one place, the type of the option. Numbers are in
//! [`super::number`].

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::errors::{Errors, SourceLocation};
use super::reference::Row;
use super::tree::{Data, Node};

/// The longest text that an option takes, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// What an option's value can be.
pub(super) trait Value: Sized {
    /// Reads the value of `option`; notes every mistake, and returns `None` when there was one.
    fn read(node: &Node, option: &str, errors: &mut Errors) -> Option<Self>;

    /// What it accepts, such as `milliseconds, 10 to 60000`.
    fn accepts() -> String;

    /// What a list of them accepts.
    fn accept_many() -> String {
        format!("list of {}", Self::accepts())
    }

    /// The value as one would write it in a file.
    fn show(&self) -> String;

    /// Describes the options below `option`, where this is a section or a list of sections.
    fn describe(_option: &str, _rows: &mut Vec<Row>) {}
}

/// An option's value, and where it was given.
#[derive(Clone, Debug)]
pub(super) struct Field<T> {
    pub(super) value: T,
    /// Where it was given; `None` for a default.
    pub(super) location: Option<SourceLocation>,
    /// Whether it was given but wrong, so that `value` is only the default: nothing may be concluded from it.
    pub(super) wrong: bool,
}

impl<T> Field<T> {
    /// A default.
    pub(super) fn default_value(value: T) -> Self {
        Self {
            value,
            location: None,
            wrong: false,
        }
    }
}

/// Notes that `node` is not what `T` accepts.
pub(super) fn refuse<T: Value>(node: &Node, option: &str, errors: &mut Errors) -> Option<T> {
    let message = format!("expected {}; found {}", T::accepts(), node.data.describe());
    errors.add(Some(node.location), option, message);
    None
}

impl Value for bool {
    fn read(node: &Node, option: &str, errors: &mut Errors) -> Option<Self> {
        match node.data {
            Data::Bool(value) => Some(value),
            _ => refuse(node, option, errors),
        }
    }

    fn accepts() -> String {
        "true or false".into()
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A value that is written as text, such as an address.
pub(super) trait Parsed: Sized + fmt::Display {
    /// What it accepts.
    fn accepts() -> String;
    /// From the text in the file; the error says what is wrong with it.
    fn parse(text: &str) -> Result<Self, String>;
}

impl<T: Parsed> Value for T {
    fn read(node: &Node, option: &str, errors: &mut Errors) -> Option<Self> {
        let text = match &node.data {
            Data::Text(text) => text,
            Data::Number(_) | Data::OtherNumber(_) | Data::Bool(_) => {
                let message = format!(
                    "expected {}; found {} (put text that looks like a number or a truth value in quotes)",
                    <T as Value>::accepts(),
                    node.data.describe()
                );
                errors.add(Some(node.location), option, message);
                return None;
            }
            Data::Null | Data::List(_) | Data::Section(_) => return refuse(node, option, errors),
        };
        if text.len() > TEXT_BYTES_MAX {
            errors.add(
                Some(node.location),
                option,
                format!("longer than {TEXT_BYTES_MAX} bytes"),
            );
            return None;
        }
        T::parse(text)
            .map_err(|message| errors.add(Some(node.location), option, message))
            .ok()
    }

    fn accepts() -> String {
        <T as Parsed>::accepts()
    }

    fn show(&self) -> String {
        format!("`{self}`")
    }
}

impl Parsed for SocketAddr {
    fn accepts() -> String {
        "ip:port".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| {
            format!("`{text}` is not ip:port, such as 127.0.0.1:8000 or [::1]:8000 (names are not resolved here)")
        })
    }
}

/// A path in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePath(pub(super) PathBuf);

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl Parsed for FilePath {
    fn accepts() -> String {
        "path".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("expected a path; found the empty text".into());
        }
        Ok(Self(text.into()))
    }
}

/// A value out of a closed set, written by its name.
pub(super) trait Choice: Copy + 'static {
    /// All of them, in the order of the reference.
    const ALL: &'static [Self];

    /// Its name in the file.
    fn name(self) -> &'static str;
}

/// An option that takes one of a closed set.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneOf<T>(pub(super) T);

impl<T: Choice> fmt::Display for OneOf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl<T: Choice> Parsed for OneOf<T> {
    fn accepts() -> String {
        let names: Vec<_> = T::ALL
            .iter()
            .map(|choice| format!("`{}`", choice.name()))
            .collect();
        names.join(", ")
    }

    fn parse(text: &str) -> Result<Self, String> {
        let found = T::ALL.iter().find(|choice| choice.name() == text);
        found
            .map(|choice| Self(*choice))
            .ok_or_else(|| format!("`{text}` is not one of {}", <Self as Parsed>::accepts()))
    }
}

/// An option that may be left empty (`null`).
#[derive(Clone, Debug)]
pub(super) struct Maybe<T>(pub(super) Option<T>);

impl<T: Value> Value for Maybe<T> {
    fn read(node: &Node, option: &str, errors: &mut Errors) -> Option<Self> {
        match node.data {
            Data::Null => Some(Self(None)),
            _ => T::read(node, option, errors).map(|value| Self(Some(value))),
        }
    }

    fn accepts() -> String {
        T::accepts()
    }

    fn show(&self) -> String {
        self.0.as_ref().map_or_else(|| "none".into(), T::show)
    }

    fn describe(option: &str, rows: &mut Vec<Row>) {
        T::describe(option, rows);
    }
}

/// An entry of a list.
#[derive(Clone, Debug)]
pub(super) struct Item<T> {
    /// Which one, counted from 0 over the wrong ones too.
    pub(super) index: usize,
    pub(super) value: T,
    /// Where it stands; `None` for a default.
    pub(super) location: Option<SourceLocation>,
}

/// A list of at most `MAX` values.
#[derive(Clone, Debug)]
pub(super) struct List<T, const MAX: usize>(pub(super) Vec<Item<T>>);

impl<T, const MAX: usize> List<T, MAX> {
    /// A list of one, for a default.
    pub(super) fn of(value: T) -> Self {
        Self(vec![Item {
            index: 0,
            value,
            location: None,
        }])
    }
}

impl<T: Value, const MAX: usize> Value for List<T, MAX> {
    fn read(node: &Node, option: &str, errors: &mut Errors) -> Option<Self> {
        let Data::List(items) = &node.data else {
            return refuse(node, option, errors);
        };
        if items.len() > MAX {
            errors.add(
                Some(node.location),
                option,
                format!("{} entries; at most {MAX} are allowed", items.len()),
            );
            return None;
        }
        let read = items.iter().enumerate().filter_map(|(index, item)| {
            T::read(item, &format!("{option}[{index}]"), errors).map(|value| Item {
                index,
                value,
                location: Some(item.location),
            })
        });
        Some(Self(read.collect()))
    }

    fn accepts() -> String {
        T::accept_many()
    }

    fn show(&self) -> String {
        let items: Vec<_> = self.0.iter().map(|item| item.value.show()).collect();
        if items.is_empty() {
            "none".into()
        } else {
            items.join(", ")
        }
    }

    fn describe(option: &str, rows: &mut Vec<Row>) {
        T::describe(&format!("{option}[]"), rows);
    }
}
