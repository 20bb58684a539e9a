//! Spans of requests, as vLLM exports them with `--otlp-traces-endpoint`: one for each request that its caller traces.
//!
//! The span begins with the request and ends with its last byte, or when the client disconnects.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt as _;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{
    Span as _, SpanKind, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};

use super::replica::Replica;

/// Starts to export spans to a collector, `http://host:port`.
pub fn start(endpoint: &str) -> Result<SdkTracer, ExporterBuildError> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()?;
    let resource = Resource::builder().with_service_name("isotherm-engine");
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build())
        .build();
    // The tracer keeps the exporter alive.
    Ok(provider.tracer("isotherm-engine"))
}

/// Records a span for a traced request.
pub async fn record(State(replica): State<Arc<Replica>>, request: Request, next: Next) -> Response {
    let tracer = replica.tracer.get();
    let Some(span) = tracer.and_then(|tracer| begin(tracer, &request)) else {
        return next.run(request).await;
    };
    let response = next.run(request).await;
    let (head, body) = response.into_parts();
    let mut span = span;
    let status = KeyValue::new("http.response.status_code", i64::from(head.status.as_u16()));
    span.set_attribute(status);
    // The closure owns the span, which ends when the body is dropped.
    let pieces = body.into_data_stream().map(move |piece| {
        let _ = &span;
        piece
    });
    Response::from_parts(head, Body::from_stream(pieces))
}

fn begin(tracer: &SdkTracer, request: &Request) -> Option<Span> {
    let headers = TraceHeaders(request.headers());
    let caller = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
    let is_sampled = caller.span().span_context().is_sampled();
    is_sampled.then(|| {
        tracer
            .span_builder("llm_request")
            .with_kind(SpanKind::Server)
            .with_attributes([KeyValue::new("url.path", request.uri().path().to_owned())])
            .start_with_context(tracer, &caller)
    })
}

struct TraceHeaders<'a>(&'a HeaderMap);

impl Extractor for TraceHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
