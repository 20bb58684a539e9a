//! A TCP server on a free loopback port.

use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A running server. It closes, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct TcpServer {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl TcpServer {
    /// Starts a server that calls `handle` with each connection.
    pub async fn start<F>(
        mut handle: impl FnMut(TcpStream) -> F + Send + 'static,
    ) -> anyhow::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.context("no free loopback port")?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        if let Ok((stream, _)) = accepted {
                            connections.spawn(handle(stream));
                        }
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            _tasks: tasks,
        })
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
