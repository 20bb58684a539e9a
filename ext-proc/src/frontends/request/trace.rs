//! The spans of one request that is traced.
//!
//! ```text
//! request ──┬─ hold        the filter reads the prompt; only where the caller traces the request
//!           ├─ decision    the service selects a replica, or enqueues the request
//!           ├─ queue       the request waits
//!           ├─ decision    the service resolves it
//!           └─ forwarding  the request is at the replica, whose own span is a child of this one
//! ```
//! Attributes are those of OpenTelemetry's semantic conventions, where these have one.
//!
//! A request has one step at a time; the next step ends it. Dropping a trace ends its spans, so that an aborted request has
//! them, too.

use std::time::{Duration, SystemTime};

use isotherm_fingerprint::Api;
use isotherm_fingerprint::outcome::Outcome;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, Span};

use super::head::RequestHead;
use crate::pool::Endpoint;
use crate::spans::Spans;

/// A step of a request, which has a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Request,
    Hold,
    Decision,
    Queue,
    Forwarding,
}

impl Step {
    /// The name of the span. The prefix tells it from the spans of other services in the same trace.
    const fn name(self) -> &'static str {
        match self {
            Self::Request => "isotherm.request",
            Self::Hold => "isotherm.hold",
            Self::Decision => "isotherm.decision",
            Self::Queue => "isotherm.queue",
            Self::Forwarding => "isotherm.forwarding",
        }
    }
}

/// The target of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// A replica.
    Replica(&'a Endpoint),
    /// Another region, by its name.
    Region(&'a str),
}

impl Target<'_> {
    fn attributes(self) -> Vec<KeyValue> {
        let address = match self {
            Self::Region(name) => return vec![KeyValue::new("isotherm.region", name.to_owned())],
            Self::Replica(endpoint) => endpoint.addr(),
        };
        vec![
            KeyValue::new("server.address", address.ip().to_string()),
            KeyValue::new("server.port", i64::from(address.port())),
        ]
    }
}

/// The operation of an API's requests.
const fn operation_of(api: Api) -> &'static str {
    match api {
        Api::ChatCompletions | Api::Responses | Api::Messages => "chat",
        Api::Completions | Api::Generate => "text_completion",
        Api::Embeddings => "embeddings",
    }
}

/// The provider whose API a request speaks: the conventions name the API's, not the engine behind it.
const fn provider_of(api: Api) -> &'static str {
    match api {
        Api::Messages => "anthropic",
        Api::ChatCompletions
        | Api::Completions
        | Api::Responses
        | Api::Embeddings
        | Api::Generate => "openai",
    }
}

/// The spans of a request.
pub(super) struct RequestTrace {
    tracer: SdkTracer,
    /// The span of the whole request.
    request: Context,
    /// The span of the current step.
    step: Option<Span>,
}

impl RequestTrace {
    /// Begins the trace of a request, if the caller or the service samples it.
    pub(super) fn begin(spans: &Spans, head: &RequestHead, id: Option<&str>) -> Option<Box<Self>> {
        let caller = head.traceparent.as_deref().and_then(caller);
        let is_sampled = match &caller {
            Some(caller) => caller.span().span_context().is_sampled(),
            None => spans.samples(),
        };
        if !is_sampled {
            return None;
        }
        let tracer = spans.tracer().clone();
        let arrived_at = SystemTime::now();
        let held = head.held.unwrap_or_default();
        let began_at = arrived_at.checked_sub(held).unwrap_or(arrived_at);
        let api = head.request.api;
        let attributes = [
            api.map(|api| KeyValue::new("gen_ai.operation.name", operation_of(api))),
            api.map(|api| KeyValue::new("gen_ai.provider.name", provider_of(api))),
            id.map(|id| KeyValue::new("isotherm.request_id", id.to_owned())),
            head.model
                .clone()
                .map(|model| KeyValue::new("gen_ai.request.model", model)),
            head.request
                .tenant
                .as_deref()
                .map(|tenant| KeyValue::new("isotherm.tenant", tenant.to_owned())),
            Some(KeyValue::new("url.path", head.path.clone())),
        ];
        let request = tracer
            .span_builder(Step::Request.name())
            .with_kind(SpanKind::Server)
            .with_start_time(began_at)
            .with_attributes(attributes.into_iter().flatten())
            .start_with_context(&tracer, &caller.unwrap_or_default());
        let request = Context::new().with_span(request);
        if held > Duration::ZERO {
            tracer
                .span_builder(Step::Hold.name())
                .with_start_time(began_at)
                .start_with_context(&tracer, &request)
                .end_with_timestamp(arrived_at);
        }
        Some(Box::new(Self {
            tracer,
            request,
            step: None,
        }))
    }

    /// Begins the next step.
    pub(super) fn enter(&mut self, step: Step) {
        let span = self.tracer.span_builder(step.name());
        self.replace(span.start_with_context(&self.tracer, &self.request));
    }

    fn replace(&mut self, span: Span) {
        if let Some(mut ended) = self.step.replace(span) {
            ended.end();
        }
    }

    /// Records a decision, and begins the step in which `target` has the request. Returns `traceparent` for the target.
    pub(super) fn forward(
        &mut self,
        target: Target<'_>,
        reason: &'static str,
        matched: u32,
    ) -> String {
        if let Some(decision) = &mut self.step {
            decision.set_attribute(KeyValue::new("isotherm.reason", reason));
            let matched = i64::from(matched);
            decision.set_attribute(KeyValue::new("isotherm.matched_tokens", matched));
        }
        let span = self
            .tracer
            .span_builder(Step::Forwarding.name())
            .with_kind(SpanKind::Client)
            .with_attributes(target.attributes())
            .start_with_context(&self.tracer, &self.request);
        let parent = traceparent(span.span_context());
        self.replace(span);
        parent
    }

    /// Records a rejection.
    pub(super) fn reject(&mut self, reason: &'static str) {
        let request = self.request.span();
        request.set_attribute(KeyValue::new("error.type", reason));
        request.set_status(Status::error(reason));
    }

    /// Records the first token of the response.
    pub(super) fn begin_response(&mut self) {
        if let Some(forwarding) = &mut self.step {
            forwarding.add_event("first token", Vec::new());
        }
    }

    /// Records the outcome of the response, and ends the spans.
    pub(super) fn finish(mut self, outcome: Option<&Outcome>) {
        let Some((outcome, span)) = outcome.zip(self.step.as_mut()) else {
            return;
        };
        span.set_attribute(KeyValue::new(
            "http.response.status_code",
            i64::from(outcome.status),
        ));
        for (name, tokens) in [
            ("gen_ai.usage.input_tokens", outcome.prompt_tokens),
            (
                "gen_ai.usage.cache_read.input_tokens",
                outcome.cached_tokens,
            ),
            ("gen_ai.usage.output_tokens", outcome.completion_tokens),
        ] {
            if let Some(tokens) = tokens {
                span.set_attribute(KeyValue::new(name, i64::from(tokens)));
            }
        }
        if outcome.status >= 500 {
            let request = self.request.span();
            request.set_attribute(KeyValue::new("error.type", outcome.status.to_string()));
            request.set_status(Status::error("the replica failed"));
        }
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        // Children end before their parent.
        drop(self.step.take());
        self.request.span().end();
    }
}

/// The caller's span, if `traceparent` is well-formed.
fn caller(traceparent: &str) -> Option<Context> {
    let context = TraceContextPropagator::new()
        .extract_with_context(&Context::new(), &Traceparent(traceparent));
    let is_valid = context.span().span_context().is_valid();
    is_valid.then_some(context)
}

/// The headers of a request, of which only `traceparent` matters. `tracestate` goes to the engine unread.
struct Traceparent<'a>(&'a str);

impl Extractor for Traceparent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == "traceparent").then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}

fn traceparent(span: &SpanContext) -> String {
    format!(
        "00-{}-{}-{:02x}",
        span.trace_id(),
        span.span_id(),
        span.trace_flags()
    )
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use opentelemetry::Value;
    use opentelemetry_sdk::trace::SpanData;

    use super::*;
    use crate::pool::RouteRequest;
    use crate::spans::tests::Kept;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn has(span: &SpanData, name: &'static str, value: impl Into<Value>) -> bool {
        let attribute = KeyValue::new(name, value);
        span.attributes.contains(&attribute)
    }

    fn head(traceparent: Option<String>) -> RequestHead {
        RequestHead {
            request: RouteRequest {
                api: Some(Api::ChatCompletions),
                ..RouteRequest::default()
            },
            traceparent: traceparent.map(Into::into),
            held: Some(Duration::from_millis(3)),
            ..RequestHead::default()
        }
    }

    fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
        spans.iter().find(|span| span.name == name).unwrap()
    }

    #[tokio::test]
    async fn each_step_is_a_child_of_the_request_in_the_callers_trace() {
        let kept = Kept::default();
        let spans = kept.spans(0.0);
        let head = head(Some(format!("00-{TRACE}-b7ad6b7169203331-01")));
        let mut trace = RequestTrace::begin(&spans, &head, Some("id")).unwrap();
        trace.enter(Step::Decision);
        trace.enter(Step::Queue);
        trace.enter(Step::Decision);
        let replica = Endpoint::from(SocketAddr::from(([10, 0, 0, 1], 8000)));
        let parent = trace.forward(Target::Replica(&replica), "prefix", 7);
        trace.begin_response();
        trace.finish(Some(&Outcome {
            status: 200,
            cached_tokens: Some(5),
            ..Outcome::default()
        }));
        let exported = kept.take(spans).await;
        let request = named(&exported, "isotherm.request");
        assert!(has(request, "gen_ai.operation.name", "chat"));
        assert!(has(request, "gen_ai.provider.name", "openai"));
        assert_eq!(request.parent_span_id.to_string(), "b7ad6b7169203331");
        for span in &exported {
            assert_eq!(span.span_context.trace_id().to_string(), TRACE);
            if span.name != "isotherm.request" {
                assert_eq!(span.parent_span_id, request.span_context.span_id());
            }
        }
        let names: Vec<_> = exported.iter().map(|span| &*span.name).collect();
        assert_eq!(
            names,
            [
                "isotherm.hold",
                "isotherm.decision",
                "isotherm.queue",
                "isotherm.decision",
                "isotherm.forwarding",
                "isotherm.request"
            ]
        );
        let forwarding = named(&exported, "isotherm.forwarding");
        assert!(has(forwarding, "server.address", "10.0.0.1"));
        assert!(has(forwarding, "server.port", 8000));
        assert!(has(forwarding, "gen_ai.usage.cache_read.input_tokens", 5));
        let forwarding = forwarding.span_context.span_id();
        assert_eq!(parent, format!("00-{TRACE}-{forwarding}-01"));
        let hold = named(&exported, "isotherm.hold");
        let held = hold.end_time.duration_since(hold.start_time).unwrap();
        assert_eq!(held, Duration::from_millis(3));
    }

    #[tokio::test]
    async fn the_caller_decides_whether_a_request_is_sampled() {
        let kept = Kept::default();
        let always = kept.spans(1.0);
        let unsampled = head(Some(format!("00-{TRACE}-b7ad6b7169203331-00")));
        assert!(RequestTrace::begin(&always, &unsampled, None).is_none());
        assert!(RequestTrace::begin(&always, &head(None), None).is_some());
        let malformed = head(Some("00-zz-b7ad6b7169203331-01".into()));
        let never = kept.spans(0.0);
        assert!(RequestTrace::begin(&never, &malformed, None).is_none());
        assert!(RequestTrace::begin(&never, &head(None), None).is_none());
    }

    #[tokio::test]
    async fn a_request_that_its_client_leaves_ends_its_spans() {
        let kept = Kept::default();
        let spans = kept.spans(1.0);
        let mut trace = RequestTrace::begin(&spans, &head(None), None).unwrap();
        trace.enter(Step::Queue);
        drop(trace);
        let exported = kept.take(spans).await;
        let names: Vec<_> = exported.iter().map(|span| &*span.name).collect();
        assert_eq!(
            names,
            ["isotherm.hold", "isotherm.queue", "isotherm.request"]
        );
    }
}
