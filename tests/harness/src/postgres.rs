//! A PostgreSQL server on a free loopback port, from the system's package, in a temporary folder.

use std::env;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::net::TcpStream;

use crate::port::{self, ReservedPort};
use crate::process::Process;
use crate::wait::{WAIT_MAX, wait_for};

/// Pause between two starts: processes of a server that was killed hold its shared memory for a moment.
const START_PAUSE: Duration = Duration::from_millis(500);
/// Starts before a failure is final.
const STARTS_MAX: usize = 20;

/// A running (or killed) server, whose files go when it is dropped.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    user: Option<u32>,
    port: ReservedPort,
    process: Option<Process>,
}

impl Postgres {
    /// Starts a server with an empty database; `None` where the programs are not installed.
    pub async fn start(name: &str) -> anyhow::Result<Option<Self>> {
        let Some(programs) = programs() else {
            return Ok(None);
        };
        let folder = env::temp_dir().join(format!("isotherm-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let mut server = Self {
            programs,
            user: other_user()?,
            folder,
            port: port::reserve()?,
            process: None,
        };
        if let Some(user) = server.user {
            chown(&server.folder, Some(user), None)?;
        }
        let mut initdb = server.command("initdb");
        initdb.args(["--username", "isotherm", "--auth", "trust", "--no-sync"]);
        initdb
            .args(["--encoding", "UTF8", "--locale", "C", "--pgdata"])
            .arg(server.data());
        let made = initdb.output().context("cannot start initdb")?;
        ensure!(
            made.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        server.restart().await?;
        Ok(Some(server))
    }

    /// The database, as `isotherm batch --database` takes it.
    pub fn url(&self) -> String {
        format!("postgres://isotherm@{}/postgres", self.port.address())
    }

    /// Kills every process of the server (`SIGKILL`).
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts the server (again), and waits until it accepts connections.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process = None;
        for _ in 0..STARTS_MAX {
            match self.start_once().await {
                Ok(process) => {
                    self.process = Some(process);
                    return Ok(());
                }
                Err(error) => eprintln!("PostgreSQL does not start yet: {error:#}"),
            }
            tokio::time::sleep(START_PAUSE).await;
        }
        bail!("PostgreSQL does not start")
    }

    async fn start_once(&self) -> anyhow::Result<Process> {
        let log = self.folder.join("postgres.log");
        let _ = fs::remove_file(&log);
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data());
        let port = self.port.address().port();
        for setting in [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=".to_owned(),
            // The tests kill processes, never the machine: the system keeps what was written.
            "fsync=off".to_owned(),
        ] {
            command.args(["-c", &setting]);
        }
        let mut process = Process::start("postgres", &mut command, &log)?;
        let is_ready = |log: String| {
            std::future::ready(log.contains("ready to accept connections").then_some(()))
        };
        process.wait_until_ready(WAIT_MAX, is_ready).await?;
        let address = self.port.address();
        wait_for(WAIT_MAX, "PostgreSQL's port", || async move {
            Ok(TcpStream::connect(address).await.ok())
        })
        .await?;
        Ok(process)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(&self.folder).env("TZ", "UTC");
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.process = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The folder of the newest installed programs.
fn programs() -> Option<PathBuf> {
    let has_both = |folder: &Path| {
        let programs = ["postgres", "initdb"];
        programs
            .iter()
            .all(|program| folder.join(program).is_file())
    };
    let packages = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut versions: Vec<(u32, PathBuf)> = packages
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, folder)| has_both(folder))
        .collect();
    versions.sort();
    let on_path = || env::split_paths(&env::var_os("PATH")?).find(|folder| has_both(folder));
    versions.pop().map(|(_, folder)| folder).or_else(on_path)
}

/// PostgreSQL refuses to run as root: the id of a user that has no rights, if this process is root.
fn other_user() -> anyhow::Result<Option<u32>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").context("no /etc/passwd")?;
    let id = |name: &str| {
        let user = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        user.split(':').nth(2)?.parse().ok()
    };
    let user = id("postgres").or_else(|| id("daemon"));
    user.map(Some)
        .context("no user `postgres` or `daemon` to run PostgreSQL as")
}
