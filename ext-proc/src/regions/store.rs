//! The state file: the records of the regions, which survive a restart.
//!
//! The file is JSON. It is written beside the old one and renamed over it, so that a crash leaves the old or the new one.
//! Writes are batched, since records change often. An unreadable file is moved aside with an error in the log and never
//! stops a start: the regions that live send their records again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use isotherm_regions::{RegionName, RegionRecord};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

const FORMAT: u32 = 1;
/// Largest file that is read or written, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Limit of records in the file: all peers and this region.
const RECORDS_MAX: usize = 257;
/// Shortest time between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

type Records = BTreeMap<RegionName, Arc<RegionRecord>>;

/// Records for the state file, which a [`RecordWriter`] writes.
#[derive(Debug)]
pub(super) struct RecordStore(watch::Sender<Arc<Records>>);

impl RecordStore {
    /// Opens the state file of `region` and returns its records. Without a file, no record is persisted.
    pub(super) fn open(
        file: Option<PathBuf>,
        region: &str,
    ) -> (Self, RecordWriter, Vec<Arc<RegionRecord>>) {
        let records = file.as_deref().map(|file| read_or_move_aside(file, region));
        let records = records.unwrap_or_default();
        let known = records
            .iter()
            .map(|record| (record.region.clone(), Arc::clone(record)))
            .collect();
        let (sender, receiver) = watch::channel(Arc::new(known));
        let writer = RecordWriter {
            region: region.to_owned(),
            file,
            records: receiver,
        };
        (Self(sender), writer, records)
    }

    /// Stores a record in place of an older one of the same region. Records of regions that are not `known` stay while the limit
    /// allows it, since such a region may come back.
    pub(super) fn insert(&self, record: Arc<RegionRecord>, known: impl Fn(&RegionName) -> bool) {
        self.0.send_modify(|records| {
            let records = Arc::make_mut(records);
            records.insert(record.region.clone(), record);
            if records.len() > RECORDS_MAX {
                records.retain(|region, _| known(region));
            }
        });
    }
}

/// Writes the file whenever the records change.
#[derive(Debug)]
pub(super) struct RecordWriter {
    region: String,
    file: Option<PathBuf>,
    records: watch::Receiver<Arc<Records>>,
}

impl RecordWriter {
    /// Runs until the [`RecordStore`] is dropped, and writes its last records.
    pub(super) async fn run(mut self) {
        let Some(file) = self.file else { return };
        let mut failing = false;
        loop {
            let last = self.records.changed().await.is_err();
            if last && !self.records.has_changed().unwrap_or(true) {
                return;
            }
            let records = Arc::clone(&self.records.borrow_and_update());
            let (to, region) = (file.clone(), self.region.clone());
            let written = tokio::task::spawn_blocking(move || write(&to, &region, &records));
            let written = written.await.unwrap_or_else(|error| Err(error.into()));
            match written {
                Ok(()) if failing => {
                    failing = false;
                    tracing::info!(file = %file.display(), "the state file is written again");
                }
                Ok(()) => {}
                Err(error) => {
                    if !failing {
                        tracing::error!(file = %file.display(), error = %format!("{error:#}"),
                            "cannot write the state file: a restart will not know the replicas of other regions");
                    }
                    failing = true;
                }
            }
            if last {
                return;
            }
            tokio::time::sleep(WRITE_INTERVAL).await;
        }
    }
}

fn read_or_move_aside(file: &Path, region: &str) -> Vec<Arc<RegionRecord>> {
    match read(file, region) {
        Ok(records) => records,
        Err(error) => {
            let aside = beside(file, "broken");
            let moved = std::fs::rename(file, &aside);
            tracing::error!(
                file = %file.display(),
                error = %format!("{error:#}"),
                moved_to = %aside.display(),
                move_failed = moved.err().map(|error| error.to_string()),
                "the state file is unreadable and was moved aside; the regions that live send their records again"
            );
            Vec::new()
        }
    }
}

fn read(file: &Path, region: &str) -> anyhow::Result<Vec<Arc<RegionRecord>>> {
    let opened = match File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut text = Vec::new();
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    ensure!(
        text.len() as u64 <= FILE_BYTES_MAX,
        "larger than {FILE_BYTES_MAX} bytes"
    );
    let Format { format } = serde_json::from_slice(&text).context("not a state file")?;
    if format != FORMAT {
        bail!("format {format}, where this version writes {FORMAT}");
    }
    let state: State = serde_json::from_slice(&text)?;
    ensure!(
        state.region == region,
        "it belongs to the region `{}`, and this is `{region}`",
        state.region
    );
    ensure!(
        state.records.len() <= RECORDS_MAX,
        "more than {RECORDS_MAX} regions"
    );
    Ok(state.records)
}

fn write(file: &Path, region: &str, records: &Records) -> anyhow::Result<()> {
    let state = State {
        format: FORMAT,
        region: region.to_owned(),
        records: records.values().cloned().collect(),
    };
    let text = serde_json::to_vec(&state)?;
    ensure!(
        text.len() as u64 <= FILE_BYTES_MAX,
        "it would have more than {FILE_BYTES_MAX} bytes"
    );
    let new = beside(file, "new");
    let mut opened =
        File::create(&new).with_context(|| format!("cannot write {}", new.display()))?;
    opened.write_all(&text)?;
    opened.sync_all()?;
    std::fs::rename(&new, file)?;
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    // The new name must survive a power failure too; some file systems cannot promise it.
    drop(File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()));
    Ok(())
}

/// Returns `file` with another ending added.
fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Fields of every version of the format.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct State {
    format: u32,
    region: String,
    records: Vec<Arc<RegionRecord>>,
}

#[cfg(test)]
mod tests {
    use isotherm_regions::{PoolReplicas, SuccessorList};

    use super::*;

    fn record(region: &str, version: u64) -> RegionRecord {
        RegionRecord {
            region: region.into(),
            version,
            pools: vec![PoolReplicas {
                model: "m".into(),
                replicas: vec!["10.0.0.1:8000".into()],
            }],
            successors: SuccessorList {
                version: 7,
                order: vec!["us".into(), "asia".into()],
                previous: Some(vec!["asia".into()]),
            },
        }
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        (folder, file)
    }

    #[tokio::test]
    async fn the_last_records_survive_a_restart() {
        let (_folder, file) = folder();
        let (store, writer, records) = RecordStore::open(Some(file.clone()), "us");
        assert!(records.is_empty());
        for (region, version) in [("eu", 1), ("asia", 1), ("eu", 2)] {
            store.insert(Arc::new(record(region, version)), |_| true);
        }
        let running = tokio::spawn(writer.run());
        drop(store);
        running.await.unwrap();
        let (store, _, records) = RecordStore::open(Some(file), "us");
        assert_eq!(records, [record("asia", 1), record("eu", 2)].map(Arc::new));
        drop(store);
    }

    #[test]
    fn records_of_unknown_regions_are_dropped_at_the_limit() {
        let (store, ..) = RecordStore::open(None, "us");
        for n in 0..RECORDS_MAX {
            store.insert(Arc::new(record(&format!("r{n}"), 1)), |_| true);
        }
        assert_eq!(store.0.borrow().len(), RECORDS_MAX);
        let known = |region: &RegionName| matches!(region.as_str(), "r1" | "new");
        store.insert(Arc::new(record("new", 1)), known);
        assert_eq!(store.0.borrow().len(), 2);
    }

    #[tokio::test]
    async fn an_invalid_file_is_moved_aside() {
        for text in [
            "",
            "{",
            "[]",
            "{\"format\":2}",
            "{\"format\":1,\"region\":\"eu\",\"records\":[]}",
            "{\"format\":1,\"region\":\"us\",\"records\":[{\"region\":\"eu\"}]}",
        ] {
            let (folder, file) = folder();
            std::fs::write(&file, text).unwrap();
            let (.., records) = RecordStore::open(Some(file.clone()), "us");
            assert!(records.is_empty(), "{text}");
            assert!(!file.exists(), "{text}");
            let aside = std::fs::read_to_string(folder.path().join("state.json.broken"));
            assert_eq!(aside.unwrap(), text);
        }
    }

    #[tokio::test]
    async fn an_unwritable_folder_is_no_failure() {
        let (store, writer, _) = RecordStore::open(Some("/nowhere/at/all.json".into()), "us");
        store.insert(Arc::new(record("eu", 1)), |_| true);
        drop(store);
        writer.run().await;
    }
}
