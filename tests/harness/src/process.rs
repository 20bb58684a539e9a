//! A child process with a log file, which ends with this process.
//!
//! Each child leads a process group of its own, so the terminal's Ctrl-C does not reach it. A small shell in that group, the
//! guard, waits for the end of a pipe that only this process holds. When this process ends in any way, `SIGKILL` included,
//! the pipe ends and the guard kills the group. While the guard lives, the system does not reuse the group's id. The guard ignores `SIGHUP`, which
//! the system sends to the group when this process ends while the child is suspended.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait::wait_for;

/// Lines of the log in the error of a failed child.
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
    /// Starts a program and appends both of its outputs to `log`. Creates the log's directory.
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
        let mut child = command
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
                "trap '' HUP; read -r _; kill -s KILL -- \"-$1\"",
                "guard",
            ])
            .arg(group.to_string())
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
                // The child has probably ended already, and its group with it.
                let _ = child.kill();
                let _ = child.wait();
                bail!("{name} ended at once ({error})\n{}", tail(log));
            }
        }
    }

    /// The child's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kibibytes * 1024)
    }

    /// Number of open file descriptors.
    pub fn open_files(&self) -> anyhow::Result<usize> {
        let entries = fs::read_dir(format!("/proc/{}/fd", self.child.id()))?;
        Ok(entries.count())
    }

    /// Suspends the child (`SIGSTOP`): its connections stay, and it answers nothing.
    pub fn suspend(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes the child (`SIGCONT`).
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills the child (`SIGKILL`), and waits for its end.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_none() {
            self.signal(Signal::KILL)?;
        }
        self.child.wait()?;
        Ok(())
    }

    /// Ends the child (`SIGTERM`), and waits for its end.
    pub async fn stop(&mut self, limit: Duration) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        self.wait_for_exit(limit).await.map(|_| ())
    }

    /// Waits until the child ends by itself, with success. The error shows the end of the log.
    pub async fn wait_until_ended(&mut self, limit: Duration) -> anyhow::Result<()> {
        let status = self.wait_for_exit(limit).await?;
        match status.success() {
            true => Ok(()),
            false => bail!("{} ended with {status}\n{}", self.name, tail(&self.log)),
        }
    }

    async fn wait_for_exit(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        let condition = format!("{} to end", self.name);
        let child = &mut self.child;
        wait_for(limit, &condition, || {
            std::future::ready(child.try_wait().map_err(anyhow::Error::from))
        })
        .await
        .with_context(|| tail(&self.log))
    }

    /// Calls `check` with the log until it returns a value; the error shows the end of the log.
    pub async fn wait_until_ready<T, F>(
        &mut self,
        limit: Duration,
        mut check: impl FnMut(String) -> F,
    ) -> anyhow::Result<T>
    where
        F: Future<Output = Option<T>>,
    {
        let Self {
            name, log, child, ..
        } = self;
        let condition = format!("{name} to become ready");
        wait_for(limit, &condition, || {
            let ended = child.try_wait();
            let value = check(fs::read_to_string(&*log).unwrap_or_default());
            async move {
                if let Some(status) = ended? {
                    bail!("the program ended ({status})");
                }
                Ok(value.await)
            }
        })
        .await
        .with_context(|| format!("{name} did not become ready\n{}", tail(log)))
    }

    /// The log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(pid(&self.child)?, signal).with_context(|| format!("{} has ended", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group has the guard and every process that the child started.
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
    use crate::wait::{WAIT_MAX, wait_until};

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
    async fn the_error_of_a_failed_child_shows_the_end_of_its_log() {
        let mut process = shell("echo first; echo the reason >&2; exit 3", "fails");
        let never = process
            .wait_until_ready(WAIT_MAX, |_| std::future::ready(None::<()>))
            .await;
        let error = format!("{:#}", never.unwrap_err());
        assert!(
            error.contains("the reason") && error.contains("exit status: 3"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn dropping_a_process_ends_the_child_and_its_children() {
        let mut process = shell("sleep 1000 & echo child $!; wait", "tree");
        let grandchild = process
            .wait_until_ready(WAIT_MAX, |log| {
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
        wait_until_ended(grandchild).await;
    }

    #[tokio::test]
    async fn a_child_ends_when_the_pipe_of_its_guard_ends() {
        let mut process = shell("sleep 1000", "orphan");
        let id = process.id();
        drop(process.guard.stdin.take()); // as the end of this process would
        wait_until_ended(id).await;
    }

    #[tokio::test]
    async fn a_guard_survives_the_signal_to_an_orphaned_group() {
        let mut process = shell("trap '' HUP; echo ready; sleep 1000", "hangup");
        process
            .wait_until_ready(WAIT_MAX, |log| {
                std::future::ready(log.contains("ready").then_some(()))
            })
            .await
            .unwrap();
        let guard = process.guard.id();
        wait_until(WAIT_MAX, "the guard to ignore the signal", || {
            std::future::ready(ignores_hangup(guard))
        })
        .await
        .unwrap();
        let group = pid(&process.child).unwrap();
        kill_process_group(group, Signal::HUP).unwrap();
        drop(process.guard.stdin.take());
        wait_until_ended(process.id()).await;
    }

    /// Whether a process ignores `SIGHUP`, the signal of the lowest bit.
    fn ignores_hangup(id: u32) -> bool {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let ignored = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        ignored.is_some_and(|mask| mask & 1 == 1)
    }

    #[tokio::test]
    async fn a_suspended_child_continues_when_resumed() {
        let file = scratch("go");
        let _ = fs::remove_file(&file);
        let script = format!(
            "until [ -e {} ]; do sleep 0.01; done; echo done",
            file.display()
        );
        let mut process = shell(&script, "suspended");
        process.suspend().unwrap();
        fs::write(&file, "").unwrap();
        let ended = process.wait_for_exit(Duration::from_millis(300)).await;
        assert!(ended.is_err(), "a suspended child went on");
        process.resume().unwrap();
        assert!(process.wait_for_exit(WAIT_MAX).await.unwrap().success());
        assert_eq!(process.log(), "done\n");
    }

    async fn wait_until_ended(id: u32) {
        wait_until(WAIT_MAX, "the process to end", || {
            std::future::ready(!runs(id))
        })
        .await
        .unwrap();
    }
}
