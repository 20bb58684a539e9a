//! A batch API on a free port, and a client of it.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use isotherm_batch::api::{self, ApiConfig};
use isotherm_batch::limits::Limits;
use isotherm_batch::store::Store;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;

/// A batch API with its database, for the owners `a`, `b` and `c`, whose keys are their names.
pub(crate) struct TestApi {
    pub(crate) store: Store,
    pub(crate) address: SocketAddr,
    pub(crate) folder: tempfile::TempDir,
    client: Client<HttpConnector, Full<Bytes>>,
    _stop: DropGuard,
}

impl TestApi {
    pub(crate) async fn start(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("queue.db");
        let store = Store::open(database.to_str().unwrap()).await.unwrap();
        Self::serve(folder, store, limits).await
    }

    pub(crate) async fn serve(folder: tempfile::TempDir, store: Store, limits: Limits) -> Self {
        let keys = folder.path().join("keys");
        std::fs::write(&keys, "a a\nb b\nc c\n").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = ApiConfig {
            listen: address,
            keys_file: Some(keys),
            limits,
            open_pages: axum::Router::new(),
        };
        let stop = CancellationToken::new();
        tokio::spawn(store.clone().follow_health(stop.clone()));
        tokio::spawn(api::serve(
            (listener, None),
            store.clone(),
            config,
            stop.clone(),
        ));
        Self {
            store,
            address,
            folder,
            client: Client::builder(TokioExecutor::new()).build_http(),
            _stop: stop.drop_guard(),
        }
    }

    /// Sends a request with a key, and returns status and body of the response.
    pub(crate) async fn send(
        &self,
        (method, path): (Method, &str),
        key: &str,
        (kind, body): (&str, Vec<u8>),
    ) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", kind)
            .body(Full::from(body))
            .unwrap();
        let response = self.client.request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = || Value::from(String::from_utf8_lossy(&body).into_owned());
        let value = serde_json::from_slice(&body).unwrap_or_else(|_| text());
        (status, value)
    }

    pub(crate) async fn get(&self, path: &str, key: &str) -> (u16, Value) {
        self.send((Method::GET, path), key, ("", Vec::new())).await
    }

    /// Opens a connection, and sends the beginning of a request.
    pub(crate) async fn begin(&self, text: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(text.as_bytes()).await.unwrap();
        connection
    }

    /// Uploads a file for batches, with further fields of the form.
    pub(crate) async fn upload_with(
        &self,
        key: &str,
        content: &[u8],
        fields: &[(&str, &str)],
    ) -> (u16, Value) {
        let mut body = Vec::new();
        for (name, value) in fields.iter().copied().chain([("purpose", "batch")]) {
            let part = format!(
                "--edge\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
            body.extend_from_slice(part.as_bytes());
        }
        let part = "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"input.jsonl\"\r\n\r\n";
        body.extend_from_slice(part.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n--edge--\r\n");
        let kind = "multipart/form-data; boundary=edge";
        self.send((Method::POST, "/v1/files"), key, (kind, body))
            .await
    }

    /// Uploads a file, and returns its name.
    pub(crate) async fn upload(&self, key: &str, content: &[u8]) -> String {
        let (status, file) = self.upload_with(key, content, &[]).await;
        assert_eq!(status, 200, "{file}");
        file["id"].as_str().unwrap().to_owned()
    }

    /// Makes a batch of a file.
    pub(crate) async fn create(&self, key: &str, file: &str) -> (u16, Value) {
        let batch = json!({ "input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h" });
        let body = batch.to_string().into_bytes();
        let target = (Method::POST, "/v1/batches");
        self.send(target, key, ("application/json", body)).await
    }
}
