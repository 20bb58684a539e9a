//! Mistakes of a configuration file: all of them, each with its option and its line.
//!
//! An operator who learns one mistake per attempt restarts a service ten times; so reading never stops at the first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

/// The longest line of a file that is shown with a mistake, in characters.
const SNIPPET_CHARACTERS_MAX: usize = 160;

/// A position in a file; line and column count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLocation {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The mistake's location; `None` if it concerns the whole file (the file cannot be read).
    pub location: Option<SourceLocation>,
    /// The option, such as `pools[1].probe.interval_ms`; empty if the mistake concerns the whole file.
    pub option: String,
    /// The mistake, and what to write instead.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(SourceLocation { line, column }) = self.location {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.option.is_empty() {
            write!(f, "{}: ", self.option)?;
        }
        f.write_str(&self.message)
    }
}

/// Every mistake of one file, in the order of its lines. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file, unless the text came from elsewhere.
    pub file: Option<PathBuf>,
    /// The mistakes.
    pub errors: Vec<ConfigError>,
}

impl ConfigErrors {
    /// Creates the error of a file that cannot be read.
    pub(super) fn unreadable(message: String) -> Self {
        let mut reader = Reader::default();
        reader.error_at(None, "", message);
        Self {
            file: None,
            errors: reader.errors,
        }
    }
}

impl ConfigErrors {
    /// Renders the mistakes, each with the line of `text` that has it and a mark below the place.
    pub fn annotated(&self, text: &str) -> String {
        let mut rendered = self.heading();
        for error in &self.errors {
            rendered.push_str(&format!("\n  {error}"));
            if let Some(snippet) = error.location.and_then(|at| snippet(at, text)) {
                rendered.push_str(&snippet);
            }
        }
        rendered
    }

    fn heading(&self) -> String {
        let count = self.errors.len();
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        match &self.file {
            Some(file) => format!("{}: {count} {noun}", file.display()),
            None => format!("configuration: {count} {noun}"),
        }
    }
}

/// The line of a place, and a mark below its column; `None` for a line that is too long to read.
fn snippet(location: SourceLocation, text: &str) -> Option<String> {
    let SourceLocation { line, column } = location;
    let index = usize::try_from(line).ok()?.checked_sub(1)?;
    let source = text.lines().nth(index)?;
    let before = usize::try_from(column).ok()?.checked_sub(1)?;
    if source.chars().count() > SNIPPET_CHARACTERS_MAX || source.trim().is_empty() {
        return None;
    }
    // A tab keeps its width below itself.
    let indent: String = source
        .chars()
        .take(before)
        .map(|character| if character == '\t' { '\t' } else { ' ' })
        .collect();
    let margin = " ".repeat(line.to_string().len());
    Some(format!("\n    {line} | {source}\n    {margin} | {indent}^"))
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.heading())?;
        for error in &self.errors {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// The progress of reading a file: the location of each option, and the mistakes found.
#[derive(Debug, Default)]
pub(super) struct Reader {
    locations: BTreeMap<String, SourceLocation>,
    /// Names of the valid entries of each list.
    entries: BTreeMap<String, Vec<String>>,
    invalid: BTreeSet<String>,
    errors: Vec<ConfigError>,
}

impl Reader {
    /// Records that the file gives `option`.
    pub(super) fn found(&mut self, option: &str, location: SourceLocation) {
        self.locations.insert(option.to_owned(), location);
    }

    /// Records a valid entry of the list `option`.
    pub(super) fn found_entry(&mut self, option: &str, entry: String) {
        let entries = self.entries.entry(option.to_owned());
        entries.or_default().push(entry);
    }

    /// Returns the values of the list `option`, each with the name of its entry, such as `pools[1]`.
    pub(super) fn entries<'a, T>(&self, option: &str, values: &'a [T]) -> Vec<(String, &'a T)> {
        let mut names = self.entries.get(option).into_iter().flatten().cloned();
        // A default has no entries in the file.
        let mut name = || names.next().unwrap_or_else(|| option.to_owned());
        values.iter().map(|value| (name(), value)).collect()
    }

    /// Records that the value of `option` is invalid, so that its default stands in for it.
    pub(super) fn invalid(&mut self, option: &str) {
        self.invalid.insert(option.to_owned());
    }

    pub(super) fn is_given(&self, option: &str) -> bool {
        self.locations.contains_key(option)
    }

    /// Whether the value of `option` is the file's, or the default of an absent option.
    pub(super) fn is_valid(&self, option: &str) -> bool {
        !self.invalid.contains(option)
    }

    /// Returns the location of `option`, or of the nearest section around it that the file has.
    pub(super) fn location(&self, option: &str) -> Option<SourceLocation> {
        let mut option = option;
        loop {
            if let Some(location) = self.locations.get(option) {
                return Some(*location);
            }
            option = option.get(..option.rfind(['.', '['])?)?;
        }
    }

    /// Records a mistake in `option`, at its location.
    pub(super) fn error(&mut self, option: &str, message: impl Into<String>) {
        self.error_at(self.location(option), option, message);
    }

    pub(super) fn error_at(
        &mut self,
        location: Option<SourceLocation>,
        option: &str,
        message: impl Into<String>,
    ) {
        self.errors.push(ConfigError {
            location,
            option: option.to_owned(),
            message: message.into(),
        });
    }

    /// Returns `value` if there is no mistake, else all mistakes in the order of their lines.
    pub(super) fn finish<T>(mut self, value: T) -> Result<T, ConfigErrors> {
        if self.errors.is_empty() {
            return Ok(value);
        }
        self.errors.sort_by_key(|error| error.location);
        Err(ConfigErrors {
            file: None,
            errors: self.errors,
        })
    }
}

/// Names of which each may be used once.
pub(super) struct UniqueNames {
    noun: &'static str,
    taken: BTreeMap<String, String>,
}

impl UniqueNames {
    /// Creates an empty set; `noun` says what the names name.
    pub(super) fn new(noun: &'static str) -> Self {
        Self {
            noun,
            taken: BTreeMap::new(),
        }
    }

    /// Takes `name` for `option`, unless another option has it. An invalid option takes nothing.
    pub(super) fn reserve(&mut self, name: impl ToString, option: &str, reader: &Reader) {
        if reader.is_valid(option) {
            let entry = self.taken.entry(name.to_string());
            entry.or_insert_with(|| option.to_owned());
        }
    }

    /// Takes `name` for `option`; records a mistake if another option has it. An invalid option takes nothing.
    pub(super) fn claim(&mut self, name: impl ToString, option: &str, reader: &mut Reader) {
        let name = name.to_string();
        self.reserve(&name, option, reader);
        let Some(first) = self.taken.get(&name).filter(|first| *first != option) else {
            return;
        };
        if !reader.is_valid(option) {
            return;
        }
        let line = reader.location(first);
        let line = line.map_or_else(String::new, |location| format!(", line {}", location.line));
        let message = format!("the {} `{name}` is taken by {first}{line}", self.noun);
        reader.error(option, message);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    #[test]
    fn a_mistake_is_shown_with_its_line_and_a_mark_below_its_place() {
        let text = "pools:\n  - model: a\n    ttft_slo_ms: 5s\n";
        let shown = parse(text).unwrap_err().annotated(text);
        let mark = "\n    3 |     ttft_slo_ms: 5s\n      |                  ^";
        assert!(shown.contains(mark), "{shown}");
    }

    #[test]
    fn broken_syntax_is_shown_with_its_line() {
        let text = "a: 1\nb: [1, 2\nc: }\n";
        let shown = parse(text).unwrap_err().annotated(text);
        assert!(shown.contains("\n    3 | c: }\n"), "{shown}");
    }

    #[test]
    fn a_line_that_is_too_long_is_named_only() {
        let text = format!("colour: {}\n", "x".repeat(1_000));
        let shown = parse(&text).unwrap_err().annotated(&text);
        assert!(!shown.contains("xxx"), "{shown}");
    }
}
