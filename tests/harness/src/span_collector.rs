//! A collector of OpenTelemetry, which keeps the spans that it receives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::{WAIT_MAX, wait_for};

/// The most spans that a collector keeps. It drops further ones.
const SPANS_MAX: usize = 65_536;

type Spans = Arc<Mutex<Vec<Span>>>;

fn lock(spans: &Mutex<Vec<Span>>) -> MutexGuard<'_, Vec<Span>> {
    spans.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running collector, which ends when it is dropped.
#[derive(Debug)]
pub struct SpanCollector {
    address: SocketAddr,
    spans: Spans,
    server: JoinHandle<()>,
}

impl SpanCollector {
    /// Starts a collector on a free port.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let spans = Spans::default();
        let service = TraceServiceServer::new(Collector(Arc::clone(&spans)));
        let server = tokio::spawn(async {
            let server = Server::builder().add_service(service);
            let connections = TcpListenerStream::new(listener);
            // The server ends with the task.
            drop(server.serve_with_incoming(connections).await);
        });
        Ok(Self {
            address,
            spans,
            server,
        })
    }

    /// The URL for exporters.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for a span with this name in a trace.
    ///
    /// # Errors
    /// When the span does not arrive.
    pub async fn wait_for_span(&self, trace: &str, name: &str) -> anyhow::Result<Span> {
        wait_for(WAIT_MAX, &format!("the span `{name}`"), || async {
            let spans = lock(&self.spans);
            let is_wanted = |span: &&Span| hex(&span.trace_id) == trace && span.name == name;
            Ok(spans.iter().find(is_wanted).cloned())
        })
        .await
    }

    /// The number of spans that the collector has received.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.spans).len()
    }

    /// Whether the collector has received nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for SpanCollector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Bytes as hexadecimal digits, as `traceparent` has them.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Debug)]
struct Collector(Spans);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        let mut spans = lock(&self.0);
        let room = SPANS_MAX.saturating_sub(spans.len());
        spans.extend(scopes.flat_map(|scope| scope.spans).take(room));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
