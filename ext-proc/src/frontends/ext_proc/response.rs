//! The messages of the service to Envoy.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::ProcessingMode;
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::{
    BodySendMode, HeaderSendMode,
};
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, ImmediateResponse,
    ProcessingResponse, TrailersResponse,
};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Duration as PbDuration, Struct, Value};
use isotherm_fingerprint::{names, session};
use isotherm_wasm_filter_core::HeaderEdit;
use isotherm_wasm_filter_core::response::orca;

use super::mode::{BodyMode, StreamModes};
use crate::frontends::request::reply::{
    DecisionRecord, ForwardReply, ImmediateReply, PassThroughReply, Reply, RouteReply,
};

/// Namespace in which Envoy's load balancers look for the endpoint, besides the header (Gateway API Inference Extension).
pub(super) const LB_NAMESPACE: &str = "envoy.lb";

/// Namespace of the facts for Envoy's access log.
const LOG_NAMESPACE: &str = "isotherm";

/// The message that carries the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestPhase {
    /// The reply to the headers.
    #[default]
    Headers,
    /// The reply to the buffered body: the headers are still at the gateway.
    Body,
}

/// The parts of a reply that the gateway determines, not the decision.
#[derive(Clone, Debug, Default)]
pub(super) struct RouteForm {
    pub(super) phase: RequestPhase,
    /// Whether the gateway speaks the endpoint picker protocol alone: it has no use for Isotherm's own headers.
    pub(super) is_picker: bool,
    pub(super) endpoints_max: usize,
    /// Internal headers of the client to remove.
    pub(super) forged: Vec<String>,
    /// Whether the service reads the response, and asks the engine for its load.
    pub(super) reads_response: bool,
    pub(super) client_wants_report: bool,
    /// The modes of a gateway that buffers bodies which the service does not need.
    pub(super) response_override: Option<StreamModes>,
}

pub(super) fn encode(reply: Reply, form: &RouteForm) -> ProcessingResponse {
    let reply = match reply {
        Reply::Route(reply) => route(reply, form),
        Reply::Forward(reply) => forward(reply),
        Reply::PassThrough(reply) => pass_through(reply),
        Reply::Immediate(reply) => return immediate(&reply),
    };
    reply.encode(form)
}

/// The changes to a request that continues.
#[derive(Default)]
struct RequestChanges {
    set: Vec<HeaderValueOption>,
    remove: Vec<String>,
    metadata: Option<Struct>,
}

impl RequestChanges {
    /// Encodes the changes. Envoy then selects the route again, if there are any.
    fn encode(self, form: &RouteForm) -> ProcessingResponse {
        let mut remove = self.remove;
        remove.extend_from_slice(&form.forged);
        remove.retain(|name| !self.set.iter().any(|set| is_named(set, name)));
        let changes = CommonResponse {
            clear_route_cache: !self.set.is_empty() || !remove.is_empty(),
            header_mutation: Some(HeaderMutation {
                set_headers: self.set,
                remove_headers: remove,
            }),
            ..CommonResponse::default()
        };
        let message = match form.phase {
            RequestPhase::Headers => Response::RequestHeaders(HeadersResponse {
                response: Some(changes),
            }),
            RequestPhase::Body => Response::RequestBody(BodyResponse {
                response: Some(changes),
            }),
        };
        ProcessingResponse {
            dynamic_metadata: self.metadata,
            mode_override: form
                .response_override
                .map(|modes| override_buffering(modes, BodySendMode::None)),
            ..response(message)
        }
    }
}

fn route(reply: RouteReply, form: &RouteForm) -> RequestChanges {
    let endpoints = match form.is_picker {
        true => first_endpoints(&reply.endpoints, form.endpoints_max),
        false => &reply.endpoints,
    };
    let mut set = vec![set_header(names::DESTINATION, endpoints)];
    let prefiller = reply.prefiller;
    set.extend(prefiller.map(|address| set_header(names::PREFILLER, &address)));
    let traceparent = reply.traceparent;
    set.extend(traceparent.map(|value| set_header(names::TRACEPARENT, &value)));
    let priority = reply
        .priority
        .and_then(|header| Some((header.name()?, header.value)));
    set.extend(priority.map(|(name, value)| set_header(name, &value.to_string())));
    if form.reads_response && !form.client_wants_report {
        set.push(set_header(orca::FORMAT_HEADER, orca::FORMAT));
    }
    if !form.is_picker {
        set.extend(reply.cluster.map(|name| set_header(names::CLUSTER, &name)));
        let decision = reply.decision;
        set.extend(decision.map(|text| set_header(names::DECISION, &text)));
    }
    let endpoint = (names::DESTINATION, endpoints.to_owned());
    let namespaces = std::iter::once((LB_NAMESPACE, structure([endpoint])));
    let record = (!form.is_picker).then(|| log_metadata(reply.record));
    RequestChanges {
        metadata: Some(structure_of(namespaces.chain(record))),
        set,
        remove: reply.removed.names().map(str::to_owned).collect(),
    }
}

/// Returns the first `count` of a comma-separated list.
fn first_endpoints(endpoints: &str, count: usize) -> &str {
    let mut commas = endpoints.match_indices(',');
    let end = commas.nth(count.saturating_sub(1));
    end.and_then(|(end, _)| endpoints.get(..end))
        .unwrap_or(endpoints)
}

fn forward(reply: ForwardReply) -> RequestChanges {
    let mut set = vec![
        set_header(names::CLUSTER, &reply.route.peer.cluster),
        set_header(names::ORIGIN, reply.route.peer_table.own()),
        set_header(names::TRIED, &reply.tried),
    ];
    let model = reply.model.map(|model| session::encode(model.as_bytes()));
    set.extend(model.map(|model| set_header(names::MODEL, &model)));
    let traceparent = reply.traceparent;
    set.extend(traceparent.map(|value| set_header(names::TRACEPARENT, &value)));
    let objectives = reply.objectives.headers();
    set.extend(objectives.map(|(name, value)| set_header(name, &value)));
    set.extend(
        reply
            .decision
            .map(|text| set_header(names::DECISION, &text)),
    );
    RequestChanges {
        set,
        remove: vec![names::DESTINATION.to_owned()],
        metadata: Some(structure_of([log_metadata(reply.record)])),
    }
}

fn pass_through(reply: PassThroughReply) -> RequestChanges {
    let cluster = reply.cluster.map(|name| set_header(names::CLUSTER, &name));
    let endpoint = reply.endpoint.as_deref();
    let destination = endpoint.map(|endpoint| set_header(names::DESTINATION, endpoint));
    RequestChanges {
        set: cluster.into_iter().chain(destination).collect(),
        remove: reply.removed.names().map(str::to_owned).collect(),
        metadata: reply.endpoint.map(|endpoint| {
            structure_of([(LB_NAMESPACE, structure([(names::DESTINATION, endpoint)]))])
        }),
    }
}

/// Asks Envoy for the body of a request, before the reply to its headers (Envoy 1.40, `allow_mode_override`).
pub(super) fn ask_for_body() -> ProcessingResponse {
    mode_override(ProcessingMode {
        request_body_mode: BodySendMode::FullDuplexStreamed.into(),
        request_trailer_mode: HeaderSendMode::Send.into(),
        response_trailer_mode: HeaderSendMode::Send.into(),
        ..ProcessingMode::default()
    })
}

/// Replies to the headers of a request whose body follows as one message, and removes forged headers.
pub(super) fn await_body(forged: Vec<String>, modes: StreamModes) -> ProcessingResponse {
    let mutation = HeaderMutation {
        remove_headers: forged,
        ..HeaderMutation::default()
    };
    let headers = response(Response::RequestHeaders(HeadersResponse {
        response: Some(CommonResponse {
            header_mutation: Some(mutation),
            ..CommonResponse::default()
        }),
    }));
    ProcessingResponse {
        mode_override: Some(override_buffering(modes, BodySendMode::Buffered)),
        ..headers
    }
}

/// The modes of a gateway that buffers, with responses streamed instead: a buffered one would reach its client only at its
/// end. Envoy ignores an override that its configuration does not allow.
fn override_buffering(modes: StreamModes, request: BodySendMode) -> ProcessingMode {
    let response = match modes.response {
        BodyMode::Buffered | BodyMode::Streamed => BodySendMode::Streamed,
        BodyMode::FullDuplex => BodySendMode::FullDuplexStreamed,
        BodyMode::None => BodySendMode::None,
    };
    ProcessingMode {
        request_body_mode: request.into(),
        response_header_mode: HeaderSendMode::Send.into(),
        response_body_mode: response.into(),
        ..ProcessingMode::default()
    }
}

fn mode_override(mode: ProcessingMode) -> ProcessingResponse {
    ProcessingResponse {
        mode_override: Some(mode),
        ..ProcessingResponse::default()
    }
}

/// Extends the time that Envoy waits for the reply.
pub(super) fn wait(timeout: Duration) -> ProcessingResponse {
    ProcessingResponse {
        override_message_timeout: Some(PbDuration {
            seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(timeout.subsec_nanos()).unwrap_or(0),
        }),
        ..ProcessingResponse::default()
    }
}

pub(super) fn immediate(reply: &ImmediateReply) -> ProcessingResponse {
    let headers = reply.headers();
    response(Response::ImmediateResponse(ImmediateResponse {
        status: Some(HttpStatus {
            code: i32::from(reply.status),
        }),
        headers: Some(HeaderMutation {
            set_headers: headers
                .map(|(key, value)| set_header(key, &value))
                .collect(),
            remove_headers: Vec::new(),
        }),
        body: reply.body.to_string().into_bytes(),
        grpc_status: None,
        details: format!("isotherm_{}", reply.details),
    }))
}

/// Lets the headers of a response pass, with the changes that the filter would make.
pub(super) fn response_headers(edits: &[HeaderEdit]) -> ProcessingResponse {
    let mut mutation = HeaderMutation::default();
    for edit in edits {
        match edit.parts() {
            (name, Some(value)) => mutation.set_headers.push(set_header_bytes(name, value)),
            (name, None) => mutation.remove_headers.push(name.to_owned()),
        }
    }
    response(Response::ResponseHeaders(HeadersResponse {
        response: Some(CommonResponse {
            header_mutation: Some(mutation),
            ..CommonResponse::default()
        }),
    }))
}

pub(super) fn request_trailers() -> ProcessingResponse {
    response(Response::RequestTrailers(TrailersResponse::default()))
}

/// Lets response trailers pass. The filter sees them next, and removes the trailer that was for the service.
pub(super) fn response_trailers() -> ProcessingResponse {
    response(Response::ResponseTrailers(TrailersResponse::default()))
}

pub(super) fn response(response: Response) -> ProcessingResponse {
    ProcessingResponse {
        response: Some(response),
        ..ProcessingResponse::default()
    }
}

fn is_named(header: &HeaderValueOption, name: &str) -> bool {
    let header = header.header.as_ref();
    header.is_some_and(|header| header.key == name)
}

fn set_header(key: &str, value: &str) -> HeaderValueOption {
    set_header_bytes(key, value.as_bytes())
}

fn set_header_bytes(key: &str, value: &[u8]) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            raw_value: value.to_owned(),
            ..HeaderValue::default()
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    }
}

/// Returns the value of a header. Gateways write one of two members.
pub(super) fn value(header: &HeaderValue) -> &[u8] {
    if header.raw_value.is_empty() {
        header.value.as_bytes()
    } else {
        &header.raw_value
    }
}

/// Like [`value`], without a copy.
pub(super) fn into_value(value: String, raw_value: Vec<u8>) -> Vec<u8> {
    if raw_value.is_empty() {
        value.into_bytes()
    } else {
        raw_value
    }
}

/// The decision for Envoy's access log: text, as the filter writes it for requests of the decision stream.
fn log_metadata(record: DecisionRecord) -> (&'static str, Value) {
    let reason = ("reason", record.reason.to_owned());
    let queued = ("queued_ms", record.queued_ms.to_string());
    (LOG_NAMESPACE, structure([reason, queued]))
}

fn structure<const N: usize>(fields: [(&str, String); N]) -> Value {
    let text = |text| Value {
        kind: Some(Kind::StringValue(text)),
    };
    let fields = fields.map(|(name, value)| (name, text(value)));
    Value {
        kind: Some(Kind::StructValue(structure_of(fields))),
    }
}

fn structure_of<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Struct {
    let fields = fields.into_iter();
    Struct {
        fields: fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}
