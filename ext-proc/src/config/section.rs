//! Sections of the file, each declared once.
//!
//! [`section!`] turns one declaration (the name, kind, default and meaning of each option) into the struct, the parser,
//! and the rows of the reference. So a default, a range or a meaning is written down once, and the reference cannot
//! drift from the parser.

use super::errors::{Reader, SourceLocation};
use super::kind::Kind;
use super::tree::{Data, Node};

/// The largest edit distance between an unknown name and the option that is suggested for it.
const SUGGESTION_EDITS_MAX: usize = 3;

pub(super) struct Members<'a> {
    section: &'a str,
    members: &'a [(String, SourceLocation, Node)],
}

impl<'a> Members<'a> {
    /// Opens a section that has the options `known`, and reports its unknown members; `None` if `node` is not a section.
    pub(super) fn open(
        node: &'a Node,
        section: &'a str,
        known: &[&str],
        reader: &mut Reader,
    ) -> Option<Self> {
        let members: &[_] = match &node.data {
            Data::Section(members) => members,
            Data::Null => &[],
            other => {
                let (known, found) = (known.join(", "), other.describe());
                let message = format!("expected a section with the options {known}; found {found}");
                reader.error_at(Some(node.location), section, message);
                return None;
            }
        };
        for (name, location, _) in members {
            if !known.contains(&name.as_str()) {
                let message = match nearest(name, known) {
                    Some(near) => format!("unknown option; did you mean `{near}`?"),
                    None => format!("unknown option (this section has {})", known.join(", ")),
                };
                reader.error_at(Some(*location), &join(section, name), message);
            }
        }
        Some(Self { section, members })
    }

    /// Returns the value of `name`, or `default` if it is absent, null or invalid.
    pub(super) fn take<T: 'static>(
        &self,
        name: &str,
        kind: &Kind<T>,
        default: impl FnOnce() -> T,
        reader: &mut Reader,
    ) -> T {
        let option = join(self.section, name);
        let given = self.members.iter().find(|(given, ..)| given == name);
        let given = given.filter(|(_, _, node)| !matches!(node.data, Data::Null));
        let Some((_, _, node)) = given else {
            if kind.is_required {
                reader.error(&option, "must be given");
                reader.invalid(&option);
            }
            return default();
        };
        reader.found(&option, node.location);
        (kind.parse)(node, &option, reader).unwrap_or_else(|| {
            reader.invalid(&option);
            default()
        })
    }
}

/// `section.name`, or `name` at the top of the file.
pub(super) fn join(section: &str, name: &str) -> String {
    match section {
        "" => name.to_owned(),
        _ => format!("{section}.{name}"),
    }
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::levenshtein(name, candidate), *candidate))
        .filter(|(edits, candidate)| *edits <= SUGGESTION_EDITS_MAX.min(candidate.len() / 2))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Declares a section: `field as "option": Type = default, kind` for each option, its meaning as the doc comment.
/// `=> "text"` at the end describes a default that has no constant value.
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        $vis:vis struct $section:ident {
            $(
                $(#[doc = $meaning:literal])*
                $field:ident as $option:literal: $type:ty = $default:expr, $kind:expr $(=> $shown:literal)?;
            )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis struct $section {
            $($(#[doc = $meaning])* $vis $field: $type,)*
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::config::kind::Section for $section {
            fn parse(
                node: &$crate::config::tree::Node,
                option: &str,
                reader: &mut $crate::config::errors::Reader,
            ) -> Option<Self> {
                let known = [$($option),*];
                let members = $crate::config::section::Members::open(node, option, &known, reader)?;
                Some(Self {
                    $($field: members.take($option, &$kind, || $default, reader),)*
                })
            }

            fn schema() -> serde_json::Value {
                let mut schema = $crate::config::json_schema::SectionSchema::default();
                $({
                    let kind = $kind;
                    // The type of the option is that of its kind.
                    let _: &$crate::config::kind::Kind<$type> = &kind;
                    let meaning = concat!($($meaning),*).trim().to_owned();
                    schema.add($option, &kind.shape, kind.is_required, meaning);
                })*
                schema.finish()
            }

            fn describe(option: &str, rows: &mut Vec<$crate::config::kind::Row>) {
                $({
                    let option = $crate::config::section::join(option, $option);
                    let kind = $kind;
                    let default: $type = $default;
                    let shown: Option<&str> = [$($shown,)?].first().copied();
                    rows.push($crate::config::kind::Row {
                        option: option.clone(),
                        default: match shown {
                            Some(shown) => shown.to_owned(),
                            None if kind.is_required => "must be given".to_owned(),
                            None => (kind.show)(&default),
                        },
                        accepts: kind.accepts.clone(),
                        meaning: concat!($($meaning),*).trim().to_owned(),
                    });
                    kind.describe(&option, rows);
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
    fn the_nearest_known_name_is_suggested_and_no_distant_one() {
        let known = ["interval_ms", "timeout_ms", "path"];
        assert_eq!(nearest("intervall_ms", &known), Some("interval_ms"));
        assert_eq!(nearest("timeoutms", &known), Some("timeout_ms"));
        assert_eq!(nearest("colour", &known), None);
    }
}
