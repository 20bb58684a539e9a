//! A child process with a log file, that dies with us.
//!
//! Each child leads a process group of its own, and so does not get the terminal's Ctrl-C before we decide what to
//! do. A tiny shell in that group waits for the end of a pipe that only we hold: when this process goes away in any
//! way, `SIGKILL` included, the pipe ends and the shell kills the group. (`PR_SET_PDEATHSIG` would need unsafe code
//! between fork and exec, and is Linux only.) As long as the shell lives the group's number cannot be given to
//! anybody else, so a signal never reaches a stranger.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait::wait_for;

/// How many lines of its log a failed child shows.
const TAIL_LINES_MAX: usize = 25;

/// A running child.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
    guard: Child,
}

impl Process {
    /// Starts a program with both outputs in `log`, which is appended to; its directory is made where there is none.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        if let Some(directory) = log.parent() {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
        let group = i32::try_from(child.id()).context("a process id out of range")?;
        let guard = Command::new("sh")
            .args([
                "-c",
                "read -r _; kill -s KILL -- \"-$1\"",
                "guard",
                &group.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(group)
            .spawn();
        match guard {
            Ok(guard) => Ok(Self {
                name: name.to_owned(),
                log: log.to_owned(),
                child,
                guard,
            }),
            Err(error) => {
                // Most likely the child has ended already, and its group with it.
                let mut child = child;
                let _ = child.kill();
                let _ = child.wait();
                bail!("{name} ended at once ({error})\n{}", tail(log));
            }
        }
    }

    /// The child's process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its resident memory, in bytes.
    ///
    /// # Errors
    /// When it has ended, or on a system without `/proc`.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kibibytes * 1024)
    }

    /// Stops it where it is (`SIGSTOP`): it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// When it has ended.
    pub fn suspend(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on after [`Process::suspend`].
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Ends it without warning (`SIGKILL`), and waits for that.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> anyhow::Result<ExitStatus> {
        if self.child.try_wait()?.is_none() {
            self.signal(Signal::KILL)?;
        }
        Ok(self.child.wait()?)
    }

    /// Asks it to end (`SIGTERM`).
    ///
    /// # Errors
    /// When it has ended already.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Waits for its end, at most this long.
    ///
    /// # Errors
    /// When it is still running then.
    pub async fn wait_for_exit(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        let child = &mut self.child;
        wait_for(limit, &what, || {
            std::future::ready(child.try_wait().map_err(anyhow::Error::from))
        })
        .await
        .with_context(|| tail(&self.log))
    }

    /// Asks until the answer is something, as long as the child runs; the error shows the end of its log.
    ///
    /// # Errors
    /// When it ends before, or the limit passes.
    pub async fn wait_until_ready<T, F>(
        &mut self,
        limit: Duration,
        mut ask: impl FnMut(String) -> F,
    ) -> anyhow::Result<T>
    where
        F: Future<Output = Option<T>>,
    {
        let Self {
            name, log, child, ..
        } = self;
        let what = format!("{name} to become ready");
        wait_for(limit, &what, || {
            let ended = child.try_wait();
            let answer = ask(fs::read_to_string(&*log).unwrap_or_default());
            async move {
                if let Some(status) = ended? {
                    bail!("it ended ({status})");
                }
                Ok(answer.await)
            }
        })
        .await
        .with_context(|| format!("{name} did not become ready\n{}", tail(log)))
    }

    /// What it wrote so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Where it writes.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(pid(&self.child)?, signal).with_context(|| format!("{} has ended", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group, so that nothing which the child started outlives it; the guard is in it too.
        if let Ok(group) = pid(&self.child) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        let _ = self.guard.wait();
    }
}

fn pid(child: &Child) -> anyhow::Result<Pid> {
    let id = i32::try_from(child.id())?;
    Pid::from_raw(id).context("no process id")
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines
        .get(lines.len().saturating_sub(TAIL_LINES_MAX)..)
        .unwrap_or_default();
    format!("the last lines of {}:\n{}", log.display(), shown.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("isotherm-harness-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory.join(name)
    }

    fn shell(script: &str, name: &str) -> Process {
        let log = scratch(name);
        let _ = fs::remove_file(&log);
        Process::start(name, Command::new("sh").args(["-c", script]), &log).unwrap()
    }

    fn runs(id: u32) -> bool {
        fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[tokio::test]
    async fn a_child_that_fails_shows_the_end_of_its_log() {
        let mut process = shell(
            "echo first; sleep 0.2; echo the reason >&2; exit 3",
            "fails",
        );
        let never = process
            .wait_until_ready(Duration::from_secs(5), |_| std::future::ready(None::<()>))
            .await;
        let error = format!("{:#}", never.unwrap_err());
        assert!(
            error.contains("the reason") && error.contains("exit status: 3"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_child_and_its_children_end_with_the_drop() {
        let mut process = shell("sleep 100 & echo child $!; wait", "tree");
        let grandchild = process
            .wait_until_ready(Duration::from_secs(5), |log| {
                std::future::ready(
                    log.trim()
                        .strip_prefix("child ")
                        .and_then(|id| id.parse::<u32>().ok()),
                )
            })
            .await
            .unwrap();
        assert!(runs(grandchild));
        drop(process);
        until_gone(grandchild).await;
    }

    #[tokio::test]
    async fn a_child_ends_when_the_pipe_of_its_guard_does() {
        let mut process = shell("sleep 100", "orphan");
        let id = process.id();
        drop(process.guard.stdin.take()); // what the death of this process would do
        until_gone(id).await;
    }

    #[tokio::test]
    async fn a_frozen_child_goes_on_when_thawed() {
        let mut process = shell("sleep 0.3; echo done", "frozen");
        process.suspend().unwrap();
        assert!(
            process
                .wait_for_exit(Duration::from_millis(600))
                .await
                .is_err()
        );
        process.resume().unwrap();
        assert!(
            process
                .wait_for_exit(Duration::from_secs(5))
                .await
                .unwrap()
                .success()
        );
        assert_eq!(process.log(), "done\n");
    }

    async fn until_gone(id: u32) {
        crate::wait_until(Duration::from_secs(5), "the process to end", || {
            std::future::ready(!runs(id))
        })
        .await
        .unwrap();
    }
}
