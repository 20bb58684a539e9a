//! Values that are read from files, and read again when the files change.

use std::fmt::{Debug, Formatter};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::file_watcher::FileWatcher;
use crate::tasks::AbortOnPanic;

/// A value from files. While the files are invalid, the previous value stays in use.
pub(crate) struct ReloadedValue<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> anyhow::Result<T> + Send + Sync>,
    current: RwLock<Arc<T>>,
    loads: AtomicU64,
    failures: AtomicU64,
}

impl<T: Send + Sync + 'static> ReloadedValue<T> {
    /// Reads the value. `files` are the files that `read` reads.
    /// Fails when the files are invalid.
    pub(crate) fn load(
        files: Vec<PathBuf>,
        read: impl Fn() -> anyhow::Result<T> + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            files,
            current: RwLock::new(Arc::new(read()?)),
            read: Box::new(read),
            loads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read())
    }

    /// The number of successful and of failed reloads.
    pub(crate) fn reloads(&self) -> (u64, u64) {
        let [loads, failures] = [&self.loads, &self.failures].map(|n| n.load(Ordering::Relaxed));
        (loads, failures)
    }

    /// Reads the files again at each change. Never returns, unless there are no files.
    pub(crate) async fn follow(self: Arc<Self>) {
        if self.files.is_empty() {
            return;
        }
        let mut watcher = FileWatcher::new(self.files.clone());
        loop {
            watcher.changed().await;
            let this = Arc::clone(&self);
            let read = tokio::task::spawn_blocking(move || {
                let _abort = AbortOnPanic("TLS files");
                (this.read)()
            });
            let read = read.await;
            // The runtime is shutting down.
            let Ok(read) = read else { return };
            let files = &self.files;
            match read {
                Ok(value) => {
                    *self.current.write() = Arc::new(value);
                    self.loads.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(?files, "TLS files read again");
                }
                Err(error) => {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    let error = format!("{error:#}");
                    tracing::error!(
                        ?files,
                        error,
                        "changed TLS files are invalid; the previous ones stay in use until they expire"
                    );
                }
            }
        }
    }
}

impl<T> Debug for ReloadedValue<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let mut reloaded = f.debug_struct("ReloadedValue");
        reloaded.field("files", &self.files).finish_non_exhaustive()
    }
}
