//! A configuration file as a value that is edited by path.
//!
//! YAML in, JSON out (which every YAML reader reads). A path is a list of steps with `/` between them: a member's
//! name, an index, or `member=text` for the element of a list whose member has that text, for example
//! `static_resources/clusters/name=llama/connect_timeout`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// A parsed configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document(Value);

impl From<Value> for Document {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

impl Document {
    /// Parses YAML (or JSON).
    ///
    /// # Errors
    /// Where it is not YAML.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(Self(serde_saphyr::from_str(text)?))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or is not YAML.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not YAML", path.display()))
    }

    /// Writes it as JSON: into a new file that then takes the place of the old one, so that nobody reads half of it.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.0)?;
        let new = path.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// What is at a path.
    ///
    /// # Errors
    /// When the path leads nowhere; the message names the step.
    pub fn get(&self, path: &str) -> anyhow::Result<&Value> {
        let mut here = &self.0;
        for step in path.split('/') {
            here = find(here, step).with_context(|| format!("no `{step}` in {path}"))?;
        }
        Ok(here)
    }

    /// What is at a path, to be changed.
    ///
    /// # Errors
    /// When the path leads nowhere; the message names the step.
    pub fn get_mut(&mut self, path: &str) -> anyhow::Result<&mut Value> {
        let mut here = &mut self.0;
        for step in path.split('/') {
            here = find_mut(here, step).with_context(|| format!("no `{step}` in {path}"))?;
        }
        Ok(here)
    }

    /// Replaces what is at a path. The last step may be a member that did not exist; nothing before it may be missing,
    /// so an edit that the file has outgrown is an error and not silently ineffective.
    ///
    /// # Errors
    /// When the path leads nowhere.
    pub fn set(&mut self, path: &str, value: impl Into<Value>) -> anyhow::Result<()> {
        let (parent, last) = self.parent(path)?;
        match parent {
            Value::Object(members) => {
                members.insert(last.to_owned(), value.into());
            }
            list => {
                *find_mut(list, last).with_context(|| format!("no `{last}` in {path}"))? =
                    value.into()
            }
        }
        Ok(())
    }

    /// Adds an element to the list at a path.
    ///
    /// # Errors
    /// When there is no list.
    pub fn push(&mut self, path: &str, value: impl Into<Value>) -> anyhow::Result<()> {
        match self.get_mut(path)? {
            Value::Array(elements) => elements.push(value.into()),
            other => bail!("{path} is no list but {other}"),
        }
        Ok(())
    }

    /// Takes a member away.
    ///
    /// # Errors
    /// When there is none.
    pub fn remove(&mut self, path: &str) -> anyhow::Result<Value> {
        let (parent, last) = self.parent(path)?;
        let removed = parent
            .as_object_mut()
            .and_then(|members| members.remove(last));
        removed.with_context(|| format!("no member {path}"))
    }

    /// The whole document.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0
    }

    fn parent<'a, 'p>(&'a mut self, path: &'p str) -> anyhow::Result<(&'a mut Value, &'p str)> {
        match path.rsplit_once('/') {
            Some((parent, last)) => Ok((self.get_mut(parent)?, last)),
            None => Ok((&mut self.0, path)),
        }
    }
}

fn find<'a>(here: &'a Value, step: &str) -> Option<&'a Value> {
    match here {
        Value::Object(members) => members.get(step),
        Value::Array(elements) => elements.get(index(elements, step)?),
        _ => None,
    }
}

fn find_mut<'a>(here: &'a mut Value, step: &str) -> Option<&'a mut Value> {
    match here {
        Value::Object(members) => members.get_mut(step),
        Value::Array(elements) => {
            let index = index(elements, step)?;
            elements.get_mut(index)
        }
        _ => None,
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
    fn an_element_is_found_by_index_and_by_member() {
        assert_eq!(document().get("a/1/port").unwrap(), 2);
        assert_eq!(document().get("a/name=second/port").unwrap(), 2);
    }

    #[test]
    fn an_edit_changes_one_value_and_nothing_else() {
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
    fn a_path_that_leads_nowhere_is_an_error_that_names_the_step() {
        let error = document().set("a/name=q/port", 7).unwrap_err().to_string();
        assert_eq!(error, "no `name=q` in a/name=q");
        assert!(document().get("a/9").is_err());
        assert!(document().push("a/0", 1).is_err());
    }
}
