//! An etcd server of one member on loopback ports, with its data in a temporary folder.
//!
//! The program is the one that `cargo xtask mesh-tools --only etcd` builds, or `etcd` on the PATH. This module uses the standard library alone, so
//! that the tests of the service can use it too.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

/// Message where no region takes a lease.
const MISSING: &str = "no region takes the replicas of another, which needs etcd \
     (run `cargo xtask mesh-tools --only etcd`, or install etcd-server)";
/// Longest start, and how often a start is tried.
const START_MAX: Duration = Duration::from_secs(30);
const STARTS_MAX: usize = 3;

/// A running (or killed) server, whose files go when it is dropped.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    folder: PathBuf,
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Child>,
    /// Kills the server when this process ends without an orderly end: its input then ends.
    guard: Option<Child>,
}

impl Etcd {
    /// Starts a server; `None`, with a message, where the program is not installed.
    pub fn start(name: &str) -> io::Result<Option<Self>> {
        let Some(program) = program() else {
            eprintln!("left out: {MISSING}");
            return Ok(None);
        };
        let folder = env::temp_dir().join(format!("isotherm-etcd-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let mut last = io::Error::other("etcd was not started");
        for _ in 0..STARTS_MAX {
            let [client, peer] = free_ports()?;
            let mut server = Self {
                program: program.clone(),
                folder: folder.clone(),
                client,
                peer,
                process: None,
                guard: None,
            };
            // Another process may have taken a port meanwhile.
            match server.restart() {
                Ok(()) => return Ok(Some(server)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.client
    }

    /// Suspends the server (`SIGSTOP`) until it is killed, restarted or resumed.
    pub fn suspend(&self) -> io::Result<()> {
        self.signal("STOP")
    }

    /// Resumes a suspended server.
    pub fn resume(&self) -> io::Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, signal: &str) -> io::Result<()> {
        let process = self.process.as_ref();
        let process = process.ok_or_else(|| io::Error::other("etcd does not run"))?;
        let sent = Command::new("kill")
            .args(["-s", signal, &process.id().to_string()])
            .status()?;
        match sent.success() {
            true => Ok(()),
            false => Err(io::Error::other("etcd cannot be signalled")),
        }
    }

    /// Kills the server (`SIGKILL`). It keeps its data.
    pub fn kill(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts the server (again), and waits until it accepts connections.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        let [client, peer] = [self.client, self.peer].map(|address| format!("http://{address}"));
        let process = Command::new(&self.program)
            .arg("--data-dir")
            .arg(&self.folder)
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args([
                "--log-level",
                "error",
                "--heartbeat-interval",
                "50",
                "--election-timeout",
                "500",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let guard = Command::new("sh")
            .args([
                "-c",
                "read -r _; kill -KILL \"$0\"",
                &process.id().to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn();
        let process = self.process.insert(process);
        self.guard = Some(guard?);
        let started = Instant::now();
        while TcpStream::connect(self.client).is_err() {
            if let Some(status) = process.try_wait()? {
                return Err(io::Error::other(format!("etcd ended: {status}")));
            }
            if started.elapsed() > START_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "etcd does not start",
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn program() -> Option<PathBuf> {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let cache =
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    let tools = variable("ISOTHERM_MESH_TOOLS")
        .or_else(|| cache.map(|cache| cache.join("isotherm/mesh-tools")));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = tools.into_iter().chain(env::split_paths(&path));
    let mut programs = folders.map(|folder| folder.join("etcd"));
    programs.find(|program| program.is_file())
}

fn free_ports() -> io::Result<[SocketAddr; 2]> {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (client, peer) = (bind()?, bind()?);
    Ok([client.local_addr()?, peer.local_addr()?])
}
