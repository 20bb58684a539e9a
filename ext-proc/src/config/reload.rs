//! Follows the configuration file, and applies it again when it changes.
//!
//! A reload happens when the contents of the file change, on SIGHUP, and at the request of the admin interface. A file
//! with mistakes is refused as a whole: the service logs every mistake, and keeps its configuration. So is a file that no longer names
//! the pools: a beginning of a file is a valid file, and pools that leave lose all that they have learned.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::errors::Reader;
use super::tree::{self, Data};
use super::{Config, ConfigErrors, RegionConfig, load_text, read, unreadable};
use crate::file_watcher::{FileWatcher, open_regular};
use crate::tasks::{AbortOnPanic, vital};

/// The longest reload: a file on a mount that is gone may never be read.
const RELOAD_TIME_MAX: Duration = Duration::from_secs(5);

/// Applies the configuration file, one reload at a time.
pub struct Reloader {
    file: Option<PathBuf>,
    /// The configuration with which the service started: its listeners stay those.
    started: Config,
    config: watch::Sender<Arc<Config>>,
    apply: Box<dyn Fn(&Config) + Send + Sync>,
    /// Learns of each reload whether it was applied.
    record: Box<dyn Fn(bool) + Send + Sync>,
    /// Held during a reload: two at once could apply an old file after a new one.
    reload: Mutex<()>,
}

/// A reload that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReloadResult {
    /// Whether the configuration has changed.
    pub changed: bool,
    /// Options of the file that only a restart applies.
    pub restart_needed_for: Vec<&'static str>,
    /// Options that this reload touched among them, for the log.
    #[serde(skip)]
    changes: Vec<RestartOption>,
}

/// An option that the service reads only at its start, and that a reload has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RestartOption {
    option: &'static str,
    running: String,
    file: String,
}

/// Error of a reload. The configuration stays as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The service has no file.
    #[error(
        "the service runs without a configuration file: start it with --config FILE to be able to reload"
    )]
    NoFile,
    /// The file has no option; more likely it is being written than that it means the defaults.
    #[error("{}: empty; write `{{}}` where the defaults are meant", .0.display())]
    Empty(PathBuf),
    /// The file does not name the pools any more; more likely it is being written than that it means to remove them all.
    #[error("{}: has no `pools`, and the service has some; write `pools: []` where none are meant", .0.display())]
    NoPools(PathBuf),
    /// The file is not read in time.
    #[error("not read within {} s: is the file on a mount that does not answer?", RELOAD_TIME_MAX.as_secs())]
    Timeout,
    /// The file has mistakes.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The runtime is shutting down.
    #[error("the service is stopping")]
    Stopping,
}

impl Reloader {
    /// Creates a reloader. `apply` applies a changed configuration to the service; `config` is applied already. `record` learns of
    /// each reload whether it was applied.
    pub fn new(
        config: Config,
        file: Option<PathBuf>,
        apply: impl Fn(&Config) + Send + Sync + 'static,
        record: impl Fn(bool) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            file,
            started: config.clone(),
            config: watch::Sender::new(Arc::new(config)),
            apply: Box::new(apply),
            record: Box::new(record),
            reload: Mutex::new(()),
        })
    }

    /// Reloads when the file changes and on SIGHUP, until the tasks are dropped. Must be called inside a tokio runtime.
    pub fn follow(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(file) = &self.file {
            let follow = follow_file(file.clone(), Arc::clone(self));
            tasks.spawn(vital("configuration file", follow));
            match on_signal(Arc::clone(self)) {
                Ok(reloads) => drop(tasks.spawn(vital("SIGHUP", reloads))),
                Err(error) => tracing::warn!(
                    %error,
                    "SIGHUP cannot be watched: reload through the file or the admin interface"
                ),
            }
        }
        tasks
    }

    /// Follows the configuration that was applied last.
    pub fn config(&self) -> watch::Receiver<Arc<Config>> {
        self.config.subscribe()
    }

    /// Reads the file, applies it, and logs the result with its `cause`.
    /// The error has every mistake of the file; the configuration then stays as it was.
    pub async fn reload(
        self: &Arc<Self>,
        cause: &'static str,
    ) -> Result<ReloadResult, ReloadError> {
        let this = Arc::clone(self);
        let result = tokio::task::spawn_blocking(move || {
            let _abort = AbortOnPanic("reload");
            this.reload_blocking()
        });
        let result = match tokio::time::timeout(RELOAD_TIME_MAX, result).await {
            Ok(result) => result.unwrap_or(Err(ReloadError::Stopping)),
            Err(_) => Err(ReloadError::Timeout),
        };
        // Without a file, and at a stop, there is none to refuse.
        if !matches!(result, Err(ReloadError::NoFile | ReloadError::Stopping)) {
            (self.record)(result.is_ok());
        }
        match &result {
            Ok(ReloadResult { changed: false, .. }) => {
                tracing::debug!(cause, "configuration unchanged")
            }
            Ok(reloaded) => {
                tracing::info!(cause, "configuration applied");
                for change in &reloaded.changes {
                    change.log();
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

    fn reload_blocking(&self) -> Result<ReloadResult, ReloadError> {
        let guard = self.reload.try_lock_for(RELOAD_TIME_MAX);
        let _guard = guard.ok_or(ReloadError::Timeout)?;
        let path = self.file.as_ref().ok_or(ReloadError::NoFile)?;
        let old = Arc::clone(&self.config.borrow());
        let text = open_regular(path).map_err(unreadable).and_then(read);
        let new = load_text(path, text.clone())?;
        let changed = *old != new;
        if changed {
            check_is_whole(path, &text.unwrap_or_default(), &old)?;
        }
        if changed {
            (self.apply)(&new);
        }
        let running = restart_options(&self.started);
        let (before, now) = (restart_options(&old), restart_options(&new));
        let touched = differing(&before, &now);
        let result = ReloadResult {
            changed,
            restart_needed_for: differing(&running, &now),
            changes: changes(&running, &now, &touched),
        };
        self.config.send_replace(Arc::new(new));
        Ok(result)
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Reloader");
        fields.field("file", &self.file).finish_non_exhaustive()
    }
}

/// Fails for a text that looks like the beginning of a file: without any option, or without pools where there were some.
fn check_is_whole(path: &Path, text: &str, old: &Config) -> Result<(), ReloadError> {
    let root = tree::read(text, &mut Reader::default());
    let Some(Data::Section(members)) = root.map(|root| root.data) else {
        return Err(ReloadError::Empty(path.to_owned()));
    };
    let mut pools = members.iter().filter(|(name, _, _)| name == "pools");
    let names_pools = pools.any(|(_, _, value)| !matches!(value.data, Data::Null));
    let had_pools = !old.pools.is_empty() && old.pools != Config::default().pools;
    if names_pools || members.is_empty() || !had_pools {
        return Ok(());
    }
    Err(ReloadError::NoPools(path.to_owned()))
}

/// The options that the service reads only at its start, each with its value.
fn restart_options(config: &Config) -> Vec<(&'static str, String)> {
    let region = |value: fn(&RegionConfig) -> String| {
        let value = config.region.as_ref().map(value);
        value.unwrap_or_else(|| "none".to_owned())
    };
    vec![
        ("listen", format!("{:?}", config.listen)),
        ("tls", format!("{:?}", config.tls)),
        ("health_listen", format!("{:?}", config.health_listen)),
        ("admin", format!("{:?}", config.admin)),
        ("ext_proc", format!("{:?}", config.ext_proc)),
        ("drain_ms_max", config.drain_max.as_millis().to_string()),
        ("tracing", format!("{:?}", config.tracing)),
        (
            "scaling.keda_listen",
            format!("{:?}", config.scaling.keda_listen),
        ),
        ("region", config.region.is_some().to_string()),
        ("region.name", region(|region| region.name.to_string())),
        ("region.listen", region(|region| region.listen.to_string())),
        ("region.tls", region(|region| format!("{:?}", region.tls))),
        (
            "region.store",
            region(|region| format!("{:?}", region.store)),
        ),
    ]
}

/// The names of the options whose values differ. A section that is new or gone is named as a whole.
fn differing(
    one: &[(&'static str, String)],
    other: &[(&'static str, String)],
) -> Vec<&'static str> {
    let pairs = one.iter().zip(other);
    let mut names: Vec<&'static str> = pairs
        .filter(|((_, one), (_, other))| one != other)
        .map(|((name, _), _)| *name)
        .collect();
    if names.contains(&"region") {
        names.retain(|name| !name.starts_with("region."));
    }
    names
}

/// Describes the options that a reload touched.
fn changes(
    running: &[(&'static str, String)],
    file: &[(&'static str, String)],
    touched: &[&'static str],
) -> Vec<RestartOption> {
    let pairs = running.iter().zip(file);
    let pairs = pairs.filter(|((option, _), _)| touched.contains(option));
    let changes = pairs.map(|((option, running), (_, file))| RestartOption {
        option,
        running: running.clone(),
        file: file.clone(),
    });
    changes.collect()
}

impl RestartOption {
    fn log(&self) {
        let Self {
            option,
            running,
            file,
        } = self;
        match running == file {
            true => tracing::info!(
                option,
                "has the running value again: no restart is needed for it"
            ),
            false => tracing::warn!(
                option,
                running,
                file,
                "changed, but only a restart applies this option"
            ),
        }
    }
}

/// Reloads when the contents of the file change. The file may have changed since it was loaded, so the first look always
/// reloads.
async fn follow_file(path: PathBuf, reloader: Arc<Reloader>) {
    let mut watched = FileWatcher::new([path]);
    loop {
        watched.changed().await;
        // The reload logs its result. A missing file is a mistake, too.
        let _ = reloader.reload("file changed").await;
    }
}

/// Catches SIGHUP from now on, and returns a future that reloads on each. The signal ends a process that does not catch it,
/// so catching it must not wait for a task to start.
fn on_signal(reloader: Arc<Reloader>) -> std::io::Result<impl Future<Output = ()>> {
    let mut hangups = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangups.recv().await.is_some() {
            // The reload logs its result.
            let _ = reloader.reload("SIGHUP").await;
        }
    })
}
