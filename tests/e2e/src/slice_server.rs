//! A fake API server that knows one EndpointSlice. A real one refuses slices with loopback addresses.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use isotherm_harness::TcpServer;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The port that the slice names.
const PORT: u16 = 8000;

/// A running server.
#[derive(Debug)]
pub struct SliceServer {
    server: TcpServer,
    slice: watch::Sender<(u64, Vec<IpAddr>)>,
}

impl SliceServer {
    /// Starts a server with an empty slice.
    pub async fn start() -> anyhow::Result<Self> {
        let slice = watch::Sender::new((1, Vec::new()));
        let followed = slice.clone();
        let server = TcpServer::start(move |stream| {
            let slice = followed.subscribe();
            async move {
                // A client that leaves ends its connection with an error.
                let _ = serve(stream, slice).await;
            }
        });
        Ok(Self {
            server: server.await?,
            slice,
        })
    }

    /// Sets the addresses of the slice.
    pub fn set(&self, addresses: &[IpAddr]) {
        self.slice.send_modify(|(version, known)| {
            *version += 1;
            *known = addresses.to_vec();
        });
    }

    /// Writes a kubeconfig file into a directory and returns its path.
    pub fn kubeconfig(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let server = format!("http://{}", self.server.address());
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": server } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }]
        });
        std::fs::create_dir_all(directory)?;
        let path = directory.join("slices.kubeconfig");
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }
}

async fn serve(
    mut stream: TcpStream,
    mut slice: watch::Receiver<(u64, Vec<IpAddr>)>,
) -> anyhow::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    let mut request = String::new();
    while let Some(line) = lines.next_line().await? {
        if request.is_empty() {
            request = line;
        } else if line.is_empty() {
            if request.contains("watch=true") {
                return follow(&mut writer, &mut slice).await;
            }
            let (version, addresses) = slice.borrow_and_update().clone();
            let list = json!({
                "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
                "metadata": { "resourceVersion": version.to_string() },
                "items": [object(version, &addresses)]
            });
            let body = list.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            writer.write_all((head + &body).as_bytes()).await?;
            request.clear();
        }
    }
    Ok(())
}

/// Sends each change as a line of JSON, in a chunk of its own.
async fn follow(
    writer: &mut (impl AsyncWriteExt + Unpin),
    slice: &mut watch::Receiver<(u64, Vec<IpAddr>)>,
) -> anyhow::Result<()> {
    writer
        .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        .await?;
    loop {
        let (version, addresses) = slice.borrow_and_update().clone();
        let event = json!({ "type": "MODIFIED", "object": object(version, &addresses) });
        let line = format!("{event}\n");
        let chunk = format!("{:x}\r\n{line}\r\n", line.len());
        writer.write_all(chunk.as_bytes()).await?;
        slice.changed().await?;
    }
}

fn object(version: u64, addresses: &[IpAddr]) -> Value {
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({ "addresses": [address], "conditions": { "ready": true } }))
        .collect();
    json!({
        "metadata": { "name": "isotherm-1", "resourceVersion": version.to_string() },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{ "name": "link", "port": PORT, "protocol": "TCP" }]
    })
}
