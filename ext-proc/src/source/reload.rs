//! Applies the configuration file again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::config::{self, Config, ConfigErrors, RegionConfig};
use crate::pool::PoolRegistry;

/// Applies the file again, one reload at a time.
#[derive(Debug)]
pub struct Reloader {
    pool_registry: Arc<PoolRegistry>,
    file: Option<PathBuf>,
    config: watch::Sender<Arc<Config>>,
    /// Two reloads at once could apply an old file after a new one.
    turn: Mutex<()>,
}

/// A reload that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Whether anything is different now.
    pub changed: bool,
    /// Options that differ, and that only a restart applies.
    pub restart_needed_for: Vec<&'static str>,
}

/// Why a reload was refused. What ran before still runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The service was started without a file.
    #[error(
        "the service runs without a configuration file: start it with --config FILE to be able to reload"
    )]
    NoFile,
    /// The file is empty: it is more likely being written than meant to say nothing.
    #[error("{}: empty; write `{{}}` where the defaults are meant", .0.display())]
    Empty(PathBuf),
    /// The file has mistakes.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The runtime does not take the work.
    #[error("the service is stopping")]
    Stopping,
}

impl Reloader {
    pub(super) fn new(
        pool_registry: Arc<PoolRegistry>,
        config: Config,
        file: Option<PathBuf>,
    ) -> Self {
        Self {
            pool_registry,
            file,
            config: watch::Sender::new(Arc::new(config)),
            turn: Mutex::new(()),
        }
    }

    /// The file, where there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The configuration that was applied last, now and whenever it changes.
    #[must_use]
    pub fn config(&self) -> watch::Receiver<Arc<Config>> {
        self.config.subscribe()
    }

    /// Reads the file and applies it. Logs what happened; `cause` says why it was tried.
    ///
    /// # Errors
    ///
    /// Every mistake of the file. Then nothing has changed.
    pub async fn reload(self: &Arc<Self>, cause: &'static str) -> Result<Reloaded, ReloadError> {
        let this = Arc::clone(self);
        let result = tokio::task::spawn_blocking(move || this.reload_blocking()).await;
        let result = result.unwrap_or(Err(ReloadError::Stopping));
        match &result {
            Ok(Reloaded { changed: false, .. }) => {
                tracing::debug!(cause, "configuration unchanged")
            }
            Ok(reloaded) => {
                tracing::info!(cause, "configuration applied");
                for option in &reloaded.restart_needed_for {
                    tracing::warn!(option, "changed, but only a restart applies this option");
                }
            }
            Err(ReloadError::Config(errors)) => {
                for error in &errors.errors {
                    tracing::error!(cause, %error, "configuration refused");
                }
            }
            Err(error) => tracing::error!(cause, %error, "configuration refused"),
        }
        result
    }

    fn reload_blocking(&self) -> Result<Reloaded, ReloadError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.file.as_ref().ok_or(ReloadError::NoFile)?;
        let old = Arc::clone(&self.config.borrow());
        let new = config::load(path)?;
        if std::fs::metadata(path).is_ok_and(|file| file.len() == 0) && *old != new {
            return Err(ReloadError::Empty(path.clone()));
        }
        let changed = *old != new;
        if changed {
            self.pool_registry.apply(&new);
        }
        let reloaded = Reloaded {
            changed,
            restart_needed_for: restart_needed_for(&old, &new),
        };
        self.config.send_replace(Arc::new(new));
        Ok(reloaded)
    }
}

/// What differs of what is read only once: sockets stay open as they are.
fn restart_needed_for(old: &Config, new: &Config) -> Vec<&'static str> {
    let region = |differs: fn(&RegionConfig, &RegionConfig) -> bool| {
        let both = old.region.as_ref().zip(new.region.as_ref());
        both.is_some_and(|(old, new)| differs(old, new))
    };
    let differs = [
        ("listen", old.listen != new.listen),
        ("admin", old.admin != new.admin),
        ("drain_ms_max", old.drain_max != new.drain_max),
        ("region", old.region.is_some() != new.region.is_some()),
        ("region.name", region(|old, new| old.name != new.name)),
        ("region.listen", region(|old, new| old.listen != new.listen)),
        (
            "region.tls",
            region(|old, new| old.security != new.security),
        ),
        (
            "region.state_file",
            region(|old, new| old.state_file != new.state_file),
        ),
    ];
    let differs = differs.into_iter().filter(|(_, differs)| *differs);
    differs.map(|(option, _)| option).collect()
}

/// Catches SIGHUP from now on, and returns what reloads on each one. Nobody catches it before: it would end the process,
/// so this must not be left to a task that starts some time later.
pub(super) fn on_signal(reloader: Arc<Reloader>) -> std::io::Result<impl Future<Output = ()>> {
    let mut hangups = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangups.recv().await.is_some() {
            // The outcome has been logged.
            let _ = reloader.reload("SIGHUP").await;
        }
    })
}
