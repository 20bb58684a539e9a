//! Serves the filter's module to a control plane that fetches it by HTTP.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::tcp_server::TcpServer;

/// Header lines that are read from a client.
const LINES_MAX: usize = 100;

/// Starts a server that answers every request with the module.
pub(super) async fn serve_module(module: Vec<u8>) -> anyhow::Result<TcpServer> {
    let module = Arc::new(module);
    TcpServer::start(move |stream| {
        let module = Arc::clone(&module);
        async move {
            // A client that leaves early fetches again.
            let _ = answer(stream, &module).await;
        }
    })
    .await
}

async fn answer(stream: TcpStream, module: &[u8]) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    for _ in 0..LINES_MAX {
        line.clear();
        stream.read_line(&mut line).await?;
        if line.trim_end().is_empty() {
            break;
        }
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/wasm\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        module.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(module).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_gets_the_whole_module() {
        let module = vec![7; 1 << 20];
        let server = serve_module(module.clone()).await.unwrap();
        let url = format!("http://{}/filter.wasm", server.address());
        let answer = reqwest::get(url).await.unwrap().bytes().await.unwrap();
        assert_eq!(answer, module);
    }
}
