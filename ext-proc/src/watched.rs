//! Notices that files have changed.
//!
//! The folders are watched, not the files: editors replace a file by another of its name, and Kubernetes swaps a
//! link two steps away. Since some file systems (network ones, some containers' mounts) report nothing, the
//! contents are compared every few seconds as well; times were tried and rejected, since two writes can share one.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How often the contents are compared when nothing is reported.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long nothing must be reported before the files are read: they may be written in several steps.
const QUIET: Duration = Duration::from_millis(100);
/// How long reading is put off at most, however much is reported from the folders.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(1);

/// Files that are read together.
pub(crate) struct Watched {
    files: Vec<PathBuf>,
    reported: Arc<Notify>,
    seen: Option<u64>,
    _watcher: Option<RecommendedWatcher>,
}

impl Watched {
    /// Watches from now on. What changed before that is not known, so the first look always finds a change.
    pub(crate) fn new(files: impl Into<Vec<PathBuf>>) -> Self {
        let files = files.into();
        let reported = Arc::new(Notify::new());
        let watcher = watch(&files, Arc::clone(&reported))
            .inspect_err(|error| tracing::info!(%error, "file changes are noticed by polling only"))
            .ok();
        Self {
            files,
            reported,
            seen: None,
            _watcher: watcher,
        }
    }

    /// Waits until the contents of a file are others than at the last call. A file that cannot be read is one change,
    /// and one more when it can be read again.
    pub(crate) async fn changed(&mut self) {
        loop {
            if self.seen.is_some() {
                // Either way the contents are compared.
                if timeout(POLL_INTERVAL, self.reported.notified())
                    .await
                    .is_ok()
                {
                    self.settle().await;
                }
            }
            let now = Some(contents(&self.files).await);
            if now != self.seen {
                self.seen = now;
                return;
            }
        }
    }

    /// Waits until nothing has been reported for a while.
    async fn settle(&self) {
        let quiet = async { while timeout(QUIET, self.reported.notified()).await.is_ok() {} };
        // Out of patience: the files are read as they are now.
        let _ = timeout(QUIET_WAIT_MAX, quiet).await;
    }
}

fn watch(files: &[PathBuf], reported: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading a file is an event too, and would be followed by reading it again.
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

/// Stands for the files' contents. A file that cannot be read is a content, too.
async fn contents(files: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        tokio::fs::read(file).await.ok().hash(&mut hasher);
    }
    hasher.finish()
}
