//! Spans of requests, exported by OTLP (OpenTelemetry) to a collector.
//!
//! The SDK's thread sends finished spans in batches. A request never waits for it: the queue is bounded, and a span that finds
//! it full is dropped. A collector that is away costs the spans of that time and two log lines.
//!
//! A request with `traceparent` is sampled as its caller says. The service decides on the others before it creates any span,
//! because the SDK's own sampler allocates for requests that it leaves out.
//!
//! Rejected: spans from the filter, since proxy-wasm has no exporter, and Envoy's span as the parent, which a filter does not
//! see. The filter tells in `x-isotherm-held` how long it held a traced request.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs};

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Key, KeyValue, Value};
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, SpanData,
    SpanExporter,
};

use crate::config::TracingConfig;

/// Limit of finished spans that wait for the exporter: a thousandth of the service's memory, at one kilobyte each.
const QUEUE_SPANS_MAX: usize = 8_192;
/// Limit of spans in one message to the collector.
const BATCH_SPANS_MAX: usize = 512;
/// Longest time between two messages while there are spans.
const BATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time for one message.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(5);
/// Variables that name the CA of the collector, which the SDK leaves to its user. The first that is set counts.
const CERTIFICATE_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
];
/// Longest time that the last spans may take when the service stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);

/// The exporter of spans, and the share of requests that begin a trace.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    ratio: f64,
}

impl Spans {
    /// Starts the exporter. Must be called inside a tokio runtime.
    pub(crate) fn start(config: &TracingConfig) -> anyhow::Result<Self> {
        // The builder takes the headers from the environment.
        let mut exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&config.endpoint)
            .with_timeout(EXPORT_TIME_MAX);
        if config.endpoint.starts_with("https://") {
            exporter = exporter.with_tls_config(tls()?);
        }
        let exporter = exporter
            .build()
            .with_context(|| format!("cannot export spans to {}", config.endpoint))?;
        tracing::info!(endpoint = config.endpoint, "exporting spans");
        Ok(Self::with_exporter(
            LoggedExporter::new(exporter),
            config.ratio,
        ))
    }

    fn with_exporter(exporter: impl SpanExporter + 'static, ratio: f64) -> Self {
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_SPANS_MAX)
            .with_max_export_batch_size(BATCH_SPANS_MAX)
            .with_scheduled_delay(BATCH_INTERVAL)
            .build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor.build())
            // The service samples before it creates a span.
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(resource())
            .build();
        Self {
            tracer: provider.tracer("isotherm"),
            provider,
            ratio,
        }
    }

    /// The tracer that creates spans.
    pub(crate) fn tracer(&self) -> &SdkTracer {
        &self.tracer
    }

    /// Whether the service begins a trace for one more request without a caller's trace.
    pub(crate) fn samples(&self) -> bool {
        self.ratio > 0.0 && rand::random::<f64>() < self.ratio
    }

    /// Sends the last spans.
    pub(crate) async fn stop(self) {
        let stop = move || self.provider.shutdown_with_timeout(STOP_TIME_MAX);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(stop).await {
            tracing::debug!(%error, "the last spans were not exported");
        }
    }
}

/// The description of this service: the environment's (`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`), and what it leaves out.
fn resource() -> Resource {
    let given = Resource::builder().build();
    let is_named = |name: &Value| !name.as_str().starts_with("unknown_service");
    let builder = Resource::builder()
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    match given.get(&Key::from_static_str("service.name")) {
        Some(name) if is_named(&name) => builder.build(),
        _ => builder.with_service_name("isotherm").build(),
    }
}

/// The certificates that the collector is trusted by: those of a file that the environment names, or the system's.
fn tls() -> anyhow::Result<ClientTlsConfig> {
    let config = ClientTlsConfig::new();
    let file = CERTIFICATE_VARIABLES.iter().find_map(env::var_os);
    let Some(file) = file.filter(|file| !file.is_empty()) else {
        return Ok(config.with_native_roots());
    };
    let file = Path::new(&file);
    let pem = fs::read(file)
        .with_context(|| format!("{}: the CA of the collector of spans", file.display()))?;
    Ok(config.ca_certificate(Certificate::from_pem(pem)))
}

/// An exporter that logs when the collector goes away, and when it is back.
#[derive(Debug)]
struct LoggedExporter<E> {
    exporter: E,
    is_failing: AtomicBool,
}

impl<E> LoggedExporter<E> {
    fn new(exporter: E) -> Self {
        Self {
            exporter,
            is_failing: AtomicBool::new(false),
        }
    }
}

impl<E: SpanExporter> SpanExporter for LoggedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        let was_failing = self.is_failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !was_failing => {
                tracing::warn!(%error, spans, "spans cannot be exported; they are dropped until the collector takes them");
            }
            Ok(()) if was_failing => tracing::info!("spans are exported again"),
            Ok(()) | Err(_) => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use super::*;

    /// An exporter that keeps spans in memory.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl Kept {
        /// Spans that export to the result, and a share of requests that begin a trace.
        pub(crate) fn spans(&self, ratio: f64) -> Spans {
            Spans::with_exporter(self.clone(), ratio)
        }

        /// Every span, after the exporter has stopped.
        pub(crate) async fn take(self, spans: Spans) -> Vec<SpanData> {
            spans.stop().await;
            std::mem::take(&mut *self.0.lock())
        }
    }

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().extend(batch);
            Ok(())
        }
    }
}
