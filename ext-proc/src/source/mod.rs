//! Where replicas and configuration come from, and how changes of either reach the running service.
//!
//! - Replicas of the file: a fixed list, and the addresses of a name that is resolved again and again.
//! - The file itself: it is applied again when it changes, on SIGHUP, and when the admin interface is asked to
//!   ([`Reloader`]). A file with mistakes is refused as a whole, every one is logged, and what runs stays.
//!
//! Replicas that were added through the admin interface belong to whoever added them: nothing here removes them.

mod file;
mod reload;
mod replicas;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::{AbortHandle, JoinHandle};

use crate::config::Config;
use crate::pool::PoolRegistry;
use crate::tasks;

pub use reload::{ReloadError, Reloaded, Reloader};

/// The sources at work. They stop when this is dropped.
#[derive(Debug)]
pub struct Source {
    reloader: Arc<Reloader>,
    tasks: Vec<AbortHandle>,
}

impl Source {
    /// Feeds `pool_registry`, which already has the pools of `config`, with their replicas; with a `file`, follows it.
    /// Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(pool_registry: &Arc<PoolRegistry>, config: Config, file: Option<PathBuf>) -> Self {
        let reloader = Arc::new(Reloader::new(Arc::clone(pool_registry), config, file));
        let replicas = tasks::for_each_pool(pool_registry, replicas::follow);
        let mut tasks = vec![replicas.abort_handle()];
        if let Some(path) = reloader.file() {
            let path = path.to_owned();
            tasks.push(spawn(file::follow(path, Arc::clone(&reloader))));
            match reload::on_signal(Arc::clone(&reloader)) {
                Ok(work) => tasks.push(spawn(work)),
                Err(error) => tracing::warn!(
                    %error,
                    "SIGHUP cannot be watched: reload through the file or the admin interface"
                ),
            }
        }
        Self { reloader, tasks }
    }

    /// What applies the file again.
    #[must_use]
    pub fn reloader(&self) -> &Arc<Reloader> {
        &self.reloader
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn spawn(work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    let task: JoinHandle<()> = tokio::spawn(work);
    task.abort_handle()
}
