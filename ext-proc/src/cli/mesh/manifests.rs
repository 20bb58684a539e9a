//! Documents of mesh manifests, of any kind.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use super::walk;

/// The largest file, in bytes. A configuration dump of a large gateway has some tens of megabytes.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Every document of the files, in order; the items of a `List` count as documents.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    pub(super) documents: Vec<Document>,
    /// Names and texts of the files.
    pub(super) texts: Vec<(String, String)>,
}

/// A Kubernetes object, an Envoy configuration or a configuration dump.
#[derive(Debug)]
pub(super) struct Document {
    file: PathBuf,
    /// Position among the documents of the file that are not empty, from 1.
    number: usize,
    pub(super) root: Value,
}

impl Manifests {
    /// Reads YAML and JSON files.
    pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut manifests = Self::default();
        for file in files {
            let text = text(file)?;
            manifests
                .add(file, &text)
                .with_context(|| format!("{} is neither YAML nor JSON", file.display()))?;
            manifests.texts.push((file.display().to_string(), text));
        }
        Ok(manifests)
    }

    /// Adds the documents of a file's text.
    pub(super) fn add(&mut self, file: &Path, text: &str) -> anyhow::Result<()> {
        let documents: Vec<Value> = if text.trim_start().starts_with('{') {
            serde_json::Deserializer::from_str(text)
                .into_iter()
                .collect::<Result<_, _>>()
                .or_else(|_| serde_saphyr::from_multiple(text))?
        } else {
            serde_saphyr::from_multiple(text)?
        };
        let documents = documents.into_iter().filter(|document| !document.is_null());
        for (number, document) in (1..).zip(documents) {
            let items = match document.get("items") {
                Some(Value::Array(items)) if is_list(&document) => items.clone(),
                _ => vec![document],
            };
            self.documents.extend(items.into_iter().map(|root| {
                let file = file.to_path_buf();
                Document { file, number, root }
            }));
        }
        Ok(())
    }

    /// The objects of a kind.
    pub(super) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Document> {
        let is_wanted = move |document: &&Document| document.kind() == kind;
        self.documents.iter().filter(is_wanted)
    }

    /// The object of a kind with this name in this namespace.
    pub(super) fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&Document> {
        self.documents.iter().find(|document| {
            document.kind() == kind && document.name() == name && document.namespace() == namespace
        })
    }

    /// The service's configurations in ConfigMaps.
    pub(super) fn service_configurations(&self) -> Vec<Value> {
        let maps = self.of_kind("ConfigMap");
        let texts = maps.flat_map(|map| walk::map(&map.root, "data").into_iter().flatten());
        let parsed = texts.filter_map(|(_, text)| serde_saphyr::from_str(text.as_str()?).ok());
        let is_service = |value: &Value| {
            let has = |member| value.get(member).is_some();
            has("pools") || (has("listen") && has("admin"))
        };
        parsed.filter(is_service).collect()
    }
}

fn is_list(document: &Value) -> bool {
    let kind = document.get("kind").and_then(Value::as_str);
    kind.is_some_and(|kind| kind.ends_with("List"))
}

fn text(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let opened = File::open(file).with_context(|| format!("cannot read {name}"))?;
    let mut text = String::new();
    let mut bounded = opened.take(FILE_BYTES_MAX + 1);
    bounded
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {name}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!("{name} is larger than {FILE_BYTES_MAX} bytes");
    }
    Ok(text)
}

impl Document {
    pub(super) fn kind(&self) -> &str {
        walk::text(&self.root, "kind").unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        walk::text(&self.root, "metadata.name").unwrap_or_default()
    }

    /// The namespace; `default` where none is written.
    pub(super) fn namespace(&self) -> &str {
        walk::text(&self.root, "metadata.namespace").unwrap_or("default")
    }

    /// The value of an annotation.
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        walk::at(&self.root, "metadata.annotations")?
            .get(name)?
            .as_str()
    }

    /// Where the document is, for messages.
    pub(super) fn place(&self) -> String {
        let place = format!("{}: document {}", self.file.display(), self.number);
        match (self.kind(), self.name()) {
            ("", _) => place,
            (kind, name) => format!("{place}, {kind} {}/{name}", self.namespace()),
        }
    }
}
