//! Sections of the file, each declared once.
//!
//! [`section!`] turns one declaration (name, type, default and meaning of each option) into the raw struct, the
//! reader that checks it, and its rows of the reference. So a default, a range or a meaning is written down once,
//! and the reference cannot drift from what is read.

use super::errors::Errors;
use super::tree::{Data, Node};
use super::value::{Field, Value};

/// How many edits may lie between a wrong name and the one that is suggested for it.
const SUGGESTION_EDITS_MAX: usize = 3;

/// The members of one section, its unknown ones reported and dropped.
pub(super) struct Members<'a> {
    section: &'a str,
    members: &'a [(String, super::errors::SourceLocation, Node)],
}

impl<'a> Members<'a> {
    /// Opens a section that knows the options `known`; `None` when `node` is no section.
    pub(super) fn open(
        node: &'a Node,
        section: &'a str,
        known: &[&str],
        errors: &mut Errors,
    ) -> Option<Self> {
        let members: &[_] = match &node.data {
            Data::Section(members) => members,
            Data::Null => &[],
            other => {
                let message = format!(
                    "expected a section with the options {}; found {}",
                    known.join(", "),
                    other.describe()
                );
                errors.add(Some(node.location), section, message);
                return None;
            }
        };
        for (name, location, _) in members {
            if !known.contains(&name.as_str()) {
                let hint = nearest(name, known)
                    .map(|near| format!("; did you mean `{near}`?"))
                    .unwrap_or_default();
                let message = format!(
                    "unknown option{hint} (this section has {})",
                    known.join(", ")
                );
                errors.add(Some(*location), join(section, name), message);
            }
        }
        Some(Self { section, members })
    }

    /// The value of `name`, or `default` when it is absent, null or wrong.
    pub(super) fn take<T: Value>(
        &self,
        name: &str,
        default: impl FnOnce() -> T,
        errors: &mut Errors,
    ) -> Field<T> {
        let given = self.members.iter().find(|(given, ..)| given == name);
        let Some((_, _, node)) = given.filter(|(_, _, node)| !matches!(node.data, Data::Null))
        else {
            return Field::default_value(default());
        };
        let read = T::read(node, &join(self.section, name), errors);
        Field {
            wrong: read.is_none(),
            value: read.unwrap_or_else(default),
            location: Some(node.location),
        }
    }
}

/// `section.name`, or `name` at the top of the file.
pub(super) fn join(section: &str, name: &str) -> String {
    if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    }
}

/// The name of an option in the file: its field's, without the mark of a name that Rust keeps for itself.
pub(super) fn option_name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::levenshtein(name, candidate), *candidate))
        .filter(|(edits, candidate)| *edits <= SUGGESTION_EDITS_MAX.min(candidate.len() / 2))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Declares a section: `name: Type = default` for each option, its meaning as the doc comment. `=> "text"` after a
/// default says in words what the default is where it has no constant value.
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        pub(super) struct $section:ident {
            $(
                $(#[doc = $meaning:literal])*
                $option:ident: $type:ty = $default:expr $(=> $shown:literal)?;
            )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug)]
        pub(super) struct $section {
            $(
                $(#[doc = $meaning])*
                pub(super) $option: $crate::config::value::Field<$type>,
            )*
        }

        impl Default for $section {
            fn default() -> Self {
                Self {
                    $($option: $crate::config::value::Field::default_value($default),)*
                }
            }
        }

        impl $crate::config::value::Value for $section {
            fn read(
                node: &$crate::config::tree::Node,
                option: &str,
                errors: &mut $crate::config::errors::Errors,
            ) -> Option<Self> {
                use $crate::config::section::{Members, option_name};
                let known = [$(option_name(stringify!($option))),*];
                let members = Members::open(node, option, &known, errors)?;
                Some(Self {
                    $($option: members.take(option_name(stringify!($option)), || $default, errors),)*
                })
            }

            fn accepts() -> String {
                "section".into()
            }

            fn accept_many() -> String {
                "list of sections".into()
            }

            fn show(&self) -> String {
                String::new()
            }

            fn describe(option: &str, rows: &mut Vec<$crate::config::reference::Row>) {
                use $crate::config::value::Value;
                $({
                    let name = $crate::config::section::option_name(stringify!($option));
                    let name = $crate::config::section::join(option, name);
                    let default: $type = $default;
                    let shown = [$($shown,)?].first().map_or_else(|| default.show(), |shown: &&str| (*shown).to_owned());
                    rows.push($crate::config::reference::Row {
                        option: name.clone(),
                        accepts: <$type as Value>::accepts(),
                        default: shown,
                        meaning: concat!($($meaning),*).trim().to_owned(),
                    });
                    <$type as Value>::describe(&name, rows);
                })*
            }
        }
    };
}
pub(super) use section;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_name_is_suggested_and_nothing_far_fetched() {
        let known = ["interval_ms", "timeout_ms", "path"];
        assert_eq!(nearest("intervall_ms", &known), Some("interval_ms"));
        assert_eq!(nearest("timeoutms", &known), Some("timeout_ms"));
        assert_eq!(nearest("colour", &known), None);
    }
}
