//! Watches files for changes.
//!
//! The watcher watches folders, since editors replace a file by another of the same name, and Kubernetes replaces a symbolic
//! link further up. Some file systems (network file systems, some container mounts) report no changes, so the watcher also
//! compares the contents every few seconds. Rejected: comparing modification times, since two writes can share one.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Interval of the comparisons without a reported change.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Pause after the last reported change before the files are read: a writer may take several steps.
const QUIET: Duration = Duration::from_millis(100);
/// Bound on the wait for such a pause.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(1);

pub(crate) struct FileWatcher {
    files: Vec<PathBuf>,
    reported: Arc<Notify>,
    /// Hash of the contents at the last change; `None` before the first.
    last: Option<u64>,
    _watcher: Option<RecommendedWatcher>,
}

impl FileWatcher {
    /// Starts to watch. The first call of [`Self::changed`] returns at once.
    pub(crate) fn new(files: impl Into<Vec<PathBuf>>) -> Self {
        let files = files.into();
        let reported = Arc::new(Notify::new());
        let watcher = watch(&files, Arc::clone(&reported))
            .inspect_err(|error| tracing::info!(%error, "file changes are noticed by polling only"))
            .ok();
        Self {
            files,
            reported,
            last: None,
            _watcher: watcher,
        }
    }

    /// Waits until the contents differ from those at the last call. A file that becomes unreadable has changed, and has changed
    /// again when it becomes readable.
    pub(crate) async fn changed(&mut self) {
        loop {
            if self.last.is_some() {
                // The contents are compared after a report and after the interval.
                if timeout(POLL_INTERVAL, self.reported.notified())
                    .await
                    .is_ok()
                {
                    self.settle().await;
                }
            }
            let now = Some(contents(&self.files).await);
            if now != self.last {
                self.last = now;
                return;
            }
        }
    }

    /// Waits for a pause in the reported changes.
    async fn settle(&self) {
        let quiet = async { while timeout(QUIET, self.reported.notified()).await.is_ok() {} };
        // After the bound the files are read in any case.
        let _ = timeout(QUIET_WAIT_MAX, quiet).await;
    }
}

fn watch(files: &[PathBuf], reported: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading a file is an event, too, and must not cause another read.
        if !event.is_ok_and(|event| event.kind.is_access()) {
            reported.notify_one();
        }
    })?;
    let folders: BTreeSet<&Path> = files.iter().map(|file| folder(file)).collect();
    for folder in folders {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Hash of the files' contents. A file that cannot be read counts as a content of its own.
async fn contents(files: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        tokio::fs::read(file).await.ok().hash(&mut hasher);
    }
    hasher.finish()
}
