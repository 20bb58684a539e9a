//! A configuration file as a value that is edited by path.
//!
//! The input is YAML, the output JSON, which is YAML as well. A path is a list of steps, separated by `/`: a member's name,
//! an index, or `member=text` for the list element whose member has that text. An example:
//! `static_resources/clusters/name=llama/connect_timeout`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// A parsed configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document(pub Value);

impl Document {
    /// Parses YAML (or JSON).
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(Self(serde_saphyr::from_str(text)?))
    }

    /// Reads a file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not YAML", path.display()))
    }

    /// Writes the document as JSON.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        replace_file(path, &serde_json::to_string_pretty(&self.0)?)
    }

    /// The value at a path.
    pub fn get(&self, path: &str) -> anyhow::Result<&Value> {
        let child = |value, step| find(value, step).with_context(|| missing(step, path));
        path.split('/').try_fold(&self.0, child)
    }

    /// The value at a path, to be edited.
    pub fn get_mut(&mut self, path: &str) -> anyhow::Result<&mut Value> {
        let child = |value, step| find_mut(value, step).with_context(|| missing(step, path));
        path.split('/').try_fold(&mut self.0, child)
    }

    /// Replaces the value at a path. The last step may be a new member. Every step before it must exist, so an edit that no
    /// longer fits the file is an error instead of having no effect.
    pub fn set(&mut self, path: &str, value: impl Into<Value>) -> anyhow::Result<()> {
        let (parent, last) = self.parent(path)?;
        match parent {
            Value::Object(members) => {
                members.insert(last.to_owned(), value.into());
            }
            list => *find_mut(list, last).with_context(|| missing(last, path))? = value.into(),
        }
        Ok(())
    }

    /// Appends an element to the list at a path.
    pub fn push(&mut self, path: &str, value: impl Into<Value>) -> anyhow::Result<()> {
        match self.get_mut(path)? {
            Value::Array(elements) => elements.push(value.into()),
            other => bail!("{path} is not a list but {other}"),
        }
        Ok(())
    }

    /// Removes the member at a path.
    pub fn remove(&mut self, path: &str) -> anyhow::Result<Value> {
        let (parent, last) = self.parent(path)?;
        let members = parent.as_object_mut();
        members
            .and_then(|members| members.remove(last))
            .with_context(|| format!("no member {path}"))
    }

    fn parent<'a, 'p>(&'a mut self, path: &'p str) -> anyhow::Result<(&'a mut Value, &'p str)> {
        match path.rsplit_once('/') {
            Some((parent, last)) => Ok((self.get_mut(parent)?, last)),
            None => Ok((&mut self.0, path)),
        }
    }
}

/// Writes a file. The new file replaces the old one at once, so no reader sees a part of it.
pub(crate) fn replace_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn missing(step: &str, path: &str) -> String {
    format!("no `{step}` in {path}")
}

fn find<'a>(value: &'a Value, step: &str) -> Option<&'a Value> {
    match value {
        Value::Array(elements) => elements.get(index(elements, step)?),
        _ => value.get(step),
    }
}

fn find_mut<'a>(value: &'a mut Value, step: &str) -> Option<&'a mut Value> {
    match value.as_array() {
        Some(elements) => index(elements, step).and_then(|index| value.get_mut(index)),
        None => value.get_mut(step),
    }
}

fn index(elements: &[Value], step: &str) -> Option<usize> {
    match step.split_once('=') {
        Some((member, text)) => elements
            .iter()
            .position(|element| element.get(member).and_then(Value::as_str) == Some(text)),
        None => step.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        Document::parse("a:\n  - {name: first, port: 1}\n  - {name: second, port: 2}\n").unwrap()
    }

    #[test]
    fn a_path_selects_an_element_by_index_or_by_member() {
        assert_eq!(document().get("a/1/port").unwrap(), 2);
        assert_eq!(document().get("a/name=second/port").unwrap(), 2);
    }

    #[test]
    fn an_edit_changes_one_value() {
        let mut edited = document();
        edited.set("a/name=first/port", 7).unwrap();
        edited.set("a/name=first/new", true).unwrap();
        edited
            .push("a", serde_json::json!({"name": "third"}))
            .unwrap();
        assert_eq!(edited.remove("a/name=second/port").unwrap(), 2);
        let expected = "a: [{name: first, port: 7, new: true}, {name: second}, {name: third}]";
        assert_eq!(edited, Document::parse(expected).unwrap());
    }

    #[test]
    fn a_path_that_does_not_exist_is_an_error_that_names_the_step() {
        let error = document().set("a/name=q/port", 7).unwrap_err().to_string();
        assert_eq!(error, "no `name=q` in a/name=q");
        assert!(document().get("a/9").is_err());
        assert!(document().push("a/0", 1).is_err());
    }
}
