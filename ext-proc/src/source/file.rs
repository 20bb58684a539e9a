//! Notices that the configuration file has changed.
//!
//! The folder is watched, not the file: editors replace a file by another of its name, and Kubernetes swaps a
//! link two steps away. Since some file systems (network ones, some containers' mounts) report nothing, the
//! contents are compared every few seconds as well; times were tried and rejected, since two writes can share one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::reload::Reloader;

/// How often the contents are compared when nothing is reported.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long nothing must be reported before the file is read: it may be written in several steps.
const QUIET: Duration = Duration::from_millis(100);
/// How long a reload is put off at most, however much is reported from the folder.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(1);

/// Reloads whenever the file's contents change.
pub(super) async fn follow(path: PathBuf, reloader: Arc<Reloader>) {
    let reported = Arc::new(Notify::new());
    let _watcher = watch(&path, Arc::clone(&reported))
        .inspect_err(|error| tracing::info!(%error, "file changes are noticed by polling only"))
        .ok();
    // The file may have changed since it was loaded: the first look reloads in any case.
    let mut seen = None;
    loop {
        let now = contents(&path).await;
        if now != seen {
            seen = now;
            // The outcome has been logged. A file that is gone is a mistake as well.
            let _ = reloader.reload("file changed").await;
        }
        // Either way the contents are compared.
        if timeout(POLL_INTERVAL, reported.notified()).await.is_ok() {
            settle(&reported).await;
        }
    }
}

/// Waits until nothing has been reported for a while.
async fn settle(reported: &Notify) {
    let quiet = async { while timeout(QUIET, reported.notified()).await.is_ok() {} };
    // Out of patience: the file is read as it is now.
    let _ = timeout(QUIET_WAIT_MAX, quiet).await;
}

fn watch(path: &Path, reported: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading the file is an event too, and would be followed by reading it again.
        if !event.is_ok_and(|event| event.kind.is_access()) {
            reported.notify_one();
        }
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Stands for the file's contents; `None` when it cannot be read.
async fn contents(path: &Path) -> Option<u64> {
    let bytes = tokio::fs::read(path).await.ok()?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Some(hasher.finish())
}
