//! The directories of what the harness starts: one for each stack, with its logs and configurations.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use rustix::process::{Pid, test_kill_process};

/// Creates a new directory of this name, after removing those of processes that have ended.
pub(crate) fn fresh_directory(parent: &Path, name: &str) -> anyhow::Result<PathBuf> {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    for entry in fs::read_dir(parent)?.filter_map(Result::ok) {
        let owner = process_of(&entry.file_name().to_string_lossy(), name);
        if owner.is_some_and(|process| test_kill_process(process).is_err()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let directory = parent.join(format!("{name}.{}.{number}", std::process::id()));
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// The process in `NAME.PROCESS.NUMBER`.
fn process_of(file_name: &str, name: &str) -> Option<Pid> {
    let rest = file_name.strip_prefix(name)?.strip_prefix('.')?;
    Pid::from_raw(rest.split('.').next()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_ended_processes_are_removed() {
        let parent = std::env::temp_dir().join(format!("isotherm-stacks-{}", std::process::id()));
        let dead = parent.join("demo.2147483646.0");
        let other = parent.join("another.2147483646.0");
        fs::create_dir_all(&dead).unwrap();
        fs::create_dir_all(&other).unwrap();
        let first = fresh_directory(&parent, "demo").unwrap();
        let second = fresh_directory(&parent, "demo").unwrap();
        assert!(!dead.exists() && other.exists() && first.exists() && second.exists());
        fs::remove_dir_all(&parent).unwrap();
    }
}
