//! A collector of OpenTelemetry, which keeps the spans that it receives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as AttributeValue;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::{WAIT_MAX, wait_for};

/// The most spans that a collector keeps. It drops further ones.
const SPANS_MAX: usize = 65_536;

/// The messages of exporters.
#[derive(Debug, Default)]
struct Exports {
    spans: Vec<Span>,
    /// The header `authorization` of the last message that had one.
    authorization: Option<String>,
    /// The description of the exporter of the last message.
    resource: Resource,
}

type SharedExports = Arc<Mutex<Exports>>;

fn lock(exports: &Mutex<Exports>) -> MutexGuard<'_, Exports> {
    exports.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running collector, which ends when it is dropped.
#[derive(Debug)]
pub struct SpanCollector {
    address: SocketAddr,
    /// The authority of a collector with TLS, in PEM.
    ca: Option<String>,
    exports: SharedExports,
    server: JoinHandle<()>,
}

impl SpanCollector {
    /// Starts a collector on a free port.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start() -> anyhow::Result<Self> {
        Self::serve(Server::builder(), None).await
    }

    /// Starts a collector with TLS and a certificate for `localhost`, on a free port.
    ///
    /// # Errors
    /// When there is no free port, or no certificate.
    pub async fn start_with_tls() -> anyhow::Result<Self> {
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let pem = issued.cert.pem();
        let identity = Identity::from_pem(&pem, issued.signing_key.serialize_pem());
        let server = Server::builder().tls_config(ServerTlsConfig::new().identity(identity))?;
        Self::serve(server, Some(pem)).await
    }

    async fn serve(mut server: Server, ca: Option<String>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let exports = SharedExports::default();
        let service = TraceServiceServer::new(Collector(Arc::clone(&exports)));
        let server = tokio::spawn(async move {
            let server = server.add_service(service);
            let connections = TcpListenerStream::new(listener);
            // The server ends with the task.
            drop(server.serve_with_incoming(connections).await);
        });
        Ok(Self {
            address,
            ca,
            exports,
            server,
        })
    }

    /// The URL for exporters.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.ca {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// The authority of the collector in PEM, if it has TLS.
    #[must_use]
    pub fn ca(&self) -> Option<&str> {
        self.ca.as_deref()
    }

    /// The header `authorization` that the exporters send.
    #[must_use]
    pub fn authorization(&self) -> Option<String> {
        lock(&self.exports).authorization.clone()
    }

    /// An attribute of the last exporter's description of itself, if it is a text.
    #[must_use]
    pub fn resource_attribute(&self, name: &str) -> Option<String> {
        let exports = lock(&self.exports);
        let attributes = exports.resource.attributes.iter();
        let value = attributes
            .filter(|it| it.key == name)
            .find_map(|it| it.value.clone());
        match value?.value? {
            AttributeValue::StringValue(text) => Some(text),
            _ => None,
        }
    }

    /// Waits for a span with this name in a trace.
    ///
    /// # Errors
    /// When the span does not arrive.
    pub async fn wait_for_span(&self, trace: &str, name: &str) -> anyhow::Result<Span> {
        wait_for(WAIT_MAX, &format!("the span `{name}`"), || async {
            let exports = lock(&self.exports);
            let is_wanted = |span: &&Span| hex(&span.trace_id) == trace && span.name == name;
            Ok(exports.spans.iter().find(is_wanted).cloned())
        })
        .await
    }

    /// The number of spans that the collector has received.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.exports).spans.len()
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
struct Collector(SharedExports);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut exports = lock(&self.0);
        let authorization = request.metadata().get("authorization");
        if let Some(Ok(value)) = authorization.map(|value| value.to_str()) {
            exports.authorization = Some(value.to_owned());
        }
        let resources = request.into_inner().resource_spans;
        let description = resources.iter().find_map(|spans| spans.resource.clone());
        exports.resource = description.unwrap_or_default();
        let scopes = resources.into_iter().flat_map(|spans| spans.scope_spans);
        let room = SPANS_MAX.saturating_sub(exports.spans.len());
        let spans = scopes.flat_map(|scope| scope.spans).take(room);
        exports.spans.extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
