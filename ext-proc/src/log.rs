//! Logs: one line per event on standard error, as text on a terminal and as JSON elsewhere.
//!
//! A thread of its own writes the lines. A line that cannot be written, or that finds too many others waiting, is lost and counted, and
//! nothing else happens: neither a full disk nor a reader that stopped may stop a decision. Panics are logged the same way.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::File;
use std::io::{self, IsTerminal, Write, stderr};
use std::os::fd::AsFd;
use std::panic;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use parking_lot::Mutex;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// The default log filter.
pub const DEFAULT_FILTER: &str = "info";

/// Levels of libraries that a filter does not name. The library for Kubernetes logs each retry as an error, while the
/// service logs each problem once.
const LIBRARY_LEVELS: &str = "kube_client=off,kube_runtime=off";

/// The most lines that wait for the thread that writes them.
const WAITING_MAX: usize = 2_048;
/// Bound on the wait for the last lines.
const FINISH_MAX: Duration = Duration::from_millis(500);

/// Lines that could not be written.
static UNWRITTEN: AtomicU64 = AtomicU64::new(0);
/// Lines that found too many others waiting.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();
/// The thread that writes the lines; it ends when this is dropped.
static WRITER: Mutex<Option<WorkerGuard>> = Mutex::new(None);

/// Starts to log the events that `filter` selects. [`finish`] writes the last ones.
/// Returns the writer, for lines that other programs have written.
/// Fails when the filter is not valid, or logging has started already.
pub fn init(filter: &str) -> anyhow::Result<NonBlocking> {
    let filter = parse(filter)?;
    // Not the lock of the standard library: a write may last for ever.
    let output = stderr().as_fd().try_clone_to_owned();
    let output = output.context("the standard error cannot be used")?;
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(WAITING_MAX)
        .thread_name("isotherm-log")
        .finish(LossyWriter(File::from(output)));
    let (dropped, of_others) = (writer.error_counter(), writer.clone());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .log_internal_errors(false)
        .with_writer(writer);
    let started = if stderr().is_terminal() {
        lines.try_init()
    } else {
        lines.json().flatten_event(true).try_init()
    };
    started.map_err(|error| anyhow!("logging has started already: {error}"))?;
    let _ = DROPPED.set(dropped);
    *WRITER.lock() = Some(guard);
    panic::set_hook(Box::new(log_panic));
    Ok(of_others)
}

/// Writes the lines that wait, for a bounded time. Later ones are lost.
pub fn finish() {
    let Some(guard) = WRITER.lock().take() else {
        return;
    };
    let (done, ended) = mpsc::channel();
    // Dropping the guard waits for the writer, and prints when it waits in vain.
    let flush = move || {
        drop(guard);
        let _ = done.send(());
    };
    if thread::Builder::new().spawn(flush).is_ok() {
        let _ = ended.recv_timeout(FINISH_MAX);
    }
}

/// The number of lines that were lost.
pub(crate) fn lost() -> u64 {
    let dropped = DROPPED.get().map_or(0, ErrorCounter::dropped_lines);
    UNWRITTEN.load(Ordering::Relaxed) + u64::try_from(dropped).unwrap_or(u64::MAX)
}

fn log_panic(panic: &panic::PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then_some(&backtrace);
    tracing::error!(%panic, backtrace = backtrace.map(tracing::field::display), "a task panicked");
}

/// Counts the lines that it cannot write, and goes on.
struct LossyWriter<W>(W);

impl<W: Write> Write for LossyWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.write_all(line).is_err() {
            UNWRITTEN.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn parse(filter: &str) -> anyhow::Result<EnvFilter> {
    // A later directive for the same module wins.
    let directives = format!("{LIBRARY_LEVELS},{filter}");
    EnvFilter::builder().parse(directives).map_err(|error| {
        anyhow!(
            "`{filter}` is not a log filter ({error}); write a level (error, warn, info, debug, trace), \
             or levels by module, such as `info,isotherm_ext_proc::frontends=debug`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_written_is_counted_and_nothing_else_happens() {
        /// A disk that is full.
        struct Full;

        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }

            fn flush(&mut self) -> io::Result<()> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
        }

        let before = lost();
        let mut writer = LossyWriter(Full);
        writer.write_all(b"a line\n").unwrap();
        writer.flush().unwrap();
        assert_eq!(lost(), before + 1);
    }

    #[test]
    fn a_filter_is_a_level_or_levels_by_module() {
        assert!(parse("debug").is_ok());
        assert!(parse("info,isotherm_ext_proc::frontends=debug").is_ok());
        assert!(parse("").is_ok());
        let error = parse("isotherm=loud").unwrap_err().to_string();
        assert!(error.contains("isotherm=loud"), "{error}");
    }

    #[test]
    fn retries_of_libraries_are_logged_only_where_the_filter_names_them() {
        let levels = |filter: &str| parse(filter).unwrap().to_string();
        assert!(levels("debug").contains("kube_client=off"));
        let named = levels("info,kube_client=debug");
        assert!(
            named.contains("kube_client=debug") && !named.contains("kube_client=off"),
            "{named}"
        );
    }
}
