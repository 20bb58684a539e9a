//! Watches files for changes.
//!
//! The watcher watches folders, since editors replace a file by another of the same name, and Kubernetes replaces a symbolic
//! link further up. Some file systems (network file systems, some container mounts) report no changes, so the watcher also
//! compares the contents every few seconds. Rejected: comparing modification times, since two writes can share one.
//!
//! A change counts when two reads find the same: a writer on a slow disk pauses in the middle of a file. A read is bounded in time, and
//! only one is under way: the file may be on a mount that is gone. A pipe counts as unreadable.

use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use rustix::fs::OFlags;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Interval of the comparisons without a reported change.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time between the two reads that find the same, without a reported change: a writer may take several steps.
const QUIET: Duration = Duration::from_millis(1_500);
/// Bound on the wait for two such reads.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(10);
/// Bound on a read.
const READ_TIME_MAX: Duration = Duration::from_secs(5);

pub(crate) struct FileWatcher {
    files: Vec<PathBuf>,
    reported: Arc<Notify>,
    /// Hash of the contents at the last change; `None` before the first.
    last: Option<u64>,
    /// A read that has not ended.
    reading: Option<JoinHandle<u64>>,
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
            reading: None,
            _watcher: watcher,
        }
    }

    /// Waits until the contents differ from those at the last call. A file that becomes unreadable has changed, and has changed
    /// again when it becomes readable.
    pub(crate) async fn changed(&mut self) {
        loop {
            if self.last.is_some() {
                // The contents are compared after a report and after the interval.
                let _ = timeout(POLL_INTERVAL, self.reported.notified()).await;
            }
            let mut now = Some(self.contents().await);
            if self.last.is_some() && now != self.last {
                now = Some(self.settled(now).await);
            }
            if now != self.last {
                self.last = now;
                return;
            }
        }
    }

    /// Reads until two reads find the same contents, for a bounded time.
    async fn settled(&mut self, mut before: Option<u64>) -> u64 {
        let start = Instant::now();
        loop {
            let has_changed = timeout(QUIET, self.reported.notified()).await.is_ok();
            let now = self.contents().await;
            let is_quiet = !has_changed && before == Some(now);
            if is_quiet || start.elapsed() >= QUIET_WAIT_MAX {
                return now;
            }
            before = Some(now);
        }
    }

    /// Hash of the files' contents. A file that cannot be read, also not in time, counts as a content of its own.
    async fn contents(&mut self) -> u64 {
        let files = self.files.clone();
        let read = || tokio::task::spawn_blocking(move || contents(&files));
        let reading = self.reading.get_or_insert_with(read);
        let Ok(read) = timeout(READ_TIME_MAX, reading).await else {
            return UNREADABLE;
        };
        self.reading = None;
        read.unwrap_or(UNREADABLE)
    }
}

/// The hash of contents that were not read in time.
const UNREADABLE: u64 = 0;

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

/// Opens a file that has an end. A pipe may never have one, and opening it may wait for a writer.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options()
        .read(true)
        .custom_flags(nonblock)
        .open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other("not a regular file"))
}

/// Hash of the files' contents. A file that cannot be read counts as a content of its own.
fn contents(files: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        read(file).ok().hash(&mut hasher);
    }
    hasher.finish()
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    open_regular(path)?.read_to_end(&mut contents)?;
    Ok(contents)
}
