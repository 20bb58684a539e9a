//! An etcd server of one member on loopback ports, with its data in a temporary folder.
//!
//! The program is the one that `ISOTHERM_ETCD` names, or `etcd` on the PATH. This module uses the standard library alone, so
//! that the tests of the service can use it too.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

/// Longest start.
const START_MAX: Duration = Duration::from_secs(30);

/// A running (or killed) server, whose files go when it is dropped.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    folder: PathBuf,
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Child>,
}

impl Etcd {
    /// Starts a server; `None`, with a message, where the program is not installed.
    pub fn start(name: &str) -> io::Result<Option<Self>> {
        let Some(program) = program() else {
            eprintln!("no etcd (set ISOTHERM_ETCD, or install etcd-server): nothing takes leases");
            return Ok(None);
        };
        let folder = env::temp_dir().join(format!("isotherm-etcd-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let mut server = Self {
            program,
            folder,
            client: free_port()?,
            peer: free_port()?,
            process: None,
        };
        server.restart()?;
        Ok(Some(server))
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.client
    }

    /// Kills the server (`SIGKILL`). It keeps its data.
    pub fn kill(&mut self) {
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
        self.process = Some(process);
        let started = Instant::now();
        while TcpStream::connect(self.client).is_err() {
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
    let on_path = || {
        let paths = env::var_os("PATH")?;
        let mut programs = env::split_paths(&paths).map(|folder| folder.join("etcd"));
        programs.find(|program| program.is_file())
    };
    env::var_os("ISOTHERM_ETCD")
        .map(PathBuf::from)
        .or_else(on_path)
}

fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
